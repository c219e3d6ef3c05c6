"""The certificates that the hub gets itself: one key, one step, until each is issued, and again when it is due.

In: ManagedCertificates, issuers, Tenants, Hostnames. Out: Secrets of type kubernetes.io/tls beside load balancers, and
statuses. A certificate that is there is served until a new one is in its Secret. Never: a write while another replica
leads, or a key anywhere but in a Secret.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from operator import itemgetter
from typing import TYPE_CHECKING

import msgspec

from fairlead.api.certificateissuer import CertificateIssuer
from fairlead.api.conditions import transitions
from fairlead.api.hostname import HOSTNAMES, HostnameCertificate, HostnameStatus
from fairlead.api.hostnames import WILDCARD
from fairlead.api.kubernetes import SECRETS, Secret
from fairlead.api.managedcertificate import (
    MANAGED_CERTIFICATES,
    CertificateOrder,
    ManagedCertificate,
    ManagedCertificateStatus,
)
from fairlead.api.meta import JSONObject, only_status_changed
from fairlead.api.names import ANNOTATION_DIGEST, ANNOTATION_ORDER, MANAGER_CERTIFICATES, MANAGER_HUB, SYSTEM_NAMESPACE
from fairlead.api.times import parsed_time, wire_time
from fairlead.errors import Conflict, NotFound, Terminal
from fairlead.hub.certificates.accounts import Accounts, attempt_of, reason_of
from fairlead.hub.certificates.admission import refusal, secret_taken
from fairlead.hub.certificates.backoff import LONGEST_S, retry_delay_s
from fairlead.hub.certificates.domains import DomainCertificates
from fairlead.hub.certificates.issuance import Issuance, Made
from fairlead.hub.certificates.keys import facts_of
from fairlead.hub.certificates.outcome import failed, issued, ordered, refused, without_certificate
from fairlead.hub.certificates.owners import Owners
from fairlead.hub.certificates.problems import AcmeRefused, too_slow
from fairlead.hub.certificates.renewal import next_renewal, renewal_time
from fairlead.hub.certificates.solvers import Solvers
from fairlead.hub.certificates.threads import in_thread
from fairlead.hub.intents.intent import Controller, IntentContext
from fairlead.hub.names.records import object_name
from fairlead.kube.leadership import check_leads
from fairlead.kube.overlay import Overlay
from fairlead.kube.status import emit_transitions, write_status
from fairlead.model.condition import Condition, ConditionReason
from fairlead.model.fair_order import FairOrder
from fairlead.runtime.queue import KeyedQueue
from fairlead.translate.certificates import certificate_of, pair_digest

if TYPE_CHECKING:
    from fairlead.hub.certificates.client import AcmeClient

Key = tuple[str, str]
_WORKERS = 16
#: How many certificates of one issuer are worked on at once: an authority that does not answer holds up no other.
_OF_ONE_ISSUER = 2
#: What is served is compared with its Secret this often, and the authority asked when it would like to be.
_CHECK_S = 6 * 3600.0
_KEPT_ON = frozenset({"", "serverInternal", "rateLimited"})


class CertificateControl:
    """All certificates of one hub."""

    def __init__(self, context: IntentContext) -> None:
        self._cluster = context.cluster
        self._inventory = context.inventory
        self._events = context.events
        self._clock = context.clock
        self._leading = context.leading
        self._accounts = Accounts(context)
        self._objects = Overlay(context.inventory.managed)
        self._solvers = Solvers(
            cluster=context.cluster,
            inventory=context.inventory,
            managed=self._objects,
            providers=context.providers,
            leading=context.leading,
        )
        self._issuance = Issuance(self._solvers)
        self._owners = Owners(context.inventory)
        self._domains = DomainCertificates(context)
        self._queue: KeyedQueue[Key] = KeyedQueue(clock=context.clock, group_of=itemgetter(0))
        #: Of each issuer, the certificates that are worked on, and those that wait for one of these.
        self._under_way: dict[str, set[Key]] = {}
        self._waiting: dict[str, FairOrder[Key]] = {}

    def controllers(self) -> Sequence[Controller]:
        """Return the controllers of issuers and certificates."""
        return (
            Controller("certificateissuer", self._accounts.queue, self._accounts.reconcile, _WORKERS),
            Controller("managedcertificate", self._queue, self.reconcile, _WORKERS),
            Controller("domaincertificate", self._domains.queue, self._domains.reconcile),
        )

    def watch(self) -> None:
        """Subscribe to everything that a certificate depends on."""
        self._inventory.managed.on_change(self._changed)
        self._inventory.issuers.on_change(self._issuer_changed)
        self._owners.watch(self._owner_changed)
        self._domains.watch()

    def lead(self) -> None:
        """Reconcile everything: this replica has begun to lead."""
        for issuer in self._inventory.issuers.values():
            self._accounts.queue.add(issuer.metadata.name)
        self._enqueue_all()
        self._domains.lead()

    async def reconcile(self, key: Key) -> float | None:
        """Bring one certificate one step further; returns seconds until it is due again."""
        try:
            return await self._reconcile(key)
        finally:
            self._wake_waiting()

    def _wake_waiting(self) -> None:
        """Wake the next certificate of each issuer that has room; one that needs no turn passes it on by its end."""
        for issuer, waiting in list(self._waiting.items()):
            if len(self._under_way.get(issuer, ())) < _OF_ONE_ISSUER:
                self._queue.add(waiting.pop())
                if not waiting:
                    del self._waiting[issuer]

    async def _reconcile(self, key: Key) -> float | None:
        obj = self._objects.get(*key)
        if not self._leading():
            return None
        if obj is None or obj.deleting:
            self._issuance.forget(key)
            await self._solvers.withdraw()
            return None
        now = self._clock.now()
        issuer = self._inventory.issuers.get("", obj.spec.issuer)
        tenant = self._inventory.tenant_of(key[0])
        member = tenant.metadata.name if tenant is not None else ""
        if (first := self._first_of_secret(obj)) != obj.metadata.name:
            await self._refuse(without_certificate(obj), secret_taken(obj, first), now)
            return None
        not_allowed = refusal(obj, issuer, member, self._owners.of, self._owners.granted_to(key[0]))
        if not_allowed is not None or issuer is None:
            if not_allowed is not None:
                await self._refuse(obj, not_allowed, now)
            return None
        if (later_s := await self._later_s(obj, attempt_of(issuer), now)) is not None:
            return later_s
        under_way = self._under_way.setdefault(obj.spec.issuer, set())
        if len(under_way) >= _OF_ONE_ISSUER:
            self._waiting.setdefault(obj.spec.issuer, FairOrder(itemgetter(0))).add(key)
            return None
        under_way.add(key)
        try:
            return await self._ask(obj, issuer, now)
        finally:
            under_way.discard(key)

    def _first_of_secret(self, obj: ManagedCertificate) -> str:
        """Return the certificate that owns the Secret of ``obj``: the oldest that names it.

        Of those that were created in the same second the one that has been issued is the first.
        """
        there = self._objects.by_index("secret", (obj.metadata.namespace, obj.secret_name))
        candidates = [each for each in there if not each.deleting] or [obj]
        ages = [(each.metadata.creation_timestamp, not each.status.digest, each.metadata.name) for each in candidates]
        return min(ages)[-1]

    async def _ask(self, obj: ManagedCertificate, issuer: CertificateIssuer, now: datetime) -> float:
        """Take a step with the authority; returns seconds until the next."""
        try:
            client = await self._accounts.client(issuer)
        except (AcmeRefused, Terminal) as error:
            return await self._failed(obj, issuer, error, now, ordered=False)
        try:
            return await self._step(obj, issuer, client, now)
        except TimeoutError:
            # The thread of that call still has the client.
            self._accounts.forget(issuer.metadata.name)
            return await self._failed(obj, issuer, too_slow(issuer.spec.server), now)
        except (AcmeRefused, Terminal) as error:
            return await self._failed(obj, issuer, error, now)

    async def _later_s(self, obj: ManagedCertificate, attempt: str, now: datetime) -> float | None:
        """Return the seconds until something is to be done; None: now. ``attempt`` names how it would be tried."""
        tried = parsed_time(obj.status.next_try)
        left_s = (tried - now).total_seconds() if tried is not None else 0.0
        # A later time was written while the clock was wrong.
        if 0 < left_s <= LONGEST_S and obj.status.tried_with == attempt:
            return left_s
        if obj.status.order is not None or not is_current(obj):
            return None
        renew_at = next_renewal(obj, now)
        if renew_at is None or renew_at <= now or not await self._is_there(obj):
            return None
        return min((renew_at - now).total_seconds(), _CHECK_S)

    async def _is_there(self, obj: ManagedCertificate) -> bool:
        """Return whether the Secret holds what the status says."""
        try:
            secret = await self._cluster.get(SECRETS, obj.metadata.namespace, obj.secret_name)
            return certificate_of(obj.secret_name, secret).digest == obj.status.digest
        except (NotFound, ValueError):
            return False

    async def _step(
        self, obj: ManagedCertificate, issuer: CertificateIssuer, client: AcmeClient, now: datetime
    ) -> float:
        order = obj.status.order
        if order is not None and not _is_of(order, obj, client.account):
            order = None
        if order is not None and (adopted := await self._adopted(obj, order.url, now)) is not None:
            await self._write(obj, adopted)
            return 0.0
        if order is None:
            await self._there(obj)
            progress = await self._issuance.begin(obj, issuer, client, now)
        else:
            progress = await self._issuance.advance(obj, order, client, now)
        if progress.made is None:
            await self._write(obj, ordered(obj, progress.order, now, progress.waits))
            return progress.again_s
        digest = await self._store(obj, progress.made)
        chain = progress.made.chain
        window = await in_thread(lambda: client.renewal_window(chain), name="acme-renewal")
        facts = facts_of(chain)
        now = self._clock.now()
        renew_at = renewal_time(facts.not_before, facts.not_after, identity=obj.key, window=window, issued=now)
        await self._write(obj, issued(obj, facts, digest, renew_at, now))
        self._issuance.forget(obj.key)
        await self._solvers.withdraw()
        await self._show(obj, facts.not_after)
        return max(0.0, min((renew_at - now).total_seconds(), _CHECK_S))

    async def _adopted(self, obj: ManagedCertificate, order: str, now: datetime) -> ManagedCertificateStatus | None:
        """Return the status of an order whose certificate is in its Secret already: an earlier process wrote it."""
        try:
            secret: Secret = await self._cluster.get(SECRETS, obj.metadata.namespace, obj.secret_name)
        except NotFound:
            return None
        if secret.annotation(ANNOTATION_ORDER) != order:
            return None
        try:
            certificate = certificate_of(obj.secret_name, secret)
        except ValueError:
            return None
        facts = facts_of(certificate.chain)
        renew_at = renewal_time(facts.not_before, facts.not_after, identity=obj.key, issued=now)
        return issued(obj, facts, certificate.digest, renew_at, now)

    async def _there(self, obj: ManagedCertificate) -> Secret | None:
        """Return the Secret of a certificate, None when there is none.

        Raises:
            Terminal: a Secret of this name was not written for a certificate, and is not overwritten.
        """
        try:
            there = await self._cluster.get(SECRETS, obj.metadata.namespace, obj.secret_name)
        except NotFound:
            return None
        if not there.annotation(ANNOTATION_ORDER):
            raise Terminal(
                f"Secret {obj.metadata.namespace}/{obj.secret_name} exists and was not written by Fairlead; choose "
                "another spec.secretName, or delete the Secret",
                reason=ConditionReason.SECRET_TAKEN,
            )
        return there

    async def _store(self, obj: ManagedCertificate, made: Made) -> str:
        """Write the Secret; returns the digest of what is in it."""
        digest = pair_digest(made.chain, made.key)
        meta = obj.metadata
        there = await self._there(obj)
        version: JSONObject = {} if there is None else {"resourceVersion": there.metadata.resource_version}
        # After the version was read: what a suspended process writes late is refused.
        check_leads(self._leading, f"Secret {meta.namespace}/{obj.secret_name}")
        body: JSONObject = {
            "metadata": {
                "name": obj.secret_name,
                "namespace": meta.namespace,
                **version,
                "annotations": {ANNOTATION_DIGEST: digest, ANNOTATION_ORDER: made.order},
                "ownerReferences": [msgspec.to_builtins(MANAGED_CERTIFICATES.owner(meta))],
            },
            "type": "kubernetes.io/tls",
            "data": {
                "tls.crt": base64.b64encode(made.chain).decode(),
                "tls.key": base64.b64encode(made.key).decode(),
            },
        }
        await self._cluster.apply(SECRETS, body, manager=MANAGER_HUB)
        return digest

    async def _show(self, obj: ManagedCertificate, not_after: datetime) -> None:
        """Write into the Hostnames of its names which certificate is served for them."""
        for host in obj.spec.hosts:
            there = self._inventory.hostnames.get(SYSTEM_NAMESPACE, object_name(host))
            if there is None or there.deleting:
                continue
            secret = f"{obj.metadata.namespace}/{obj.secret_name}"
            certificate = HostnameCertificate(secret, obj.spec.issuer, wire_time(not_after))
            old, new = HostnameStatus(certificate=there.status.certificate), HostnameStatus(certificate=certificate)
            check_leads(self._leading, f"the status of Hostname {there.key}")
            with suppress(Conflict, NotFound):  # it is gone, or another one by now
                await write_status(self._cluster, HOSTNAMES, there, old, new, manager=MANAGER_CERTIFICATES)

    async def _failed(
        self,
        obj: ManagedCertificate,
        issuer: CertificateIssuer,
        error: AcmeRefused | Terminal,
        now: datetime,
        *,
        ordered: bool = True,
    ) -> float:
        of_authority = error if isinstance(error, AcmeRefused) else None
        if of_authority is not None and of_authority.of_account:
            self._accounts.forget(issuer.metadata.name)
            self._accounts.queue.add(issuer.metadata.name)
        keep = of_authority is not None and of_authority.kind in _KEPT_ON and not of_authority.ended
        attempt = attempt_of(issuer)
        failures = obj.status.failures + 1 if obj.status.tried_with == attempt else 1
        delay_s = retry_delay_s(
            failures,
            identity=obj.key,
            retry_after_s=of_authority.after_s if of_authority is not None else None,
            rate_limited=of_authority is not None and of_authority.rate_limited,
            ordered=ordered and (of_authority is None or of_authority.rate_limited or not keep),
        )
        status = failed(
            obj,
            reason_of(error),
            error.sentence,
            delay_s=delay_s,
            now=now,
            keep_order=keep,
            failures=failures,
            tried_with=attempt,
        )
        await self._write(obj, status)
        if not keep:
            self._issuance.forget(obj.key)
            await self._solvers.withdraw()
        return delay_s

    async def _refuse(self, obj: ManagedCertificate, condition: Condition, now: datetime) -> None:
        had_order = obj.status.order is not None
        await self._write(obj, refused(obj, condition, now))
        if had_order:
            self._issuance.forget(obj.key)
            await self._solvers.withdraw()

    async def _write(self, obj: ManagedCertificate, status: ManagedCertificateStatus) -> None:
        old = obj.status
        check_leads(self._leading, f"the status of ManagedCertificate {obj.key}")
        written = await write_status(self._cluster, MANAGED_CERTIFICATES, obj, old, status, manager=MANAGER_HUB)
        if written is not None:
            self._objects.written(written, before=obj)
            changes = transitions(old.conditions, status.conditions)
            good = {"Ready": f"issued by {status.issued_by}, and it ends at {status.not_after}"}
            emit_transitions(self._events, MANAGED_CERTIFICATES, obj, changes, good=good)

    def _changed(self, old: ManagedCertificate | None, new: ManagedCertificate | None) -> None:
        obj = new or old
        if obj is None or (old and new and only_status_changed(old, new)):
            return
        self._queue.add(obj.key)
        for secret in {each.secret_name for each in (old, new) if each is not None}:
            for other in self._inventory.managed.by_index("secret", (obj.metadata.namespace, secret)):
                self._queue.add(other.key)

    def _issuer_changed(self, old: CertificateIssuer | None, new: CertificateIssuer | None) -> None:
        issuer = new or old
        if issuer is None or (old and new and only_status_changed(old, new)):
            return
        self._accounts.queue.add(issuer.metadata.name)
        for obj in self._inventory.managed.by_index("issuer", issuer.metadata.name):
            self._queue.add((obj.metadata.namespace, obj.metadata.name))

    def _owner_changed(self, name: str) -> None:
        """Look at the certificates for a name, or for those that a wildcard covers; empty: at all of them."""
        if not name:
            self._enqueue_all()
        elif self._leading():  # who begins to lead looks at all
            managed = self._inventory.managed
            there = managed.values() if name.startswith(WILDCARD) else managed.indexed("host", name)
            for obj in there:
                if any(host.lower().endswith(name.removeprefix("*")) for host in obj.spec.hosts):
                    self._queue.add(obj.key)

    def _enqueue_all(self) -> None:
        for obj in self._inventory.managed.values():
            self._queue.add((obj.metadata.namespace, obj.metadata.name))


def _is_of(order: CertificateOrder, obj: ManagedCertificate, account: str) -> bool:
    """Return whether an order is for what is asked for now."""
    return order.issuer == account and {each.host for each in order.challenges} == set(obj.spec.hosts)


def is_current(obj: ManagedCertificate) -> bool:
    """Return whether the certificate that is there is the one that is asked for."""
    status = obj.status
    spec = (obj.spec.issuer, tuple(sorted(obj.spec.hosts)))
    return bool(status.digest) and (status.issued_by, status.issued_for) == spec
