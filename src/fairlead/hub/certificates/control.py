"""The certificates that the hub requests: ManagedCertificates, issuers, and the wildcards of the members' domains.

    ManagedCertificate   one step at a time until it is issued, and again when it is due
    CertificateIssuer    one ACME account; its key is in a Secret before it is used
    domain of a Tenant   a ManagedCertificate for its wildcard, while an Ingress or Gateway of a class with an issuer
                         needs it, and a DNSZone and a DNS01 issuer for this member and domain exist. An unneeded one is
                         deleted with its Secret, but not while an object cannot be read

In: ManagedCertificates, issuers, Tenants, Hostnames, classes, zones. Out: TLS Secrets in the namespaces of load
balancers, statuses, ManagedCertificates for domains. The existing certificate is served until a new one is in its
Secret. Never: a write while another replica leads, or a key anywhere but in a Secret.
"""

from __future__ import annotations

import base64
import binascii
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from operator import itemgetter
from typing import TYPE_CHECKING

import msgspec

from fairlead.api.hostname import (
    DNS_ZONES,
    HOSTNAMES,
    WILDCARD,
    DNSZone,
    Hostname,
    HostnameCertificate,
    HostnameStatus,
    is_within,
    wildcards_over,
)
from fairlead.api.httploadbalancer import HTTP_LOAD_BALANCERS, HTTPLoadBalancer
from fairlead.api.kubernetes import SECRETS, Secret
from fairlead.api.loadbalancerclass import LoadBalancerClass
from fairlead.api.managedcertificate import (
    CERTIFICATE_ISSUERS,
    MANAGED_CERTIFICATES,
    CertificateIssuer,
    CertificateIssuerStatus,
    CertificateOrder,
    ManagedCertificate,
    ManagedCertificateStatus,
)
from fairlead.api.meta import JSONObject, only_status_changed, transitions, wire_conditions, without_status
from fairlead.api.names import (
    ANNOTATION_CERTIFICATE_ISSUER,
    ANNOTATION_DIGEST,
    ANNOTATION_ORDER,
    DEFAULT_CLASS,
    LABEL_CHALLENGE,
    LABEL_MANAGED_BY,
    MANAGED_BY,
    MANAGER_CERTIFICATES,
    MANAGER_HUB,
    SYSTEM_NAMESPACE,
    short_hash,
)
from fairlead.api.tenant import Tenant
from fairlead.api.times import parsed_time, wire_time
from fairlead.errors import AlreadyExists, Conflict, NotFound, Terminal
from fairlead.hub.certificates.issuance import (
    CertificateFacts,
    Issuance,
    IssuedCertificate,
    Solvers,
    facts_of,
    in_thread,
    is_account_key,
    new_key,
)
from fairlead.hub.certificates.order import (
    LONGEST_S,
    AcmeRefused,
    next_renewal,
    renewal_time,
    retry_delay_s,
    shown,
    skew_text,
    too_slow,
)
from fairlead.hub.intents.intent import Controller, IntentContext
from fairlead.hub.inventory import Inventory
from fairlead.hub.names.ownership import Domains, object_name
from fairlead.kube.cache import WatchCache
from fairlead.kube.lease import check_leads
from fairlead.kube.writes import Overlay, emit_transitions, write_status
from fairlead.model.condition import Condition, ConditionReason, ConditionType, reason_from
from fairlead.model.desired import FairOrder
from fairlead.runtime.queue import KeyedLock, KeyedQueue
from fairlead.translate.certificates import Certificate, certificate_of, pair_digest
from fairlead.translate.generated import domain_certificate, is_domain_certificate
from fairlead.translate.hostname import longest_suffix
from fairlead.translate.tenant import domain_holders, held_domains

if TYPE_CHECKING:
    from fairlead.hub.certificates.client import AcmeClient, ExternalKey

Key = tuple[str, str]
#: Returns the member that owns a name, None when it is unknown.
OwnerOf = Callable[[str], str | None]
#: Returns whether a name is in a domain that belongs to the member alone.
Granted = Callable[[str], bool]
READY = ConditionType.READY
_WORKERS = 16
#: How many certificates of one issuer are processed at once, so that an authority that hangs does not delay others.
_OF_ONE_ISSUER = 2
#: How often a certificate above the limit of its member is checked again.
_LIMITED_S = 30.0
#: How often a Secret is compared with the status, and the authority is asked for its renewal window.
_CHECK_S = 6 * 3600.0
#: The errors of an authority after which the order is continued.
_ORDER_KEPT_ON = frozenset({"", "serverInternal", "rateLimited"})
#: The origins of load balancers that have generated names.
_ORIGINS_WITH_NAME = frozenset({"IngressClass", "Gateway"})
_KEY_ENTRY = "tls.key"
_HMAC_ENTRY = "hmac"


