"""The hub's ACME accounts: one for each CertificateIssuer.

In: issuers, and Secrets in the hub's own namespace. Out: clients with an account; the key of an account in its Secret,
before it is used; whether there is an account, as the condition Accepted. Never: a key in a log, a status or an Event.
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING

import msgspec

from fairlead.api.kubernetes import SECRETS
from fairlead.api.managedcertificate import CERTIFICATE_ISSUERS, CertificateIssuer, CertificateIssuerStatus
from fairlead.api.meta import transitions, wire_conditions
from fairlead.api.names import LABEL_MANAGED_BY, MANAGED_BY, MANAGER_HUB, SYSTEM_NAMESPACE, short_hash
from fairlead.api.times import wire_time
from fairlead.errors import AlreadyExists, NotFound, Terminal
from fairlead.hub.certificates.keys import in_thread, is_account_key, new_key
from fairlead.hub.certificates.problems import AcmeRefused, too_slow
from fairlead.hub.certificates.renewal import retry_delay_s
from fairlead.hub.intents.intent import IntentContext
from fairlead.kube.lease import check_leads
from fairlead.kube.status import emit_transitions, write_status
from fairlead.model.condition import Condition, ConditionReason, ConditionType, reason_from
from fairlead.runtime.queue import KeyedLock, KeyedQueue

if TYPE_CHECKING:
    from fairlead.hub.certificates.client import AcmeClient, ExternalKey

_KEY_ENTRY = "tls.key"
_HMAC_ENTRY = "hmac"


class _Held(msgspec.Struct):
    """A client that was made for one version of an issuer."""

    identity: str
    client: AcmeClient


class Accounts:
    """The accounts of one hub."""

    def __init__(self, context: IntentContext) -> None:
        self._cluster = context.cluster
        self._issuers = context.inventory.issuers
        self._events = context.events
        self._clock = context.clock
        self._leading = context.leading
        self.queue: KeyedQueue[str] = KeyedQueue(clock=context.clock)
        self._clients: dict[str, _Held] = {}
        #: What failed for an issuer, and how often in a row.
        self._failures: dict[str, tuple[str, int]] = {}
        self._locks = KeyedLock()

    async def reconcile(self, name: str) -> float | None:
        """Make sure that an issuer has an account, and write whether it has one."""
        issuer = self._issuers.get("", name)
        if issuer is None or issuer.deleting:
            self.forget(name)
            self._failures.pop(name, None)
            return None
        if not self._leading():
            return None
        again_s = None
        try:
            client = await self.client(issuer)
        except (AcmeRefused, Terminal) as error:
            # Failures with another server, or another account, say nothing of this one.
            before, identity = self._failures.get(name), _identity(issuer)
            failures = before[1] + 1 if before is not None and before[0] == identity else 1
            self._failures[name] = (identity, failures)
            after_s, limited = (error.after_s, error.rate_limited) if isinstance(error, AcmeRefused) else (None, False)
            again_s = retry_delay_s(
                failures, identity=(name,), retry_after_s=after_s, rate_limited=limited, ordered=False
            )
            reason = reason_of(error)
            await self._write(issuer, Condition(ConditionType.ACCEPTED, False, reason, error.sentence), "")
        else:
            self._failures.pop(name, None)
            accepted = Condition(ConditionType.ACCEPTED, True, ConditionReason.ACCEPTED, "")
            await self._write(issuer, accepted, client.account)
        return again_s

    async def client(self, issuer: CertificateIssuer) -> AcmeClient:
        """Return a client with the account of ``issuer``.

        Raises:
            AcmeRefused: the authority refuses the account, or cannot be used.
            Terminal: a Secret is missing or wrong; the sentence says which.
        """
        name = issuer.metadata.name
        async with self._locks.hold(name):
            identity = _identity(issuer)
            held = self._clients.get(name)
            if held is not None and held.identity == identity:
                return held.client
            client = await self._open(issuer)
            self._clients[name] = _Held(identity, client)
            return client

    def forget(self, name: str) -> None:
        """Have the account of an issuer looked up again."""
        self._clients.pop(name, None)

    async def _open(self, issuer: CertificateIssuer) -> AcmeClient:
        # Imported here: a hub without issuers does not load the library.
        from fairlead.hub.certificates.client import AcmeClient

        key = await self._account_key(issuer)
        external = await self._external(issuer)
        spec = issuer.spec

        def opened() -> AcmeClient:
            client = AcmeClient.open(spec.server, key, ca_bundle=spec.ca_bundle)
            client.register(spec.email, external)
            return client

        try:
            return await in_thread(opened, name=f"acme-{issuer.metadata.name}")
        except TimeoutError:
            raise too_slow(spec.server) from None

    async def _account_key(self, issuer: CertificateIssuer) -> bytes:
        """Return the key of the account; a new one is in its Secret before anything is signed with it."""
        name = issuer.spec.account_key_name(issuer.metadata.name)
        try:
            secret = await self._cluster.get(SECRETS, SYSTEM_NAMESPACE, name)
        except NotFound:
            encoded = base64.b64encode(new_key()).decode()
            meta = {"name": name, "namespace": SYSTEM_NAMESPACE, "labels": {LABEL_MANAGED_BY: MANAGED_BY}}
            check_leads(self._leading, f"Secret {SYSTEM_NAMESPACE}/{name}")
            try:
                secret = await self._cluster.create(SECRETS, {"metadata": meta, "data": {_KEY_ENTRY: encoded}})
            except AlreadyExists:
                secret = await self._cluster.get(SECRETS, SYSTEM_NAMESPACE, name)
        key = _decoded((secret.data or {}).get(_KEY_ENTRY, ""))
        if not is_account_key(key):
            raise Terminal(
                f"Secret {SYSTEM_NAMESPACE}/{name} has no usable key of an account in its entry {_KEY_ENTRY}: put an "
                "ECDSA key on P-256 there in PEM, or delete the Secret, and a new account is made",
                reason=ConditionReason.INVALID,
            )
        return key

    async def _external(self, issuer: CertificateIssuer) -> ExternalKey | None:
        from fairlead.hub.certificates.client import ExternalKey

        external = issuer.spec.external_account
        if external is None:
            return None
        try:
            secret = await self._cluster.get(SECRETS, SYSTEM_NAMESPACE, external.secret_ref)
        except NotFound:
            raise Terminal(
                f"spec.externalAccount.secretRef: there is no Secret {SYSTEM_NAMESPACE}/{external.secret_ref}; create "
                f"it with the entry {_HMAC_ENTRY}",
                reason=ConditionReason.INVALID,
            ) from None
        key = _decoded((secret.data or {}).get(_HMAC_ENTRY, "")).decode("ascii", "replace").strip().rstrip("=")
        try:
            usable = bool(base64.urlsafe_b64decode(key + "=" * (-len(key) % 4)))
        except (binascii.Error, ValueError):
            usable = False
        if not usable:
            raise Terminal(
                f"Secret {SYSTEM_NAMESPACE}/{external.secret_ref}: its entry {_HMAC_ENTRY} is not the key in base64url "
                "that the authority gave you",
                reason=ConditionReason.INVALID,
            )
        return ExternalKey((external.key_id, key))

    async def _write(self, issuer: CertificateIssuer, accepted: Condition, account: str) -> None:
        old, generation = issuer.status, issuer.metadata.generation
        new = CertificateIssuerStatus(
            account=account or old.account,
            account_for=_identity(issuer),
            observed_generation=generation,
            conditions=wire_conditions(
                [accepted], old.conditions, generation=generation, now=wire_time(self._clock.now())
            ),
        )
        check_leads(self._leading, f"the status of CertificateIssuer {issuer.metadata.name}")
        if await write_status(self._cluster, CERTIFICATE_ISSUERS, issuer, old, new, manager=MANAGER_HUB) is not None:
            changes = transitions(old.conditions, new.conditions)
            emit_transitions(
                self._events, CERTIFICATE_ISSUERS, issuer, changes, good={"Accepted": f"its account is {account}"}
            )


def reason_of(error: AcmeRefused | Terminal) -> ConditionReason:
    """Return the reason of a condition about an error: only those of the documented set."""
    return reason_from(error.reason) or ConditionReason.INVALID


def _identity(issuer: CertificateIssuer) -> str:
    """Name what a client depends on; domains and tenants are none of it."""
    spec = issuer.spec
    external = spec.external_account
    parts = (external.key_id, external.secret_ref) if external is not None else ()
    name = spec.account_key_name(issuer.metadata.name)
    return short_hash(issuer.metadata.uid, spec.server, spec.email, name, spec.ca_bundle, *parts)


def attempt_of(issuer: CertificateIssuer) -> str:
    """Name what an order depends on: as whom it is made at which server, and how names are proven."""
    return short_hash(_identity(issuer), *issuer.spec.solvers)


def _decoded(raw: str) -> bytes:
    try:
        return base64.b64decode(raw, validate=True)
    except binascii.Error:
        return b""
