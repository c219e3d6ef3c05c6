"""The request that an operation serves, as the operation sees it, and what an operation returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from fairlead.apiserver.auth.identity import SYSTEM, User
from fairlead.apiserver.objects import Obj
from fairlead.apiserver.store.entry import BucketEntry


@dataclass(slots=True)
class Context:
    """The user, the field manager and the strictness of a request; ``warnings`` go into headers of the answer."""

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