class CertificateControl:
    """All certificates of one hub; ``unrecorded`` returns the member that owns a name without a Hostname."""

    def __init__(self, context: IntentContext, unrecorded: OwnerOf = lambda _host: None) -> None:
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
        self._owners = Owners(context.inventory, unrecorded)
        self._issuance = Issuance(self._solvers, self._owners.is_shared)
        self._domains = DomainCertificates(context)
        self._queue: KeyedQueue[Key] = KeyedQueue(clock=context.clock, group_of=itemgetter(0))
        #: By issuer: the certificates in progress, and those that wait for a turn.
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
        self._inventory.issuers.on_object(self._issuer_changed, part=without_status)
        self._owners.watch(self.owner_changed)
        self._domains.watch()

    def lead(self) -> None:
        """Reconcile everything: this replica has begun to lead."""
        for issuer in self._inventory.issuers.values():
            self._accounts.queue.add(issuer.metadata.name)
        self._enqueue_all()
        self._domains.lead()

    async def reconcile(self, key: Key) -> float | None:
        """Take the next step for one certificate; return the seconds until it is due again."""
        try:
            return await self._reconcile(key)
        finally:
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
            # The Secret holds the certificate of another object.
            without = msgspec.structs.replace(obj, status=msgspec.structs.replace(obj.status, digest=""))
            await self._refuse(without, secret_taken(obj, first), now)
            return None
        if tenant is not None and (above := above_limit(obj, self._objects.by_index("namespace", key[0]), tenant)):
            await self._refuse(obj, above, now)
            return _LIMITED_S
        owners = self._owners
        not_allowed = refusal(obj, issuer, member, owners.of, owners.granted_to(key[0]), owners.is_shared)
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
        """Return the certificate that owns the Secret of ``obj``: the oldest that names it, issued ones first."""
        users = self._objects.by_index("secret", (obj.metadata.namespace, obj.secret_name))
        candidates = [user for user in users if not user.deleting] or [obj]
        first = min(candidates, key=lambda user: (user.metadata.creation_timestamp, not user.status.digest, user.key))
        return first.metadata.name

    async def _ask(self, obj: ManagedCertificate, issuer: CertificateIssuer, now: datetime) -> float:
        """Take a step with the authority; return the seconds until the next."""
        try:
            client = await self._accounts.client(issuer)
        except (AcmeRefused, Terminal) as error:
            return await self._failed(obj, issuer, error, now, ordered=False)
        try:
            return await self._step(obj, issuer, client, now)
        except TimeoutError:
            # The thread of that call still uses the client.
            self._accounts.forget(issuer.metadata.name)
            return await self._failed(obj, issuer, too_slow(issuer.spec.server), now)
        except (AcmeRefused, Terminal) as error:
            return await self._failed(obj, issuer, error, now)

    async def _later_s(self, obj: ManagedCertificate, attempt: str, now: datetime) -> float | None:
        """Return the seconds until the next step is due, None for now. ``attempt`` identifies issuer and solvers."""
        next_try = parsed_time(obj.status.next_try)
        left_s = (next_try - now).total_seconds() if next_try is not None else 0.0
        # A later time was written while the clock was wrong.
        if 0 < left_s <= LONGEST_S and obj.status.tried_with == attempt:
            return left_s
        if obj.status.order is not None or not is_current(obj):
            return None
        renew_at = next_renewal(obj, now)
        if renew_at is None or renew_at <= now:
            return None
        certificate = _certificate_in(await self._secret(obj))
        if certificate is None or certificate.digest != obj.status.digest:
            return None
        return min((renew_at - now).total_seconds(), _CHECK_S)

    async def _secret(self, obj: ManagedCertificate) -> Secret | None:
        """Return the Secret of a certificate, None when there is none."""
        try:
            return await self._cluster.get(SECRETS, obj.metadata.namespace, obj.secret_name)
        except NotFound:
            return None

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
            before = _certificate_in(await self._writable_secret(obj))
            replaces = before.chain if before is not None and obj.status.issued_by == obj.spec.issuer else b""
            progress = await self._issuance.begin(obj, issuer, client, now, replaces=replaces)
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
        # Write into the Hostnames which certificate is served for them.
        secret = f"{obj.metadata.namespace}/{obj.secret_name}"
        new = HostnameStatus(certificate=HostnameCertificate(secret, obj.spec.issuer, wire_time(facts.not_after)))
        for host in obj.spec.hosts:
            hostname = self._inventory.hostnames.get(SYSTEM_NAMESPACE, object_name(host))
            if hostname is None or hostname.deleting:
                continue
            old = HostnameStatus(certificate=hostname.status.certificate)
            check_leads(self._leading, f"the status of Hostname {hostname.key}")
            with suppress(Conflict, NotFound):  # deleted or replaced meanwhile
                await write_status(self._cluster, HOSTNAMES, hostname, old, new, manager=MANAGER_CERTIFICATES)
        return max(0.0, min((renew_at - now).total_seconds(), _CHECK_S))

    async def _adopted(self, obj: ManagedCertificate, order: str, now: datetime) -> ManagedCertificateStatus | None:
        """Return the status of an order whose certificate an earlier process has already written into the Secret."""
        secret = await self._secret(obj)
        certificate = _certificate_in(secret)
        if certificate is None or secret is None or secret.annotation(ANNOTATION_ORDER) != order:
            return None
        facts = facts_of(certificate.chain)
        renew_at = renewal_time(facts.not_before, facts.not_after, identity=obj.key, issued=now)
        return issued(obj, facts, certificate.digest, renew_at, now)

    async def _writable_secret(self, obj: ManagedCertificate) -> Secret | None:
        """Return the Secret of a certificate, None if it does not exist.

        Raises:
            Terminal: the Secret was not written for a certificate, and is not overwritten.
        """
        secret = await self._secret(obj)
        if secret is not None and not secret.annotation(ANNOTATION_ORDER):
            raise Terminal(
                f"Secret {obj.metadata.namespace}/{obj.secret_name} exists and was not written by Fairlead; choose "
                "another spec.secretName, or delete the Secret",
                reason=ConditionReason.SECRET_TAKEN,
            )
        return secret

    async def _store(self, obj: ManagedCertificate, made: IssuedCertificate) -> str:
        """Write the Secret; return the digest of its content."""
        digest = pair_digest(made.chain, made.key)
        meta = obj.metadata
        secret = await self._writable_secret(obj)
        version: JSONObject = {} if secret is None else {"resourceVersion": secret.metadata.resource_version}
        # After the version was read, so that a late write of a suspended process is rejected.
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
            "data": {"tls.crt": base64.b64encode(made.chain).decode(), "tls.key": base64.b64encode(made.key).decode()},
        }
        await self._cluster.apply(SECRETS, body, manager=MANAGER_HUB)
        return digest

    async def _failed(
        self,
        obj: ManagedCertificate,
        issuer: CertificateIssuer,
        error: AcmeRefused | Terminal,
        now: datetime,
        *,
        ordered: bool = True,
    ) -> float:
        refusal = error if isinstance(error, AcmeRefused) else None
        if refusal is not None and refusal.of_account:
            self._accounts.forget(issuer.metadata.name)
            self._accounts.queue.add(issuer.metadata.name)
        keep = refusal is not None and refusal.kind in _ORDER_KEPT_ON and not refusal.ended
        rate_limited = refusal is not None and refusal.rate_limited
        attempt = attempt_of(issuer)
        failures = obj.status.failures + 1 if obj.status.tried_with == attempt else 1
        delay_s = retry_delay_s(
            failures,
            identity=obj.key,
            retry_after_s=error.after_s,
            rate_limited=rate_limited,
            ordered=ordered and (rate_limited or not keep),
        )
        status = msgspec.structs.replace(
            obj.status,
            state="Failing",
            failures=failures,
            tried_with=attempt,
            next_try=wire_time(now + timedelta(seconds=delay_s)),
            order=obj.status.order if keep else None,
        )
        await self._write(obj, failed(obj, status, Condition(READY, False, reason_of(error), error.sentence), now))
        if not keep:
            self._issuance.forget(obj.key)
            await self._solvers.withdraw()
        return delay_s

    async def _refuse(self, obj: ManagedCertificate, condition: Condition, now: datetime) -> None:
        state = "Pending" if _has_no_certificate(obj, now) else obj.status.state
        status = msgspec.structs.replace(obj.status, state=state, order=None)
        await self._write(obj, failed(obj, status, condition, now))
        if obj.status.order is not None:
            self._issuance.forget(obj.key)
            await self._solvers.withdraw()

    async def _write(self, obj: ManagedCertificate, status: ManagedCertificateStatus) -> None:
        old = obj.status
        check_leads(self._leading, f"the status of ManagedCertificate {obj.key}")
        written = await write_status(self._cluster, MANAGED_CERTIFICATES, obj, old, status, manager=MANAGER_HUB)
        if written is not None:
            self._objects.written(written, before=obj)
            changes = transitions(old.conditions, status.conditions)
            good = {"Ready": f"issued by {status.issued_by}, expires at {status.not_after}"}
            emit_transitions(self._events, MANAGED_CERTIFICATES, obj, changes, good=good)

    def _changed(self, old: ManagedCertificate | None, new: ManagedCertificate | None) -> None:
        obj = new or old
        if obj is None or (old and new and only_status_changed(old, new)):
            return
        self._queue.add(obj.key)
        for secret in {version.secret_name for version in (old, new) if version is not None}:
            for other in self._inventory.managed.by_index("secret", (obj.metadata.namespace, secret)):
                self._queue.add(other.key)

    def _issuer_changed(self, issuer: CertificateIssuer) -> None:
        self._accounts.queue.add(issuer.metadata.name)
        for obj in self._inventory.managed.by_index("issuer", issuer.metadata.name):
            self._queue.add((obj.metadata.namespace, obj.metadata.name))

    def owner_changed(self, name: str) -> None:
        """Reconcile the certificates for a name, or for all names that a wildcard covers; all certificates if empty."""
        if not name:
            self._enqueue_all()
        elif self._leading():  # a new leader reconciles all of them
            managed = self._inventory.managed
            for obj in managed.values() if name.startswith(WILDCARD) else managed.indexed("host", name):
                if any(host.lower().endswith(name.removeprefix("*")) for host in obj.spec.hosts):
                    self._queue.add(obj.key)

    def _enqueue_all(self) -> None:
        for obj in self._inventory.managed.values():
            self._queue.add((obj.metadata.namespace, obj.metadata.name))


