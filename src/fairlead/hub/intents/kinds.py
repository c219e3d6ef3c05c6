"""Every kind of intent that a hub serves, by kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import structlog

from fairlead.api.backendgroup import RecordOrigin
from fairlead.hub.intents.hostname.intent import HostnameIntent
from fairlead.hub.intents.http.intent import HTTPIntent
from fairlead.hub.intents.intent import Intent, IntentContext
from fairlead.hub.intents.loadbalancer.intent import LoadBalancerIntent
from fairlead.hub.intents.tcp.intent import TCPIntent
from fairlead.model.change import TargetChange
from fairlead.model.keys import LoadBalancerKey

log = structlog.get_logger(__name__)

MakeIntent = Callable[[IntentContext], Intent[Any, Any]]

#: To add a kind: one line.
INTENTS: tuple[MakeIntent, ...] = (TCPIntent, HTTPIntent, LoadBalancerIntent, HostnameIntent)


class Intents(Mapping[str, Intent[Any, Any]]):
    """The intents of one hub; their objects are registered in its inventory."""

    def __init__(self, context: IntentContext, kinds: Iterable[MakeIntent] = INTENTS) -> None:
        made = [create(context) for create in kinds]
        self._intents = {intent.objects.resource.kind: intent for intent in made}
        self._unknown: set[str] = set()

    def __getitem__(self, kind: str) -> Intent[Any, Any]:
        return self._intents[kind]

    def __iter__(self) -> Iterator[str]:
        return iter(self._intents)

    def __len__(self) -> int:
        return len(self._intents)

    def of(self, key: LoadBalancerKey) -> Intent[Any, Any] | None:
        """Return the intent of a key; None for a kind that this hub does not serve, which is logged once."""
        intent = self.get(key.kind)
        if intent is None and key.kind not in self._unknown:
            self._unknown.add(key.kind)
            log.warning("a load balancer of a kind that this hub does not serve is left alone", load_balancer=str(key))
        return intent

    def target_ref(self, change: TargetChange) -> RecordOrigin | None:
        """Return what is behind the address of a target that is recorded for the first time; None when unknown."""
        return self[change.load_balancer.kind].target_ref(change)
