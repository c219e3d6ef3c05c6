"""One step of one order: keys, requests to the authority, and the answers to its challenges.

    HTTP-01   the certificate's load balancers answer with a route that their translation contains once the order is
              recorded; the hub requests it at their addresses first
    DNS-01    a Hostname for _acme-challenge.NAME has the texts of all open orders that prove NAME, such as one for NAME
              and one for *.NAME; the DNS provider publishes it

In: a ManagedCertificate and a client with an account. Out: the order to record, or a chain with its key; Hostnames for
challenges. Steps are repeatable: each is recorded before the next. The key of a certificate (ECDSA P-256) is only in
the memory of this process until its Secret is written; if the process ends earlier, a new order begins. Never: a key in
a message, or a request to validate a challenge that is not answered.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, TypeVar

import aiohttp
import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from fairlead.api.hostname import HOSTNAMES, WILDCARD
from fairlead.api.httploadbalancer import HTTP_LOAD_BALANCERS, HTTPLoadBalancer
from fairlead.api.managedcertificate import CertificateIssuer, CertificateOrder, ManagedCertificate, OrderChallenge
from fairlead.api.meta import JSONObject, condition_of
from fairlead.api.names import (
    LABEL_CHALLENGE,
    LABEL_MANAGED_BY,
    MANAGED_BY,
    MANAGER_CERTIFICATES,
    SYSTEM_NAMESPACE,
    short_hash,
)
from fairlead.api.times import parsed_time, wire_time
from fairlead.errors import Bug, FairleadError, NotFound, Terminal
from fairlead.hub.certificates.order import (
    OrderStep,
    RemoteOrder,
    choose_challenges,
    failure_of,
    malformed,
    next_step,
    shown,
)
from fairlead.hub.inventory import Inventory
from fairlead.hub.providers.registry import ProviderRegistry
from fairlead.hub.providers.runner import observed_of
from fairlead.kube.cluster import Cluster
from fairlead.kube.lease import check_leads
from fairlead.kube.writes import Overlay
from fairlead.model.condition import ConditionReason, ConditionType
from fairlead.model.in_words import host_port, listed
from fairlead.model.key_pair import covers, public_key_of
from fairlead.model.keys import LoadBalancerKey, family_of
from fairlead.runtime.queue import KeyedLock
from fairlead.translate.generated import CHALLENGE_PATH, CHALLENGE_PORT

if TYPE_CHECKING:
    from fairlead.hub.certificates.client import AcmeClient

#: An order whose challenges are not answered within this time fails with a reason, and a new order is made.
ANSWER_LIMIT = timedelta(minutes=5)
#: An order that the authority leaves undecided for so long fails, and a new one is made.
DECISION_LIMIT = timedelta(hours=24)
_LOOK_S = 0.5
_POLL_S = 1.0
_LONGEST_POLL_S = 30.0


class IssuedCertificate(msgspec.Struct, frozen=True):
    """A certificate with its key, both PEM, and the order that it came from."""

    chain: bytes
    key: bytes
    order: str

    def __repr__(self) -> str:
        return f"IssuedCertificate(order={self.order!r})"


class Progress(msgspec.Struct, frozen=True):
    """The progress of an order: the order to record (None: begin a new one), the seconds until the next step.

    ``waits``: what the order waits for. ``made``: the certificate, once it is issued.
    """

    order: CertificateOrder | None
    again_s: float
    waits: str = ""
    made: IssuedCertificate | None = None


class NotAnswered(Terminal):
    """A challenge was not answered within the limit."""


class Issuance:
    """Orders in progress; holds the keys of orders that are being completed."""

    def __init__(self, solvers: Solvers, is_shared: Callable[[str], bool]) -> None:
        self._solvers = solvers
        self._is_shared = is_shared
        #: The URL of an order, and the key of its certificate, by ManagedCertificate.
        self._keys: dict[tuple[str, str], tuple[str, bytes]] = {}

    def forget(self, key: tuple[str, str]) -> None:
        """Drop the key of an order that is not completed."""
        self._keys.pop(key, None)

    async def begin(
        self,
        obj: ManagedCertificate,
        issuer: CertificateIssuer,
        client: AcmeClient,
        now: datetime,
        *,
        replaces: bytes = b"",
    ) -> Progress:
        """Begin an order; challenges are recorded before they are served. ``replaces``: the chain to renew."""
        self.forget(obj.key)
        hosts = tuple(sorted(obj.spec.hosts))
        remote, authorizations = await in_thread(lambda: client.new_order(hosts, replaces=replaces), name="acme-order")
        order = CertificateOrder(
            url=remote.url,
            finalize=remote.finalize,
            started=wire_time(now),
            issuer=client.account,
            challenges=choose_challenges(
                authorizations, issuer.spec.solvers, thumbprint=client.thumbprint, is_shared=self._is_shared
            ),
        )
        return Progress(order, _LOOK_S, "the challenges are being published")

    async def advance(
        self, obj: ManagedCertificate, order: CertificateOrder, client: AcmeClient, now: datetime
    ) -> Progress:
        """Take the next step of the recorded order.

        Raises:
            AcmeRefused: the authority refuses it, or cannot be used now.
            NotAnswered: a challenge was not answered in time.
        """
        held = self._keys.get(obj.key)
        has_key = held is not None and held[0] == order.url
        remote = await in_thread(lambda: client.order(order.url), name="acme-look")
        step = next_step(order.challenges, remote, has_key=has_key)
        if remote is None or step is OrderStep.ABANDON:
            return Progress(None, _POLL_S, "the hub makes a new order")
        if step is OrderStep.FAIL:
            authorizations = await in_thread(lambda: client.authorizations(remote.authorizations), name="acme-look")
            raise failure_of(obj.spec.hosts, remote, authorizations)
        if step is OrderStep.OFFER:
            return await self._offer(obj, order, client, now)
        if step is OrderStep.FINALIZE:
            key = new_key()
            request = signing_request(key, tuple(sorted(obj.spec.hosts)))
            self._keys[obj.key] = (order.url, key)
            ready = remote
            remote = await in_thread(lambda: client.finalize(ready, request), name="acme-finalize")
            step = OrderStep.FETCH
        if step is OrderStep.FETCH and remote.status == "valid" and remote.certificate:
            _, key = self._keys[obj.key]
            url = remote.certificate
            chain = await in_thread(lambda: client.certificate(url), name="acme-fetch")
            if problem := _mismatch(chain, key, obj.spec.hosts):
                raise malformed(client.server, "the certificate", problem, ended=True)
            return Progress(order, 0.0, made=IssuedCertificate(chain, key, order.url))
        started = parsed_time(order.started)
        if started is not None and now - started > DECISION_LIMIT:
            raise malformed(
                client.server, "the order", f"the status has been {remote.status} since {order.started}", ended=True
            )
        return Progress(order, _again_s(remote, order, now))

    async def _offer(
        self, obj: ManagedCertificate, order: CertificateOrder, client: AcmeClient, now: datetime
    ) -> Progress:
        await self._solvers.prepare(obj)
        challenges: list[OrderChallenge] = []
        waits = ""
        for challenge in order.challenges:
            missing = "" if challenge.offered else await self._solvers.missing(obj, challenge)
            if not missing and not challenge.offered:
                host, url = challenge.host, challenge.url
                await in_thread(lambda host=host, url=url: client.offer(host, url), name="acme-offer")
            waits = waits or missing
            challenges.append(challenge if missing else msgspec.structs.replace(challenge, offered=True))
        started = parsed_time(order.started)
        if waits and started is not None and now - started > ANSWER_LIMIT:
            raise NotAnswered(
                f"{shown(obj.spec.hosts)} cannot be ordered: {waits}. Check that the hub reaches the load balancer's "
                "address at port 80 (HTTP01), or that the DNSZone is published (DNS01)",
                reason=ConditionReason.CHALLENGE_NOT_ANSWERED,
            )
        return Progress(msgspec.structs.replace(order, challenges=tuple(challenges)), _LOOK_S, waits)


def _mismatch(chain: bytes, key: bytes, hosts: Iterable[str]) -> str:
    """Return why a certificate is not the one that was ordered; empty when it is.

    In its Secret it would take the place of one that works, and the next order would follow at once.
    """
    try:
        public_key_of(chain, key)
        names = {name.lower() for name in facts_of(chain).hosts}
    except ValueError as error:
        return str(error)
    missing = [host for host in hosts if host.lower() not in names and not covers(names, host)]
    return f"the certificate is not valid for {listed(missing, 3)}" if missing else ""


def _again_s(remote: RemoteOrder, order: CertificateOrder, now: datetime) -> float:
    """Return the seconds until the next request: the authority's value, otherwise growing with the order's age."""
    if remote.after_s is not None:
        return min(max(remote.after_s, _LOOK_S), _LONGEST_POLL_S)
    started = parsed_time(order.started) or now
    return min(max(_POLL_S, (now - started).total_seconds() / 10), _LONGEST_POLL_S)


class CertificateFacts(msgspec.Struct, frozen=True):
    """Facts of the first certificate of a chain: serial number (hexadecimal), lifetime, names."""

    serial: str
    not_before: datetime
    not_after: datetime
    hosts: tuple[str, ...]


def new_key() -> bytes:
    """Return a new private key, PEM (PKCS #8)."""
    key = ec.generate_private_key(ec.SECP256R1())
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def is_account_key(key: bytes) -> bool:
    """Return whether a key has the type of the hub's account keys."""
    try:
        return ecdsa_key(key).curve.name == "secp256r1"
    except (ValueError, TypeError):
        return False


def ecdsa_key(key: bytes) -> ec.EllipticCurvePrivateKey:
    """Return a private key (PEM), as the hub makes them for accounts and certificates.

    Raises:
        ValueError: it is not a key in PEM.
        TypeError: it is of another type, or has a password.
    """
    loaded = load_pem_private_key(key, password=None)
    if not isinstance(loaded, ec.EllipticCurvePrivateKey):
        raise TypeError("the key is not ECDSA")
    return loaded


def signing_request(key: bytes, hosts: tuple[str, ...]) -> x509.CertificateSigningRequest:
    """Return the request for a certificate with these names, signed with ``key`` (PEM)."""
    names = x509.SubjectAlternativeName([x509.DNSName(host) for host in hosts])
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    return builder.add_extension(names, critical=False).sign(ecdsa_key(key), hashes.SHA256())


def facts_of(chain: bytes) -> CertificateFacts:
    """Return the facts of the first certificate of a chain (PEM).

    Raises:
        ValueError: not a certificate.
    """
    first = x509.load_pem_x509_certificates(chain)[0]
    hosts: Sequence[str] = ()
    with suppress(x509.ExtensionNotFound):
        names = first.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        hosts = names.get_values_for_type(x509.DNSName)
    return CertificateFacts(
        serial=f"{first.serial_number:x}",
        not_before=first.not_valid_before_utc,
        not_after=first.not_valid_after_utc,
        hosts=tuple(hosts),
    )


T = TypeVar("T")

#: The time limit of a call, which may make several requests; nothing else limits a server that answers byte by byte.
LIMIT_S = 60.0


async def in_thread(call: Callable[[], T], *, name: str, limit_s: float = LIMIT_S) -> T:
    """Return the result of ``call``, which runs in a thread of its own.

    Raises:
        TimeoutError: no result within ``limit_s`` seconds; the thread ends when the server closes or answers.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def done(result: list[T], error: BaseException | None) -> None:
        if answer.done():
            return
        if result:
            answer.set_result(result[0])
        else:
            answer.set_exception(error or Bug(f"{name}: the call ended without a result"))

    def run() -> None:
        result: list[T] = []
        error: BaseException | None = None
        try:
            result.append(call())
        except FairleadError as refused:
            error = refused
        finally:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(done, result, error or sys.exc_info()[1])

    threading.Thread(target=run, name=name, daemon=True).start()
    async with asyncio.timeout(limit_s):
        return await answer


_PREFIX = "_acme-challenge."
#: The most texts that a Hostname may have.
_MOST_TEXTS = 16
_ANSWER_S = 10.0
_MOST_BYTES = 4096


class Solvers:
    """Publishes answers to challenges by HTTP-01 and DNS-01, and checks that they are served."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        inventory: Inventory,
        managed: Overlay[ManagedCertificate],
        providers: ProviderRegistry,
        leading: Callable[[], bool],
    ) -> None:
        self._leading = leading
        self._cluster = cluster
        self._inventory = inventory
        self._managed = managed
        self._providers = providers
        self._locks = KeyedLock()

    async def prepare(self, obj: ManagedCertificate) -> None:
        """Publish the TXT records that the recorded challenges need."""
        for host in sorted(set(_dns_challenges(obj))):
            await self._publish(host)

    async def withdraw(self) -> None:
        """Remove the texts that no open order needs; other certificates for the same name keep their texts."""
        if self._inventory.managed.problem:
            return  # an unreadable certificate may need its texts
        for hostname in await self._cluster.list(HOSTNAMES, SYSTEM_NAMESPACE, label_selector=LABEL_CHALLENGE):
            if not hostname.deleting and set(hostname.spec.texts) != set(self._texts(hostname.spec.host)[0]):
                await self._publish(hostname.spec.host)

    async def _publish(self, host: str) -> None:
        """Write the Hostname of a challenge with the texts of all open orders, or delete it when there are none."""
        name = _hostname_name(host)
        # One write at a time, so that the last write has the texts of all recorded orders.
        async with self._locks.hold(host):
            texts, first = self._texts(host)
            check_leads(self._leading, f"Hostname {SYSTEM_NAMESPACE}/{name}")
            if first is None:
                with suppress(NotFound):
                    await self._cluster.delete(HOSTNAMES, SYSTEM_NAMESPACE, name)
                return
            tenant = self._inventory.tenant_of(first.metadata.namespace)
            member = tenant.metadata.name if tenant is not None else ""
            body: JSONObject = {
                "metadata": {
                    "name": name,
                    "namespace": SYSTEM_NAMESPACE,
                    "labels": {LABEL_MANAGED_BY: MANAGED_BY, LABEL_CHALLENGE: short_hash(host)},
                },
                "spec": {
                    "host": host,
                    "owner": {"member": member, "kind": "ManagedCertificate", "name": first.metadata.name},
                    "texts": texts,
                },
            }
            await self._cluster.apply(HOSTNAMES, body, manager=MANAGER_CERTIFICATES)

    def _texts(self, host: str) -> tuple[list[str], ManagedCertificate | None]:
        """Return the texts that open orders need at a name, sorted, and the certificate whose order is the oldest."""
        proven = host.removeprefix(_PREFIX)
        objects = {
            obj.key: obj for name in (proven, f"{WILDCARD}{proven}") for obj in self._managed.by_index("host", name)
        }
        needs = {key: _dns_challenges(obj).get(host, set()) for key, obj in objects.items() if not obj.deleting}
        keys = sorted((key for key in needs if needs[key]), key=lambda key: (_started(objects[key]), key))
        # Oldest orders first; the others are published once these have ended.
        texts = list(dict.fromkeys(text for key in keys for text in sorted(needs[key])))[:_MOST_TEXTS]
        return sorted(texts), objects[keys[0]] if keys else None

    async def missing(self, obj: ManagedCertificate, challenge: OrderChallenge) -> str:
        """Return why a challenge is not answered yet; empty if it is."""
        if challenge.type == "dns-01":
            host = challenge_host(challenge.host)
            try:
                hostname = await self._cluster.get(HOSTNAMES, SYSTEM_NAMESPACE, _hostname_name(host))
            except NotFound:
                return f"there is no Hostname for {host} yet"
            programmed = condition_of(hostname.status.conditions, ConditionType.PROGRAMMED)
            if programmed is not None and programmed.status == "True":
                current = programmed.observed_generation >= hostname.metadata.generation
                return "" if current and challenge.content in hostname.spec.texts else f"{host} is not published yet"
            reason = programmed.message if programmed is not None else ""
            return f"{host} is not published: {reason or 'no DNSZone has accepted it yet'}"
        objects = self._inventory.intents[HTTP_LOAD_BALANCERS.kind]
        namespace, answered = obj.metadata.namespace, False
        for name in obj.spec.load_balancers:
            key = LoadBalancerKey(HTTP_LOAD_BALANCERS.kind, namespace, name)
            load_balancer: HTTPLoadBalancer | None = objects.cache.get(namespace, name)
            addresses = load_balancer.status.addresses if load_balancer is not None else ()
            if not addresses:
                continue
            if not await self._acknowledged(key):
                return f"the proxies have not acknowledged the route of {challenge.host} yet"
            if silent := await silent_address(addresses, challenge):
                where = host_port(silent, CHALLENGE_PORT)
                return f"{where} does not answer the challenge of {challenge.host} yet"
            answered = True
        return "" if answered else f"no load balancer of {challenge.host} has an address yet"

    async def _acknowledged(self, key: LoadBalancerKey) -> bool:
        """Return whether every proxy of a load balancer has acknowledged its newest state."""
        for runner in self._providers.values():
            if key in runner.tracker:
                observed = await observed_of(runner, key, None)
                return observed is not None and observed.programmed
        return False


