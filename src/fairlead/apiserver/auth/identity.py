"""Identities: a user name and its groups."""

from __future__ import annotations

from dataclasses import dataclass, field

MASTERS = "system:masters"
AUTHENTICATED = "system:authenticated"


@dataclass(frozen=True, slots=True)
class User:
    """One identity; never holds a credential."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, list[str]] = field(default_factory=dict[str, list[str]], hash=False, compare=False)

    @property
    def is_master(self) -> bool:
        """Return whether the user is in the group ``system:masters``, which may do everything."""
        return MASTERS in self.groups


ADMIN = User("kubernetes-admin", groups=(MASTERS, AUTHENTICATED))
SYSTEM = User("system:apiserver", groups=(MASTERS, AUTHENTICATED))


def service_account(namespace: str, name: str, uid: str) -> User:
    """Return the user of a service account, with its name and groups as Kubernetes defines them."""
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", AUTHENTICATED)
    return User(f"system:serviceaccount:{namespace}:{name}", uid, groups)
