"""Who tells the author of a Service, and how do we not say the same twice?

In: all notes that hold now about a Service, from one speaker. Out: Events for those that did not hold before.
Never: writes by itself (the recorder does), fails, or repeats what has not changed.
"""

from __future__ import annotations

from collections.abc import Iterable

from fairlead.agent.events import Note
from fairlead.agent.identity import ServiceKey
from fairlead.api.kubernetes import SERVICES, Service
from fairlead.kube.events import EventRecorder


class Teller:
    """Remembers per Service and speaker what was said last."""

    def __init__(self, *, recorder: EventRecorder) -> None:
        self._recorder = recorder
        self._told: dict[ServiceKey, dict[str, tuple[str, frozenset[Note]]]] = {}

    def tell(self, speaker: str, service: Service, notes: Iterable[Note]) -> None:
        """Tell what is new among ``notes``; what is no longer among them may be told again another time."""
        now = tuple(notes)
        spoken = self._told.setdefault(service.key, {})
        uid, before = spoken.get(speaker, ("", frozenset[Note]()))
        for note in now:
            if note not in before or uid != service.metadata.uid:
                self.tell_once(service, note)
        if now:
            spoken[speaker] = (service.metadata.uid, frozenset(now))
        else:
            spoken.pop(speaker, None)
            if not spoken:
                del self._told[service.key]

    def tell_once(self, service: Service, note: Note) -> None:
        """Tell one note, whatever was told before."""
        self._recorder.emit(
            kind=SERVICES.kind,
            api_version=SERVICES.api_version,
            namespace=service.metadata.namespace,
            name=service.metadata.name,
            uid=service.metadata.uid,
            type="Warning" if note.warning else "Normal",
            reason=note.reason,
            message=note.message,
        )

    def forget(self, key: ServiceKey) -> None:
        """Forget a Service that is gone."""
        self._told.pop(key, None)
