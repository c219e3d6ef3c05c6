"""The health of load balancers as the proxies see it.

In: the frontends, and the health streams of the proxies. Out: ``Health`` of a load balancer, and a call of
``on_change`` with the names of clusters of which something else is seen. A proxy whose bootstrap is older than this
opens no stream: what only such proxies serve is not checked, and says so. Never: removes a target that is unhealthy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import structlog

from fairlead.model.desired import FrontendSpec, Target
from fairlead.model.keys import ListenerKey, TargetKey
from fairlead.model.observed import Health, Seen, health_of
from fairlead.providers.envoy.frontends import Frontend
from fairlead.providers.envoy.health_checks import Check, GroupChecks, check_of, is_checked
from fairlead.providers.envoy.health_stream import HealthStream
from fairlead.providers.envoy.schema import Schema
from fairlead.providers.envoy.serving import TargetPort

_OLDER = "its proxies were started by an older version and do not report health; start them again"
_NO_BACKEND = "its routes lead to no backend, so there is nothing to check"
_NOT_CHECKED = "health checks are off, or its targets are UDP or DNS names, which the proxies do not check for us"

_log = structlog.get_logger(__name__)


Place = tuple[ListenerKey, TargetKey]
#: What one proxy sees: the name of a cluster and one of its targets -> what is seen of it.
See = Callable[[str, TargetKey], Seen]


class HealthBoard:
    """The checks of all groups, and what their proxies report."""

    def __init__(
        self,
        *,
        schema: Schema,
        find: Callable[[str], tuple[FrontendSpec, ListenerKey, TargetPort] | None] = lambda _name: None,
        published: Callable[[], bool] = lambda: True,
        on_change: Callable[[Iterable[str]], None] = lambda _names: None,
    ) -> None:
        #: What proxies see that report to other replicas of the hub, by group.
        self.elsewhere: Callable[[str], Sequence[See]] = lambda _group: ()
        self._schema = schema
        self._find = find
        self._published = published
        self._on_change = on_change
        self._groups: dict[str, GroupChecks] = {}
        self._streams: dict[str, list[HealthStream]] = {}

    def touch(self, group: str, names: Iterable[str]) -> None:
        """Have these clusters checked as they are now."""
        self._checks(group).touch(names)

    @property
    def streams(self) -> Mapping[str, Sequence[HealthStream]]:
        """Return the streams of our own proxies by group."""
        return self._streams

    def targets(self, group: str, name: str) -> frozenset[TargetKey]:
        """Return the targets of a cluster that are checked now."""
        check = self._checks(group).current().get(name)
        return check.targets if check is not None else frozenset()

    def publish(self) -> None:
        """Wake the streams: from now on all that is to be checked is known."""
        for streams in self._streams.values():
            for stream in streams:
                stream.wake()

    def open(self, group: str, node_id: str) -> HealthStream:
        """Begin to ask a proxy."""
        stream = HealthStream(checks=self._checks(group), schema=self._schema, node_id=node_id)
        self._streams.setdefault(group, []).append(stream)
        _log.info("proxy reports health", proxy=node_id, group=group)
        return stream

    def close(self, group: str, stream: HealthStream) -> None:
        """Forget a proxy; what it saw counts no more."""
        self._streams[group].remove(stream)
        self._on_change(stream.close())

    def report(self, group: str, stream: HealthStream, raw: bytes, *, now: float) -> None:
        """Take in what a proxy reports; a report that cannot be read is a ``ValueError``."""
        del group
        if changed := stream.on_report(raw, now=now):
            self._on_change(changed)

    def fall_silent(self, stream: HealthStream) -> None:
        """Take note that a proxy has stopped to report: what it sees is not known any more."""
        _log.warning("proxy has stopped to report health", proxy=stream.node_id)
        self._on_change(stream.fall_silent())

    def health(self, frontend: Frontend, *, expected: bool) -> Health:
        """Return what the proxies see of one load balancer; ``expected``: at least one of them will report."""
        proxies = [*(stream.seen for stream in self._streams.get(frontend.group, ())), *self.elsewhere(frontend.group)]
        silent = (Seen.WAITING,) if expected else (Seen.UNCHECKED,)

        idle = frontend.spec.l7.without_requests if frontend.spec.l7 is not None else frozenset[str]()
        ports = {key: port for key, port in frontend.ports.items() if key.backend not in idle}
        checked = {key for key, port in ports.items() if is_checked(frontend.spec, key, port)}

        def seen(key: ListenerKey, port: TargetPort, target: Target) -> Sequence[Seen]:
            if key not in checked:
                return (Seen.UNCHECKED,) * max(1, len(proxies))
            return [see(port.name, target.key) for see in proxies] or silent

        if not ports:
            return Health(message=_NO_BACKEND)
        views = {
            key: {
                target.key: seen(key, port, target)
                for target in port.targets.targets()
                if not target.draining and target.weight
            }
            for key, port in ports.items()
        }
        return health_of(views, not_checked=_OLDER if checked and not proxies and not expected else _NOT_CHECKED)

    def seen_of(self, frontend: Frontend, listener: ListenerKey, target: TargetKey) -> Seen:
        """Return what the proxies that report see of one target; healthy when each of them sees it so."""
        port = frontend.ports.get(listener)
        if port is None or not is_checked(frontend.spec, listener, port):
            return Seen.UNCHECKED
        sees = (*(stream.seen for stream in self._streams.get(frontend.group, ())), *self.elsewhere(frontend.group))
        views = {see(port.name, target) for see in sees} - {Seen.SILENT}
        return next((each for each in (Seen.UNHEALTHY, Seen.WAITING, Seen.HEALTHY) if each in views), Seen.UNCHECKED)

    def unhealthy(self, frontend: Frontend) -> dict[Place, float | None]:
        """Return the targets of one load balancer that a proxy sees unhealthy, and since when.

        None for one that only proxies of other replicas see so, which do not report that.
        """
        own, others = self._streams.get(frontend.group, ()), self.elsewhere(frontend.group)
        seen: dict[Place, float | None] = {}
        for listener, port in frontend.ports.items():
            if not is_checked(frontend.spec, listener, port):
                continue
            since: dict[TargetKey, float] = {}
            for stream in own:
                for key, at_s in stream.unhealthy_since(port.name).items():
                    since[key] = min(at_s, since.get(key, at_s))
            for target in port.targets.targets():
                if target.key in since or any(see(port.name, target.key) is Seen.UNHEALTHY for see in others):
                    seen[listener, target.key] = since.get(target.key)
        return seen

    def _checks(self, group: str) -> GroupChecks:
        checks = self._groups.get(group)
        if checks is None:
            checks = self._groups[group] = GroupChecks(self._check, published=self._published)
        return checks

    def _check(self, name: str) -> Check | None:
        place = self._find(name)
        return check_of(self._schema, *place) if place is not None else None
