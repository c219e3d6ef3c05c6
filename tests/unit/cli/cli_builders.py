"""Load balancers as the operators' verbs see them, through the real plan and guard."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from fairlead.api.backendgroup import (
    BackendRecord,
    BackendRecordSpec,
    BackendRecordStatus,
    RecordListener,
    RecordLoadBalancer,
    RecordTarget,
)
from fairlead.api.meta import ObjectMeta
from fairlead.cli.explain import BackendRow, explained
from fairlead.hub.inspect.preview import Previewed
from fairlead.model.desired import DesiredLoadBalancer
from fairlead.sync.plan import LoadBalancerState, Registered, guard_plan, plan_load_balancer
from fairlead.testing.builders import desired, lb_key
from fairlead.translate.view import Decision

KEY = lb_key("web", namespace="shop")
NOW = datetime(2030, 1, 1, 12, 0, 30, tzinfo=UTC)
SINCE = "2030-01-01T12:00:00Z"


def previewed(wanted: DesiredLoadBalancer | None, done: DesiredLoadBalancer | None, **fields: Any) -> Previewed:
    """Return the preview of a load balancer that shall be ``wanted`` where ``done`` is on record."""
    registered = {} if done is None else {at: {key: Registered(target) for key, target in targets.items()}
                                          for at, targets in done.targets.items()}  # fmt: skip
    side = LoadBalancerState(desired=wanted, recorded_spec=done.spec if done is not None else None, recorded=registered)
    whole = plan_load_balancer(KEY, side, now_s=0.0)
    plan = guard_plan(whole, side, now_s=0.0)
    held = whole.frontend if plan.frontend is None else None
    translation = Decision(wanted, (), provider="haproxy")
    preview = Previewed(key=KEY, provider="haproxy", plan=plan, held_frontend=held, side=side, translation=translation)
    return msgspec.structs.replace(preview, **fields)


def lb(*targets: Any, **fields: Any) -> DesiredLoadBalancer:
    return desired(targets, key=KEY, **fields)


def record(
    number: str, state: Any = "Registered", *, reason: str = "New", message: str = "", **meta: Any
) -> BackendRecord:
    """Return the record of the backend 10.0.0.``number``, in ``state`` since SINCE."""
    return BackendRecord(
        metadata=ObjectMeta(name=f"web-{number}", namespace="shop", uid=f"uid-{number}", **meta),
        spec=BackendRecordSpec(
            load_balancer=RecordLoadBalancer(KEY.kind, KEY.namespace, KEY.name, "haproxy"),
            listener=RecordListener(80, "TCP"),
            target=RecordTarget(f"10.0.0.{number}", 8080, source=f"Pod/shop/web-{number}/u"),
            owners=["BackendGroup/shop/web"],
        ),
        status=BackendRecordStatus(state=state, reason=reason, message=message, since=SINCE),
    )


def rows(shown: Previewed, *, leading: bool = True) -> dict[str, BackendRow]:
    return {row.address: row for row in explained(shown, now=NOW, leading=leading).backends}
