"""The certificates that load balancers of members name.

The hub watches no Secrets. An object names each certificate with the digest of its content, so a Secret is read once
for each version, and the right to *get* Secrets in tenants' namespaces is enough. When a Secret cannot be read, the
last good version is kept. Never: a key in a log or a status.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from operator import itemgetter
from typing import Any, TypeVar

import msgspec
import structlog

from fairlead.api.httploadbalancer import HTTPLoadBalancer
from fairlead.api.kubernetes import SECRETS
from fairlead.api.tcploadbalancer import CertificateRef, TCPLoadBalancer
from fairlead.errors import FairleadError, NotFound, Retry
from fairlead.hub.intents.intent import IntentContext
from fairlead.hub.intents.member_intent import MemberIntent, MemberViews
from fairlead.hub.intents.status import StatusRules
from fairlead.kube.cluster import Cluster
from fairlead.model.http import Certificate
from fairlead.model.in_words import listed
from fairlead.runtime.queue import KeyedQueue, TokenBucket
from fairlead.translate.certificates import UNREAD, UNREAD_VERSION, certificate_of
from fairlead.translate.generated import is_domain_certificate
from fairlead.translate.view import HTTPView, TCPView

_log = structlog.get_logger(__name__)
_PARALLEL = 16
_RETRIES_PER_S = 50
#: While others are being read, the load balancers of new certificates wait this long, to be reconciled once for many.
_GATHER_S = 1.0
Named = HTTPLoadBalancer | TCPLoadBalancer
V = TypeVar("V", bound=HTTPView | TCPView)


class CertificateIntent(MemberIntent[V]):
    """One kind of load balancer that names certificates."""

    def __init__(
        self,
        context: IntentContext,
        *,
        views: MemberViews[Any, V],
        rules: StatusRules[Any, Any],
        certificates: TenantCertificates,
    ) -> None:
        super().__init__(context, views=views, rules=rules)
        self._certificates = certificates

    def watch(self) -> None:
        """Subscribe to slices and certificates."""
        super().watch()
        self.objects.cache.on_change(self._certificates_unused)

    def tasks(self) -> Sequence[Coroutine[None, None, None]]:
        """Return the reader of certificates."""
        return (self._certificates.run(),)

    async def wait_read(self, timeout_s: float) -> bool:
        """Return once the certificates that are named have been read; False when there are none."""
        return await self._certificates.wait_read(timeout_s)

    def unread(self, view: V) -> str:
        """Return why the first missing certificate could not be read; empty when a missing one is known to be bad."""
        unread = self._certificates.unread(view.key.namespace, view.missing_certificates)
        if not unread or len(unread) < len(view.missing_certificates):
            return ""
        name, why = min(unread.items())
        return f"certificate {name}: {why}{f', and {len(unread) - 1} more' if len(unread) > 1 else ''}"

    def _certificates_changed(self, changed: frozenset[tuple[str, str]]) -> None:
        for namespace in sorted({namespace for namespace, _ in changed}):
            for obj in self.objects.cache.by_index("namespace", namespace):
                names = sorted(name for name in _names_in(obj) if (namespace, name) in changed)
                names += [name for space, name in changed if space == namespace and is_domain_certificate(name)]
                if names:
                    self._inventory.wake([self.objects.key(obj)], f"certificate {listed(names, 1)} changed")

    def _certificates_unused(self, old: Named | None, new: Named | None) -> None:
        """Drop the certificates that no load balancer of the namespace names any longer."""
        dropped = _names_in(old) - _names_in(new) if old is not None else frozenset[str]()
        if old is None or not dropped:
            return
        namespace = old.metadata.namespace
        others = self.objects.cache.by_index("namespace", namespace)
        self._certificates.forget(namespace, dropped.difference(*(_names_in(obj) for obj in others)))


def certificates_named(obj: Named) -> list[CertificateRef]:
    """Return the certificates that the present and the accepted spec name; of one name, that of the present spec."""
    specs = (obj.status.accepted or obj.spec, obj.spec)
    return list({reference.name: reference for spec in specs for reference in spec.certificates}.values())


def _names_in(obj: Named | None) -> frozenset[str]:
    return frozenset() if obj is None else frozenset(reference.name for reference in certificates_named(obj))


class _KnownSecret(msgspec.Struct):
    """One Secret: the last good version, the digest of the requested version, and why that version is missing."""

    certificate: Certificate | None = None
    requested: str | None = None
    problem: str = UNREAD
    #: Whether it exists is known: the last read reached the API server.
    read: bool = False
    #: Why its content is unknown: it has not been read yet, or this process may not or cannot read it.
    unread: str = UNREAD


class TenantCertificates:
    """The certificates of all tenants; ``changed`` is called with those, as (namespace, name), that have changed."""

    def __init__(self, cluster: Cluster, *, changed: Callable[[frozenset[tuple[str, str]]], None]) -> None:
        self._cluster = cluster
        self._changed = changed
        self._known: dict[tuple[str, str], _KnownSecret] = {}
        self._queue: KeyedQueue[tuple[str, str]] = KeyedQueue(group_of=itemgetter(0))
        #: A member may name any number of missing Secrets, and each is retried forever.
        self._retries = TokenBucket(_RETRIES_PER_S, _RETRIES_PER_S)
        self._reading = 0
        self._new: set[tuple[str, str]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._progress = asyncio.Event()

    def get(
        self, namespace: str, references: Iterable[CertificateRef]
    ) -> tuple[dict[str, Certificate], dict[str, str]]:
        """Return the certificates that are there, by name, and why others (or the requested versions) are missing."""
        certificates: dict[str, Certificate] = {}
        missing: dict[str, str] = {}
        for reference in references:
            key = (namespace, reference.name)
            known = self._known.setdefault(key, _KnownSecret())
            if known.requested != reference.digest:
                known.requested = reference.digest
                known.problem = known.problem or UNREAD_VERSION
                self._queue.forget(key)
                self._queue.add(key)
            if known.certificate is not None:
                certificates[reference.name] = known.certificate
            if known.problem:
                missing[reference.name] = known.problem
        return certificates, missing

    def forget(self, namespace: str, names: Iterable[str]) -> None:
        """Drop certificates that are no longer used, with their keys."""
        for name in names:
            self._known.pop((namespace, name), None)

    def unread(self, namespace: str, names: Iterable[str]) -> dict[str, str]:
        """Return which of the certificates could not be read, and why; not those that are known to be bad."""
        known = {name: self._known[namespace, name].unread for name in names if (namespace, name) in self._known}
        return {name: why for name, why in known.items() if why}

    async def wait_read(self, timeout_s: float) -> bool:
        """Return once each requested certificate has been read, or after a time; False when there was none."""
        try:
            async with asyncio.timeout(timeout_s):
                while not all(known.read for known in self._known.values()):
                    self._progress.clear()
                    await self._progress.wait()
        except TimeoutError:
            unread = sum(not known.read for known in self._known.values())
            _log.warning("certificates are not read yet", unread=unread, waited_s=timeout_s)
        return bool(self._known)

    async def run(self) -> None:
        """Read requested certificates, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(_PARALLEL):
                group.create_task(self._read_all(), name="certificates")

    async def _read_all(self) -> None:
        while True:
            key = await self._queue.get()
            known = self._known.get(key)
            self._reading += 1
            try:
                if known is None:
                    self._queue.forget(key)
                else:
                    if known.problem and known.read and not known.unread and self._queue.failures(key):
                        await self._retries.acquire()
                    await self._read(key, known)
            finally:
                self._reading -= 1
                self._queue.done(key)
                self._progress.set()
            self._report()

    def _report(self) -> None:
        """Report new certificates at once when nothing else is to be read, else a moment after the first one."""
        if not self._new:
            return
        if not self._reading and not len(self._queue):
            self._report_now()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_GATHER_S, self._report_now)

    def _report_now(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        new, self._new, self._timer = frozenset(self._new), set(), None
        self._changed(new)

    async def _read(self, key: tuple[str, str], known: _KnownSecret) -> None:
        namespace, name = key
        requested, before = known.requested, (known.certificate, known.problem)
        read, unread = True, ""
        try:
            secret = await self._cluster.get(SECRETS, namespace, name)
            certificate = certificate_of(name, secret)
        except NotFound:
            known.problem = f"Secret {name} does not exist in the namespace of the load balancer at the hub"
        except ValueError as error:
            known.problem = f"Secret {name}: {error}"
        except Retry as error:
            known.problem = unread = error.sentence
            read = False
        except FairleadError as error:
            known.problem = unread = error.sentence
        except Exception as error:  # noqa: BLE001 - one Secret must not end the reading of all others
            _log.exception("bug", namespace=namespace, secret=name)
            known.problem = f"Secret {name} cannot be read: {type(error).__name__}"
        else:
            known.certificate = certificate
            current = requested in ("", certificate.digest)
            known.problem = "" if current else f"Secret {name} does not contain the requested version yet"
        known.read, known.unread = known.read or read, unread
        if not known.problem:
            self._queue.forget(key)
        else:
            self._queue.retry(key)
            _log.info("certificate missing", namespace=namespace, secret=name, problem=known.problem)
        if before != (known.certificate, known.problem):
            self._new.add(key)
