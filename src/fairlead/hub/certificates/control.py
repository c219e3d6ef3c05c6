"""The certificates that the hub gets itself: one key, one step, until each is issued, and again when it is due.

In: ManagedCertificates, issuers, Tenants, Hostnames. Out: Secrets of type kubernetes.io/tls next to load balancers, and
statuses. A certificate that is there is served until a new one is in its Secret. Never: a write while another replica
leads, or a key anywhere but in a Secret.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from operator import itemgetter
from typing import TYPE_CHECKING

import msgspec

from fairlead.api.hostname import (
    HOSTNAMES,
    WILDCARD,
    Hostname,
    HostnameCertificate,
    HostnameStatus,
    is_within,
    wildcards_over,
)
from fairlead.api.kubernetes import SECRETS, Secret
from fairlead.api.managedcertificate import (
    MANAGED_CERTIFICATES,
    CertificateIssuer,
    CertificateOrder,
    ManagedCertificate,
    ManagedCertificateStatus,
)
from fairlead.api.meta import JSONObject, only_status_changed, transitions, wire_conditions
from fairlead.api.names import (
    ANNOTATION_DIGEST,
    ANNOTATION_ORDER,
    LABEL_CHALLENGE,
    MANAGER_CERTIFICATES,
    MANAGER_HUB,
    SYSTEM_NAMESPACE,
)
from fairlead.api.tenant import Tenant
from fairlead.api.times import parsed_time, wire_time
from fairlead.errors import Conflict, NotFound, Terminal
from fairlead.hub.certificates.accounts import Accounts, attempt_of, reason_of
from fairlead.hub.certificates.domains import DomainCertificates
from fairlead.hub.certificates.issuance import Issuance, IssuedCertificate
from fairlead.hub.certificates.keys import CertificateFacts, facts_of, in_thread
from fairlead.hub.certificates.order import shown
from fairlead.hub.certificates.problems import AcmeRefused, too_slow
from fairlead.hub.certificates.renewal import LONGEST_S, next_renewal, renewal_time, retry_delay_s, skew_text
from fairlead.hub.certificates.solvers import Solvers
from fairlead.hub.intents.intent import Controller, IntentContext
from fairlead.hub.inventory import Inventory
from fairlead.hub.names.ownership import Domains
from fairlead.hub.names.records import object_name
from fairlead.kube.lease import check_leads
from fairlead.kube.status import emit_transitions, write_status
from fairlead.kube.writes import Overlay
from fairlead.model.condition import Condition, ConditionReason, ConditionType
from fairlead.model.desired import FairOrder
from fairlead.runtime.queue import KeyedQueue
from fairlead.translate.certificates import certificate_of, pair_digest
from fairlead.translate.tenant import domain_holders, held_domains

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

    async def _store(self, obj: ManagedCertificate, made: IssuedCertificate) -> str:
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


#: Returns the member that has a name, None when no Hostname says who has it.
OwnerOf = Callable[[str], str | None]
#: Says whether a name is in a domain that belongs to the member alone.
Granted = Callable[[str], bool]


def refusal(
    obj: ManagedCertificate, issuer: CertificateIssuer | None, member: str, owner_of: OwnerOf, granted: Granted
) -> Condition | None:
    """Return why ``member`` may not have this certificate, None when it may."""
    name = obj.spec.issuer
    if issuer is None or issuer.deleting:
        step = "correct the annotation fairlead.dev/certificate-issuer, or ask the operator for one"
        return _no(ConditionReason.NO_SUCH_ISSUER, f"there is no CertificateIssuer {name} at the hub: {step}")
    spec = issuer.spec
    if not member or (spec.tenants and member not in spec.tenants):
        text = f"CertificateIssuer {name} is not for this member: choose another one, or ask the operator"
        return _no(ConditionReason.NOT_ALLOWED, text)
    for host in obj.spec.hosts:
        if spec.domains and not any(is_within(host, domain) for domain in spec.domains):
            text = f"CertificateIssuer {name} does not issue for {host}: choose another one, or ask the operator"
            return _no(ConditionReason.NOT_ALLOWED, text)
        owner = owner_of(host)
        if owner is not None and owner != member:
            text = f"{host} is taken: another object asked for it first; choose another name, or ask the operator"
            return _no(ConditionReason.NOT_ALLOWED, text)
        if owner is None and proven_by_us(host, issuer):
            text = (
                f"{host} needs DNS01, and no Hostname gives it to this member yet: it is ordered once the member owns "
                "the name"
            )
            return _no(ConditionReason.NOT_ALLOWED, text)
        if host.startswith("*.") and not granted(host) and not (spec.tenants and spec.domains):
            text = (
                f"{host}: a certificate for a wildcard is good for names of other members, too: name the hosts one by "
                f"one, or ask the operator to add {host[2:]} to spec.domains of the Tenant"
            )
            return _no(ConditionReason.NOT_ALLOWED, text)
    return None


def secret_taken(obj: ManagedCertificate, owner: str) -> Condition:
    """Return why ``obj`` is not ordered: ``owner``, an older certificate, writes the Secret that it names."""
    text = (
        f"Secret {obj.secret_name} belongs to ManagedCertificate {owner}, which is older: choose another "
        "spec.secretName, or delete that certificate"
    )
    return _no(ConditionReason.SECRET_TAKEN, text)


def proven_by_us(host: str, issuer: CertificateIssuer) -> bool:
    """Return whether the hub's own DNS would be what proves a name: for any member, it would succeed."""
    return host.startswith("*.") or issuer.spec.solvers[0] == "DNS01"