def _certificate_in(secret: Secret | None) -> Certificate | None:
    """Return the certificate in a Secret, None without a valid one."""
    try:
        return certificate_of(secret.metadata.name, secret) if secret is not None else None
    except ValueError:
        return None


def _is_of(order: CertificateOrder, obj: ManagedCertificate, account: str) -> bool:
    """Return whether an order matches the present spec."""
    return order.issuer == account and {challenge.host for challenge in order.challenges} == set(obj.spec.hosts)


def is_current(obj: ManagedCertificate) -> bool:
    """Return whether the existing certificate matches the present spec."""
    status = obj.status
    spec = (obj.spec.issuer, tuple(sorted(obj.spec.hosts)))
    return bool(status.digest) and (status.issued_by, status.issued_for) == spec


def refusal(
    obj: ManagedCertificate,
    issuer: CertificateIssuer | None,
    member: str,
    owner_of: OwnerOf,
    granted: Granted,
    is_shared: Callable[[str], bool] = lambda _host: False,
) -> Condition | None:
    """Return why ``member`` may not have this certificate, None when it may.

    ``is_shared`` returns whether other hubs may have addresses of a name.
    """
    name = obj.spec.issuer
    if issuer is None or issuer.deleting:
        step = "correct the annotation fairlead.dev/certificate-issuer, or ask the operator for one"
        text = f"there is no CertificateIssuer {name} at the hub: {step}"
        return Condition(READY, False, ConditionReason.NO_SUCH_ISSUER, text)
    spec = issuer.spec
    if not member or (spec.tenants and member not in spec.tenants):
        return _not_allowed(f"CertificateIssuer {name} is not for this member: choose another one, or ask the operator")
    for host in obj.spec.hosts:
        if spec.domains and not any(is_within(host, domain) for domain in spec.domains):
            return _not_allowed(
                f"CertificateIssuer {name} does not issue for {host}: choose another one, or ask the operator"
            )
        owner = owner_of(host)
        if owner is not None and owner != member:
            return _not_allowed(f"{host} is taken by another object: choose another name, or ask the operator")
        if owner is None and (is_shared(host) or proven_by_us(host, issuer)):
            return _not_allowed(
                f"{host} needs DNS01, and no Hostname gives it to this member yet: the hub orders it once the member "
                "owns the name"
            )
        if host.startswith("*.") and not granted(host) and not (spec.tenants and spec.domains):
            return _not_allowed(
                f"{host}: a wildcard certificate would be valid for names of other members. List the hosts one by one, "
                f"or ask the operator to add {host[2:]} to spec.domains of the Tenant"
            )
    return None


