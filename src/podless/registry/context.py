"""The parts of a request that the registry depends on, and the result of an operation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from podless.auth.identity import SYSTEM, User
from podless.objects import Obj
from podless.store.entry import BucketEntry


@dataclass(slots=True)
class Context:
    """User, field manager and options of a request; ``warnings`` become headers of the response."""

    user: User = SYSTEM
    manager: str = "apiserver"
    dry_run: bool = False
    field_validation: str = "Ignore"
    force: bool = False
    subresource: str = ""
    warnings: list[str] = field(default_factory=list[str])

    @property
    def status(self) -> bool:
        """Return whether the write goes to the status subresource."""
        return self.subresource == "status"


class WriteResult(NamedTuple):
    """The result of a write: the object, its JSON when it was stored, and whether it is new."""

    obj: Obj
    entry: BucketEntry | None = None
    created: bool = False


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """The options of a delete."""

    uid: str = ""
    rv: str = ""
    propagation: str = "Background"
    dry_run: bool = False