def _no(reason: ConditionReason, message: str) -> Condition:
    return Condition(ConditionType.READY, False, reason, message)


class Owners:
    """The owners of names."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory
        self._members: dict[str, dict[str, str]] = {}
        #: Made of all Tenants when it is asked for: a member may have thousands of wildcards.
        self._domains: Domains | None = None

    def watch(self, changed: Callable[[str], None]) -> None:
        """Follow the Hostnames; ``changed`` is called with a name that got another owner, empty: any name may have."""

        def follow(old: Hostname | None, new: Hostname | None) -> None:
            before = _owned(old)
            after = _owned(new)
            if before == after:
                return
            if old is not None and before is not None:
                self._members.get(before[0], {}).pop(old.metadata.name, None)
            if new is not None and after is not None:
                self._members.setdefault(after[0], {})[new.metadata.name] = after[1]
            for name in {each[0] for each in (before, after) if each is not None}:
                changed(name)

        def follow_domains(old: Tenant | None, new: Tenant | None) -> None:
            self._domains = None
            if (old is None) != (new is None) or held_domains(old) != held_domains(new):
                changed("")

        self._inventory.hostnames.on_change(follow)
        self._inventory.tenants.on_change(follow_domains)

    def of(self, host: str) -> str | None:
        """Return the member that has ``host``, None when none is known to have it."""
        for name in (host.lower(), *wildcards_over(host.lower())):
            members = self._members.get(name)
            if members:
                return members[min(members)]
        if not host.startswith(WILDCARD):
            return None
        holder = domain_holders(self._inventory.all_tenants()).get(host.removeprefix(WILDCARD).lower())
        return holder.metadata.name if holder is not None else None

    def granted_to(self, space: str) -> Callable[[str], bool]:
        """Return what says whether a name is in a domain of the member with namespace ``space``."""

        def granted(host: str) -> bool:
            if self._domains is None:
                self._domains = Domains(self._inventory.all_tenants())
            return self._domains.gives(host.lower(), space)

        return granted


def _owned(hostname: Hostname | None) -> tuple[str, str] | None:
    """Return the name and the member of a Hostname that is owned; challenges are no names of users."""
    if hostname is None or hostname.deleting or hostname.label(LABEL_CHALLENGE) or not hostname.spec.owner.member:
        return None
    return hostname.spec.host.lower(), hostname.spec.owner.member


def ordered(
    obj: ManagedCertificate, order: CertificateOrder | None, now: datetime, waits: str = ""
) -> ManagedCertificateStatus:
    """Return the status while an order is under way; ``waits`` says what for."""
    status = msgspec.structs.replace(obj.status, order=order, state="Ordering", next_try="")
    if obj.status.failures or not _has_no_certificate(obj, now):
        return _observed(obj, status)
    text = f"{shown(obj.spec.hosts)} is ordered; {waits or 'the authority is validating it'}"
    return _with(obj, status, now, [_ready(False, ConditionReason.PENDING, text)])


def issued(
    obj: ManagedCertificate, facts: CertificateFacts, digest: str, renew_at: datetime, now: datetime
) -> ManagedCertificateStatus:
    """Return the status once a certificate is in its Secret."""
    status = msgspec.structs.replace(
        obj.status,
        state="Issued",
        digest=digest,
        issued_by=obj.spec.issuer,
        issued_for=tuple(sorted(obj.spec.hosts)),
        serial=facts.serial,
        not_before=wire_time(facts.not_before),
        not_after=wire_time(facts.not_after),
        renew_at=wire_time(renew_at),
        issued_at=wire_time(now),
        failures=0,
        next_try="",
        tried_with="",
        order=None,
    )
    conditions = [_ready(True, ConditionReason.ISSUED, f"it ends at {wire_time(facts.not_after)}")]
    if skew := skew_text(facts.not_before, facts.not_after, now):
        conditions.append(Condition(ConditionType.CLOCK_SKEWED, True, ConditionReason.CLOCK_SKEW, skew))
    return _with(obj, status, now, conditions)


def failed(
    obj: ManagedCertificate,
    reason: ConditionReason,
    sentence: str,
    *,
    delay_s: float,
    now: datetime,
    keep_order: bool,
    failures: int,
    tried_with: str,
) -> ManagedCertificateStatus:
    """Return the status after an order has failed, or could not be made; the next one is tried in ``delay_s``.

    ``failures``: how often in a row with what ``tried_with`` names.
    """
    status = msgspec.structs.replace(
        obj.status,
        state="Failing",
        failures=failures,
        tried_with=tried_with,
        next_try=wire_time(now + timedelta(seconds=delay_s)),
        order=obj.status.order if keep_order else None,
    )
    if _has_no_certificate(obj, now):
        return _with(obj, status, now, [_ready(False, reason, sentence)])
    ready = _ready(True, ConditionReason.ISSUED, f"it ends at {obj.status.not_after}")
    return _with(obj, status, now, [ready, Condition(ConditionType.STALE, True, reason, sentence)])


def without_certificate(obj: ManagedCertificate) -> ManagedCertificate:
    """Return a certificate whose Secret holds that of another object."""
    return msgspec.structs.replace(obj, status=msgspec.structs.replace(obj.status, digest=""))


def refused(obj: ManagedCertificate, condition: Condition, now: datetime) -> ManagedCertificateStatus:
    """Return the status of one that may not be ordered; a certificate that is there is served on."""
    if _has_no_certificate(obj, now):
        return _with(obj, msgspec.structs.replace(obj.status, state="Pending", order=None), now, [condition])
    ready = _ready(True, ConditionReason.ISSUED, f"it ends at {obj.status.not_after}")
    stale = msgspec.structs.replace(condition, type=ConditionType.STALE, status=True)
    return _with(obj, msgspec.structs.replace(obj.status, order=None), now, [ready, stale])


def _has_no_certificate(obj: ManagedCertificate, now: datetime) -> bool:
    ends = parsed_time(obj.status.not_after)
    return not obj.status.digest or ends is None or ends <= now


def _ready(status: bool, reason: ConditionReason, message: str) -> Condition:
    return Condition(ConditionType.READY, status, reason, message)


def _observed(obj: ManagedCertificate, status: ManagedCertificateStatus) -> ManagedCertificateStatus:
    return msgspec.structs.replace(status, observed_generation=obj.metadata.generation)


def _with(
    obj: ManagedCertificate, status: ManagedCertificateStatus, now: datetime, conditions: Sequence[Condition]
) -> ManagedCertificateStatus:
    generation = obj.metadata.generation
    made = wire_conditions(conditions, obj.status.conditions, generation=generation, now=wire_time(now))
    return _observed(obj, msgspec.structs.replace(status, conditions=made))