def challenge_host(host: str) -> str:
    """Return the name whose TXT record proves ``host``; a wildcard is proven at its parent domain."""
    return f"{_PREFIX}{host.removeprefix(WILDCARD).lower()}"


async def silent_address(addresses: Sequence[str], challenge: OrderChallenge) -> str:
    """Return the first address that does not answer a challenge; empty if all do.

    The authority may choose any address that the name resolves to. Addresses without a route from this machine are
    ignored, unless no address has a route.
    """
    for address in [address for address in addresses if has_route(address)] or addresses:
        place = (address, CHALLENGE_PORT, challenge.host, CHALLENGE_PATH + challenge.token)
        # Proxies behind another load balancer may accept only connections that begin with a PROXY header.
        if await fetched(*place) != challenge.content and await fetched_as_a_balancer(*place) != challenge.content:
            return address
    return ""


def has_route(address: str) -> bool:
    """Return whether this machine has a route to an address; a hub without IPv6 cannot reach an IPv6 address."""
    family = family_of(address)
    if family is None:
        return True  # a host name, which the client resolves
    try:
        with socket.socket(socket.AF_INET6 if family == "IPv6" else socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((address, CHALLENGE_PORT))  # sends nothing
    except OSError:
        return False
    return True


async def fetched(address: str, port: int, host: str, path: str) -> str:
    """Return the body of an HTTP answer; empty without a timely answer of status 200."""
    timeout = aiohttp.ClientTimeout(total=_ANSWER_S)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(
                f"http://{host_port(address, port)}{path}", headers={"Host": host}, allow_redirects=False
            ) as answer,
        ):
            if answer.status != 200:
                return ""
            body = b""
            # One read returns only the bytes that have arrived.
            while len(body) < _MOST_BYTES and (more := await answer.content.read(_MOST_BYTES - len(body))):
                body += more
    except (TimeoutError, aiohttp.ClientError, OSError):
        return ""
    return body.decode("utf-8", "replace")