def above_limit(
    obj: ManagedCertificate, certificates: Iterable[ManagedCertificate], tenant: Tenant
) -> Condition | None:
    """Return why a certificate of a member with these ``certificates`` exceeds a limit, None if it does not.

    Issued certificates count first, and are renewed regardless of the limit. Certificates of generated names do not
    count, nor do certificates that wait for the limit of a sub-tenant count towards the member's limit.
    """
    limited = any(limits.max_certificates for _, _, limits, _ in tenant.limits_for(obj.subtenant))
    if not limited or obj.status.digest or is_domain_certificate(obj.metadata.name):
        return None
    counts = Counter[str]()
    for other in sorted(
        (other for other in certificates if not other.deleting and not is_domain_certificate(other.metadata.name)),
        key=lambda other: (not other.status.digest, other.metadata.creation_timestamp or "", other.metadata.name),
    ):
        for part, who, limits, field in tenant.limits_for(other.subtenant):
            if not other.status.digest and 0 < limits.max_certificates <= counts[part]:
                if other.key != obj.key:
                    break
                text = (
                    f"{who} has {counts[part]} certificates, and {field}.maxCertificates of its Tenant allows "
                    f"{limits.max_certificates}: delete others, or ask the operator for more"
                )
                return Condition(READY, False, ConditionReason.QUOTA_EXCEEDED, text)
        else:
            counts.update({"", other.subtenant})
    return None


