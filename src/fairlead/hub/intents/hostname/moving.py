"""The placement of a name that moves to a zone at another kind of server.

    the new server does not answer all of it   the former zone keeps the records, the new one gets them
    it is paused, or a dry run                 the former zone keeps them, and nothing is written in the new one
    it answers all                             nothing is held back any more: the former one is left

Between zones of one kind of server the provider moves a name. In: a view, the zones, the runners. Out: what may be
placed, None when the name is where it belongs.
"""

from __future__ import annotations

import msgspec

from fairlead.hub.intents.hostname.objects import HostnameObjects
from fairlead.hub.intents.intent import Recorded
from fairlead.hub.intents.target_counts import not_seen
from fairlead.hub.providers.migration import Phase, Placement, missing_targets
from fairlead.hub.providers.registry import ProviderRegistry
from fairlead.hub.providers.runner import DurableRunner, ProviderRunner
from fairlead.model.desired import DesiredLoadBalancer
from fairlead.model.keys import LoadBalancerKey
from fairlead.model.observed import Observed
from fairlead.translate.hostname import HostnameView, translate_hostname
from fairlead.translate.view import Translation


def moving(
    view: HostnameView, translation: Translation, names: HostnameObjects, providers: ProviderRegistry
) -> Recorded | None:
    """Return what is placed until the zone of ``translation`` has the whole name."""
    obj, desired = view.load_balancer, translation.desired
    former, serving = names.recorded_zone_of(obj), obj.status.serving_provider
    if desired is None or former is None or serving in ("", translation.provider) or former.spec.provider != serving:
        return None
    runner = providers.get(translation.provider)
    if serving not in providers or runner is None:
        return None
    idle = desired.paused or bool(desired.dry_run)
    missing = "it is paused, or a dry run" if idle else _missing(runner, view.key, desired)
    if not missing:
        return None
    accepted = msgspec.structs.replace(obj, spec=obj.status.accepted or obj.spec)
    before = translate_hostname(msgspec.structs.replace(view, zone=former, load_balancer=accepted))
    return Recorded(
        translation=translation,
        placement=Placement(before, None if idle else translation, Phase.PREPARING),
        waiting_for=f"DNSZone {former.metadata.name} has the records until {translation.provider} has them ({missing})",
    )


def _missing(runner: ProviderRunner, key: LoadBalancerKey, desired: DesiredLoadBalancer) -> str:
    """Return what of ``desired`` is not answered yet, in one phrase; empty when all of it is."""
    if (missing := missing_targets(runner, key, desired)) or not isinstance(runner, DurableRunner):
        return missing
    seen = runner.readback.seen.get(key)
    if isinstance(seen, Observed) and seen.programmed and not not_seen(desired, seen.health):
        return ""
    runner.readback.notice(key)
    return seen if isinstance(seen, str) else "its server does not answer all of them yet"
