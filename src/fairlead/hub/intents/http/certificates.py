"""The certificates that HTTPLoadBalancers name: read from Secrets beside them, one by one, when a new version is named.

The hub watches no Secrets: an object names each with the digest of its content, so a Secret is read once for each
version, and the right to *get* those of tenants' namespaces is enough. One that cannot be read leaves the last good
version in place. In: references. Out: certificates, and why one is missing. Never: a key in a log or a status.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from operator import itemgetter

import msgspec
import structlog

from fairlead.api.httploadbalancer import CertificateRef
from fairlead.api.kubernetes import SECRETS
from fairlead.errors import FairleadError, NotFound, Retry
from fairlead.kube.cluster import Cluster
from fairlead.model.http import Certificate
from fairlead.runtime.queue import KeyedQueue, TokenBucket
from fairlead.translate.certificates import UNREAD, UNREAD_VERSION, certificate_of

_log = structlog.get_logger(__name__)
_PARALLEL = 16
_RETRIES_PER_S = 50
#: While others are being read, the load balancers of new certificates wait this long, to be reconciled once for many.
_GATHER_S = 1.0


class _KnownSecret(msgspec.Struct):
    """The known versions of one Secret: the last good version, the version asked for, and why that is not there."""

    certificate: Certificate | None = None
    asked: str | None = None
    problem: str = UNREAD
    #: It is known whether it is there: nothing was wrong with the way to it when it was read last.
    read: bool = False
    #: Why it is not known what is in it: it has not been read yet, or this process may not or cannot read it.
    unread: str = UNREAD


class TenantCertificates:
    """The certificates of all tenants. ``changed`` is called with those, as (namespace, name), that have changed."""

    def __init__(self, cluster: Cluster, *, changed: Callable[[frozenset[tuple[str, str]]], None]) -> None:
        self._cluster = cluster
        self._changed = changed
        self._known: dict[tuple[str, str], _KnownSecret] = {}
        self._wanted: KeyedQueue[tuple[str, str]] = KeyedQueue(group_of=itemgetter(0))
        #: Of what is named and is not there, which is asked for again forever, a member may have any number.
        self._retries = TokenBucket(_RETRIES_PER_S, _RETRIES_PER_S)
        self._reading = 0
        self._new: set[tuple[str, str]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._progress = asyncio.Event()

    def get(
        self, namespace: str, references: Iterable[CertificateRef]
    ) -> tuple[dict[str, Certificate], dict[str, str]]:
        """Return the certificates that are there, by name, and why others (or the version meant) are not."""
        there: dict[str, Certificate] = {}
        missing: dict[str, str] = {}
        for reference in references:
            known = self._ask(namespace, reference)
            if known.certificate is not None:
                there[reference.name] = known.certificate
            if known.problem:
                missing[reference.name] = known.problem
        return there, missing

    def forget(self, namespace: str, names: Iterable[str]) -> None:
        """Drop certificates that are used no more, and their keys with them."""
        for name in names:
            self._known.pop((namespace, name), None)

    def unread(self, namespace: str, names: Iterable[str]) -> dict[str, str]:
        """Return which of the certificates could not be read at all, and why; not those that are known to be bad."""
        known = {name: self._known[namespace, name].unread for name in names if (namespace, name) in self._known}
        return {name: why for name, why in known.items() if why}

    async def wait_read(self, timeout_s: float) -> bool:
        """Return once each certificate that was asked for has been read, or after a time; False when none was."""
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
        """Read what is asked for, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(_PARALLEL):
                group.create_task(self._read_all(), name="certificates")

    def _ask(self, namespace: str, reference: CertificateRef) -> _KnownSecret:
        known = self._known.setdefault((namespace, reference.name), _KnownSecret())
        if known.asked != reference.digest:
            known.asked = reference.digest
            known.problem = known.problem or UNREAD_VERSION
            self._wanted.forget((namespace, reference.name))
            self._wanted.add((namespace, reference.name))
        return known

    async def _read_all(self) -> None:
        while True:
            key = await self._wanted.get()
            known = self._known.get(key)
            self._reading += 1
            try:
                if known is None:
                    self._wanted.forget(key)
                else:
                    if known.problem and known.read and not known.unread and self._wanted.failures(key):
                        await self._retries.acquire()
                    await self._read(key, known)
            finally:
                self._reading -= 1
                self._wanted.done(key)
                self._progress.set()
            self._report()

    def _report(self) -> None:
        """Report what is new at once when nothing else is to be read, else a moment after the first of it."""
        if not self._new:
            return
        if not self._reading and not len(self._wanted):
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
        asked, before = known.asked, (known.certificate, known.problem)
        read, unread = True, ""
        try:
            secret = await self._cluster.get(SECRETS, namespace, name)
            certificate = certificate_of(name, secret)
        except NotFound:
            known.problem = f"there is no Secret {name} beside the load balancer at the hub"
        except ValueError as error:
            known.problem = f"Secret {name}: {error}"
        except FairleadError as error:
            known.problem = unread = error.sentence
            read = not isinstance(error, Retry)
        except Exception as error:  # noqa: BLE001 - promise 7: one Secret must not end the reading of all others
            _log.exception("bug", namespace=namespace, secret=name)
            known.problem = f"Secret {name} cannot be read: {type(error).__name__}"
        else:
            known.certificate = certificate
            known.problem = (
                "" if asked in ("", certificate.digest) else f"Secret {name} has not the version yet that is named"
            )
        known.read, known.unread = known.read or read, unread
        if not known.problem:
            self._wanted.forget(key)
        else:
            self._wanted.retry(key)
            _log.info("certificate missing", namespace=namespace, secret=name, problem=known.problem)
        if before != (known.certificate, known.problem):
            self._new.add(key)