def secret_taken(obj: ManagedCertificate, owner: str) -> Condition:
    """Return why ``obj`` is not ordered: ``owner``, an older certificate, writes the same Secret."""
    text = (
        f"Secret {obj.secret_name} belongs to ManagedCertificate {owner}, which is older: choose another "
        "spec.secretName, or delete that certificate"
    )
    return Condition(READY, False, ConditionReason.SECRET_TAKEN, text)


def proven_by_us(host: str, issuer: CertificateIssuer) -> bool:
    """Return whether the hub's own DNS proves a name; such a proof would succeed for any member."""
    return host.startswith("*.") or issuer.spec.solvers[0] == "DNS01"


def _not_allowed(message: str) -> Condition:
    return Condition(READY, False, ConditionReason.NOT_ALLOWED, message)


class Owners:
    """The owners of names; ``unrecorded`` returns the owner of a name without a Hostname."""

    def __init__(self, inventory: Inventory, unrecorded: OwnerOf = lambda _host: None) -> None:
        self._inventory = inventory
        self._unrecorded = unrecorded
        self._members: dict[str, dict[str, str]] = {}
        #: Built from all Tenants on demand: a member may have thousands of wildcards.
        self._domains: Domains | None = None

    def watch(self, changed: Callable[[str], None]) -> None:
        """Watch the Hostnames; ``changed`` gets each name whose owner changed, empty if any owner may have changed."""

        def follow(old: Hostname | None, new: Hostname | None) -> None:
            before = _owned(old)
            after = _owned(new)
            if before == after:
                return
            if old is not None and before is not None:
                self._members.get(before[0], {}).pop(old.metadata.name, None)
            if new is not None and after is not None:
                self._members.setdefault(after[0], {})[new.metadata.name] = after[1]
            for name in {owned[0] for owned in (before, after) if owned is not None}:
                changed(name)

        def follow_domains(old: Tenant | None, new: Tenant | None) -> None:
            self._domains = None
            if (old is None) != (new is None) or held_domains(old) != held_domains(new):
                changed("")

        self._inventory.hostnames.on_change(follow)
        self._inventory.tenants.on_change(follow_domains)

    def is_shared(self, host: str) -> bool:
        """Return whether other hubs may have addresses of ``host``."""
        zones: WatchCache[DNSZone] | None = self._inventory.caches.get(DNS_ZONES.plural)
        zone = longest_suffix(host, zones.values()) if zones is not None else None
        return zone is not None and zone.spec.peer_lease_seconds > 0

    def of(self, host: str) -> str | None:
        """Return the member that owns ``host``, None when the owner is unknown."""
        for name in (host.lower(), *wildcards_over(host.lower())):
            members = self._members.get(name)
            if members:
                return members[min(members)]
            if (member := self._unrecorded(name)) is not None:
                return member
        if not host.startswith(WILDCARD):
            return None
        holder = domain_holders(self._inventory.all_tenants()).get(host.removeprefix(WILDCARD).lower())
        return holder.metadata.name if holder is not None else None

    def granted_to(self, space: str) -> Callable[[str], bool]:
        """Return a predicate: whether a name is in a domain of the member with namespace ``space``."""

        def granted(host: str) -> bool:
            if self._domains is None:
                self._domains = Domains(self._inventory.all_tenants())
            return self._domains.gives(host.lower(), space)

        return granted


