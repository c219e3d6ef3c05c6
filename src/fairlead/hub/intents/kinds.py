"""Every kind of intent that a hub serves, by kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from fairlead.api.backendrecord import RecordOrigin
from fairlead.hub.intents.hostname.intent import HostnameIntent
from fairlead.hub.intents.http.intent import HTTPIntent
from fairlead.hub.intents.intent import Intent, IntentContext
from fairlead.hub.intents.loadbalancer.intent import LoadBalancerIntent
from fairlead.hub.intents.tcp.intent import TCPIntent
from fairlead.model.change import TargetChange

MakeIntent = Callable[[IntentContext], Intent[Any, Any]]

#: To add a kind: one line.
INTENTS: tuple[MakeIntent, ...] = (TCPIntent, HTTPIntent, LoadBalancerIntent, HostnameIntent)


class Intents(Mapping[str, Intent[Any, Any]]):
    """The intents of one hub; their objects are registered in its inventory."""

    def __init__(self, context: IntentContext, kinds: Iterable[MakeIntent] = INTENTS) -> None:
        made = [create(context) for create in kinds]
        self._intents = {intent.objects.resource.kind: intent for intent in made}

    def __getitem__(self, kind: str) -> Intent[Any, Any]:
        return self._intents[kind]

    def __iter__(self) -> Iterator[str]:
        return iter(self._intents)

    def __len__(self) -> int:
        return len(self._intents)

    def target_ref(self, change: TargetChange) -> RecordOrigin | None:
        """Return what is behind the address of a target that is recorded for the first time; None when unknown."""
        return self[change.load_balancer.kind].target_ref(change)