async def fetched_as_a_balancer(address: str, port: int, host: str, path: str) -> str:
    """Return the answer to a request behind a PROXY header without addresses, empty as in ``fetched``."""
    request = f"PROXY UNKNOWN\r\nGET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
    try:
        async with asyncio.timeout(_ANSWER_S):
            reader, writer = await asyncio.open_connection(address, port, limit=_MOST_BYTES)
            try:
                writer.write(request.encode())
                head = await reader.readuntil(b"\r\n\r\n")
                body = b""
                while len(body) < _MOST_BYTES and (more := await reader.read(_MOST_BYTES)):
                    body += more
            finally:
                writer.close()
    except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        return ""
    return body.decode("utf-8", "replace") if head.startswith(b"HTTP/1.1 200 ") else ""


def _dns_challenges(obj: ManagedCertificate) -> dict[str, set[str]]:
    """Return the texts that the recorded order needs, by the name of their TXT record."""
    texts: dict[str, set[str]] = {}
    for challenge in obj.status.order.challenges if obj.status.order is not None else ():
        if challenge.type == "dns-01":
            texts.setdefault(challenge_host(challenge.host), set()).add(challenge.content)
    return texts


def _started(obj: ManagedCertificate) -> str:
    return obj.status.order.started if obj.status.order is not None else ""


def _hostname_name(host: str) -> str:
    return f"acme-challenge.{short_hash(host, size_bytes=10)}"