def _owned(hostname: Hostname | None) -> tuple[str, str] | None:
    """Return the name and the member of a Hostname with an owner; None for the Hostname of a challenge."""
    if hostname is None or hostname.deleting or hostname.label(LABEL_CHALLENGE) or not hostname.spec.owner.member:
        return None
    return hostname.spec.host.lower(), hostname.spec.owner.member


def ordered(
    obj: ManagedCertificate, order: CertificateOrder | None, now: datetime, waits: str = ""
) -> ManagedCertificateStatus:
    """Return the status while an order is under way; ``waits``: what it waits for."""
    status = msgspec.structs.replace(obj.status, order=order, state="Ordering", next_try="")
    if obj.status.failures or not _has_no_certificate(obj, now):
        # Ready describes the existing certificate, for the present hosts or for those before a change.
        seen = obj.metadata.generation if is_current(obj) else obj.status.observed_generation
        return msgspec.structs.replace(status, observed_generation=seen)
    text = f"{shown(obj.spec.hosts)} is ordered; {waits or 'the authority is validating it'}"
    return _with(obj, status, now, [Condition(READY, False, ConditionReason.PENDING, text)])


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
    conditions = [_issued_until(status)]
    if skew := skew_text(facts.not_before, facts.not_after, now):
        conditions.append(Condition(ConditionType.CLOCK_SKEWED, True, ConditionReason.CLOCK_SKEW, skew))
    return _with(obj, status, now, conditions)


def failed(
    obj: ManagedCertificate, status: ManagedCertificateStatus, condition: Condition, now: datetime
) -> ManagedCertificateStatus:
    """Return ``status`` with the ``condition`` that says why there is no new certificate: Ready, or else Stale.

    A valid certificate is served until it expires.
    """
    if _has_no_certificate(obj, now):
        return _with(obj, status, now, [condition])
    stale = msgspec.structs.replace(condition, type=ConditionType.STALE, status=True)
    ready = _issued_until(obj.status) if is_current(obj) else msgspec.structs.replace(condition, status=None)
    return _with(obj, status, now, [ready, stale])


def _has_no_certificate(obj: ManagedCertificate, now: datetime) -> bool:
    not_after = parsed_time(obj.status.not_after)
    return not obj.status.digest or not_after is None or not_after <= now


def _issued_until(status: ManagedCertificateStatus) -> Condition:
    return Condition(READY, True, ConditionReason.ISSUED, f"expires at {status.not_after}")


def _with(
    obj: ManagedCertificate, status: ManagedCertificateStatus, now: datetime, conditions: Sequence[Condition]
) -> ManagedCertificateStatus:
    generation = obj.metadata.generation
    wire = wire_conditions(conditions, obj.status.conditions, generation=generation, now=wire_time(now))
    return msgspec.structs.replace(status, conditions=wire, observed_generation=generation)


class DomainCertificates:
    """Requests the certificates of the domains of members, by namespace."""

    def __init__(self, context: IntentContext) -> None:
        self._cluster = context.cluster
        self._inventory = context.inventory
        self._leading = context.leading
        self.queue: KeyedQueue[str] = KeyedQueue(clock=context.clock)

    def watch(self) -> None:
        """Subscribe to everything that decides whether a certificate is needed."""
        inventory = self._inventory
        # A domain may belong to another member now.
        inventory.tenants.on_object(lambda _tenant: self.lead(), part=lambda obj: (obj.name_domains, obj.accepted))
        load_balancers: WatchCache[HTTPLoadBalancer] = inventory.intents[HTTP_LOAD_BALANCERS.kind].cache
        load_balancers.on_object(lambda obj: self.queue.add(obj.metadata.namespace), part=lambda obj: obj.class_name)
        inventory.classes.on_change(self._class_changed)
        inventory.issuers.on_object(lambda _issuer: self.lead(), part=without_status)
        if (zones := self._zones()) is not None:
            zones.on_object(lambda _zone: self.lead(), part=without_status)

    def lead(self) -> None:
        """Reconcile every member: this replica has begun to lead."""
        for tenant in self._inventory.tenants.values():
            self.queue.add(tenant.namespace)

    async def reconcile(self, namespace: str) -> None:
        """Request the certificates that one member needs, and delete those that it no longer needs."""
        tenant = self._inventory.tenant_of(namespace)
        if tenant is None or tenant.deleting or not self._leading() or self._inventory.region:
            return
        needed = self._needed(tenant)
        present = {
            obj.metadata.name: obj.spec
            for obj in self._inventory.managed.by_index("namespace", namespace)
            if is_domain_certificate(obj.metadata.name) and not obj.deleting
        }
        for name, (domain, issuer) in needed.items():
            spec = present.get(name)
            same = spec is not None and (spec.hosts, spec.issuer) == ((f"{WILDCARD}{domain}",), issuer)
            if not same and self._issues(issuer, tenant, domain):
                meta = tenant.metadata
                body: JSONObject = {
                    "metadata": {"name": name, "namespace": tenant.namespace, "labels": {LABEL_MANAGED_BY: MANAGED_BY}},
                    "spec": {
                        "hosts": [f"{WILDCARD}{domain}"],
                        "issuer": issuer,
                        "askedBy": [{"kind": "Tenant", "name": meta.name, "uid": meta.uid}],
                    },
                }
                check_leads(self._leading, f"ManagedCertificate {tenant.namespace}/{name}")
                await self._cluster.apply(MANAGED_CERTIFICATES, body, manager=MANAGER_CERTIFICATES)
        for name in sorted(present.keys() - needed.keys()) if not self._inventory.problem else ():
            check_leads(self._leading, f"ManagedCertificate {namespace}/{name}")
            with suppress(NotFound):
                await self._cluster.delete(MANAGED_CERTIFICATES, namespace, name)

    def _needed(self, tenant: Tenant) -> dict[str, tuple[str, str]]:
        """Return the domain and the issuer of each certificate that is needed, by name."""
        holders = domain_holders(self._inventory.all_tenants())
        domains = [
            domain for domain in tenant.name_domains if domain and holders[domain].metadata.name == tenant.metadata.name
        ]
        if not domains:
            return {}
        issuers: set[str] = set()
        objects = self._inventory.intents[HTTP_LOAD_BALANCERS.kind]
        for obj in objects.cache.by_index("namespace", tenant.namespace):
            if obj.spec.origin.kind in _ORIGINS_WITH_NAME and not obj.deleting:
                load_balancer_class = self._inventory.load_balancer_class(obj.class_name or DEFAULT_CLASS)
                issuers.add(_issuer_of(load_balancer_class))
        return {
            domain_certificate(domain, issuer): (domain, issuer)
            for domain in domains
            for issuer in sorted(issuers - {""})
        }

    def _issues(self, name: str, tenant: Tenant, domain: str) -> bool:
        zones, issuer = self._zones(), self._inventory.issuers.get("", name)
        if zones is None or longest_suffix(domain, zones.values()) is None or issuer is None or issuer.deleting:
            return False
        spec = issuer.spec
        return (
            "DNS01" in spec.solvers
            and (not spec.tenants or tenant.metadata.name in spec.tenants)
            and (not spec.domains or any(is_within(domain, suffix) for suffix in spec.domains))
        )

    def _zones(self) -> WatchCache[DNSZone] | None:
        return self._inventory.caches.get(DNS_ZONES.plural)

    def _class_changed(self, old: LoadBalancerClass | None, new: LoadBalancerClass | None) -> None:
        if _issuer_of(old) != _issuer_of(new):
            self.lead()


def _issuer_of(load_balancer_class: LoadBalancerClass | None) -> str:
    """Return the issuer that a class names, empty for none."""
    return load_balancer_class.annotation(ANNOTATION_CERTIFICATE_ISSUER) if load_balancer_class is not None else ""


class Accounts:
    """The ACME accounts of one hub, by CertificateIssuer. A client has the identity of the issuer it was made for."""

    def __init__(self, context: IntentContext) -> None:
        self._cluster = context.cluster
        self._issuers = context.inventory.issuers
        self._events = context.events
        self._clock = context.clock
        self._leading = context.leading
        self.queue: KeyedQueue[str] = KeyedQueue(clock=context.clock)
        self._clients: dict[str, tuple[str, AcmeClient]] = {}
        #: The identity of an issuer, and its number of consecutive failures.
        self._failures: dict[str, tuple[str, int]] = {}
        self._locks = KeyedLock()

    async def reconcile(self, name: str) -> float | None:
        """Ensure that an issuer has an account, and write the condition Accepted."""
        issuer = self._issuers.get("", name)
        if issuer is None or issuer.deleting:
            self.forget(name)
            self._failures.pop(name, None)
            return None
        if not self._leading():
            return None
        try:
            client = await self.client(issuer)
        except (AcmeRefused, Terminal) as error:
            # Failures with another server or account do not count.
            identity = _identity(issuer)
            failed_identity, failures = self._failures.get(name, ("", 0))
            failures = failures + 1 if failed_identity == identity else 1
            self._failures[name] = (identity, failures)
            await self._write(issuer, Condition(ConditionType.ACCEPTED, False, reason_of(error), error.sentence), "")
            rate_limited = isinstance(error, AcmeRefused) and error.rate_limited
            return retry_delay_s(
                failures, identity=(name,), retry_after_s=error.after_s, rate_limited=rate_limited, ordered=False
            )
        self._failures.pop(name, None)
        accepted = Condition(ConditionType.ACCEPTED, True, ConditionReason.ACCEPTED, "")
        await self._write(issuer, accepted, client.account)
        return None

    async def client(self, issuer: CertificateIssuer) -> AcmeClient:
        """Return a client with the account of ``issuer``.

        Raises:
            AcmeRefused: the authority refuses the account, or cannot be used.
            Terminal: a Secret is missing or wrong; the sentence says which.
        """
        name = issuer.metadata.name
        async with self._locks.hold(name):
            identity = _identity(issuer)
            known = self._clients.get(name)
            if known is None or known[0] != identity:
                known = self._clients[name] = (identity, await self._open(issuer))
            return known[1]

    def forget(self, name: str) -> None:
        """Drop the client of an issuer, so that its account is looked up again."""
        self._clients.pop(name, None)

    async def _open(self, issuer: CertificateIssuer) -> AcmeClient:
        # Imported here: a hub without issuers does not load the library.
        from fairlead.hub.certificates.client import AcmeClient

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
                f"Secret {SYSTEM_NAMESPACE}/{name} has no valid account key in its entry {_KEY_ENTRY}. Store an ECDSA "
                "P-256 key in PEM there, or delete the Secret, and the hub creates a new account",
                reason=ConditionReason.INVALID,
            )
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
                f"Secret {SYSTEM_NAMESPACE}/{external.secret_ref}: the entry {_HMAC_ENTRY} must be the base64url key "
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
                self._events, CERTIFICATE_ISSUERS, issuer, changes, good={"Accepted": f"the account is {account}"}
            )


def reason_of(error: AcmeRefused | Terminal) -> ConditionReason:
    """Return the reason of a condition about an error: one of the documented set."""
    return reason_from(error.reason) or ConditionReason.INVALID


def _identity(issuer: CertificateIssuer) -> str:
    """Return a digest of the fields that a client depends on."""
    spec = issuer.spec
    external = spec.external_account
    parts = (external.key_id, external.secret_ref) if external is not None else ()
    name = spec.account_key_name(issuer.metadata.name)
    return short_hash(issuer.metadata.uid, spec.server, spec.email, name, spec.ca_bundle, *parts)


def attempt_of(issuer: CertificateIssuer) -> str:
    """Return a digest of what an order depends on: server, account and solvers."""
    return short_hash(_identity(issuer), *issuer.spec.solvers)


def _decoded(raw: str) -> bytes:
    try:
        return base64.b64decode(raw, validate=True)
    except binascii.Error:
        return b""
