"""Facts about a Cluster that are in no watched object: its CA certificate, and whether its endpoint answers.

    <cluster>-ca, tls.crt     read until it is there, and again now and then: it rotates; the key is never kept
    <cluster>-kubeconfig      whether it is there, and whether /readyz answers, where no control-plane provider is
    the endpoint              probed every ``probe_s`` by a connection, or a request for ``/readyz``

In: endpoints and names of Clusters. Out: facts, and a call when one changes. Never: waits inside a reconcile, or sends
a credential with a probe.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import socket
from collections.abc import Awaitable, Callable

import structlog

from fairlead.api.capiside import ControlPlaneEndpoint
from fairlead.api.kubernetes import SECRETS
from fairlead.api.meta import ObjectKey
from fairlead.capi.view import CapiView, Plane, Probe
from fairlead.errors import FairleadError, NotFound
from fairlead.kube.cluster import Cluster as ApiCluster
from fairlead.runtime.loop import run_workers
from fairlead.runtime.queue import KeyedQueue
from fairlead.runtime.telemetry import Telemetry
from fairlead.runtime.tls import client_context

_CONNECT_S = 3.0
#: Ready, or ready to those who sign in.
_ANSWERS = ("200", "401", "403")

#: Returns the addresses of a name, in order; raises ``socket.gaierror`` when it has none.
Resolve = Callable[[str], Awaitable[list[str]]]


async def system_resolver(host: str) -> list[str]:
    """Return the addresses of a host name by the resolver of this machine."""
    rows = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(row[4][0]) for row in rows))


async def probe_endpoint(endpoint: ControlPlaneEndpoint, *, resolve: Resolve = system_resolver) -> Probe:
    """Return whether a connection to ``endpoint`` can be made."""
    try:
        async with asyncio.timeout(_CONNECT_S):
            addresses = await resolve(endpoint.host)
            _, writer = await asyncio.open_connection(addresses[0], endpoint.port)
    except socket.gaierror:
        text = f"the name {endpoint.host} does not resolve yet; point it at status.address"
        return Probe(reached=False, resolved=False, message=text)
    except (OSError, TimeoutError) as error:
        why = "no answer" if isinstance(error, TimeoutError) else (error.strerror or "no connection")
        return Probe(reached=False, message=f"{endpoint} cannot be reached from here: {why}")
    writer.close()
    return Probe(reached=True)


async def why_not_ready(endpoint: ControlPlaneEndpoint, authority: str, *, resolve: Resolve = system_resolver) -> str:
    """Return why ``/readyz`` of the API at ``endpoint`` does not answer 200; empty when it does."""
    try:
        context = client_context(authority.encode() or None)
        async with asyncio.timeout(_CONNECT_S):
            addresses = await resolve(endpoint.host)
            reader, writer = await asyncio.open_connection(
                addresses[0], endpoint.port, ssl=context, server_hostname=endpoint.host
            )
            try:
                request = f"GET /readyz HTTP/1.1\r\nHost: {endpoint.host}\r\nConnection: close\r\n\r\n"
                writer.write(request.encode())
                line = (await reader.readline()).decode(errors="replace")
            finally:
                writer.close()
    except (OSError, TimeoutError, ValueError) as error:
        return f"GET https://{endpoint}/readyz: {error or 'no answer'}"
    status = line.split(" ")[1] if line.count(" ") else ""
    return "" if status in _ANSWERS else f"GET https://{endpoint}/readyz: {line.strip() or 'no answer'}"


log = structlog.get_logger(__name__)

#: How many endpoints are probed at once: one that does not answer takes seconds.
_AT_ONCE = 32
#: A known certificate is read again after this many probes.
_PROBES_PER_READ = 6


class _Facts:
    """The facts about one load balancer; ``cluster`` empty: no certificate is needed."""

    def __init__(self) -> None:
        self.endpoint: ControlPlaneEndpoint | None = None
        self.cluster = ""
        #: The name of its Cluster, where that has no control-plane provider, and its state is probed, too.
        self.unmanaged = ""
        self.served = False
        self.authority = ""
        #: When the certificate was read last (monotonic seconds).
        self.read_s: float | None = None
        self.probe: Probe | None = None
        self.plane: Plane | None = None


class ClusterFacts:
    """Facts by load balancer; ``changed`` is called with the key of each whose facts have changed."""

    def __init__(
        self,
        cluster: ApiCluster,
        *,
        changed: Callable[[ObjectKey], None],
        probe_s: float,
        resolve: Resolve = system_resolver,
        telemetry: Telemetry | None = None,
    ) -> None:
        self._resolve = resolve
        self._cluster = cluster
        self._changed = changed
        self._probe_s = probe_s
        self._facts: dict[ObjectKey, _Facts] = {}
        self._telemetry = telemetry
        #: The last reason, by Secret, why it could not be read.
        self._logged: dict[str, str] = {}
        self._queue: KeyedQueue[ObjectKey] = KeyedQueue(clock=cluster.clock)

    def authority(self, key: ObjectKey) -> str:
        """Return the CA certificate (PEM) of the Cluster of ``key``, empty while it is not known."""
        return self._of(key).authority

    def probe(self, key: ObjectKey) -> Probe | None:
        """Return the result of the last probe of the endpoint of ``key``."""
        return self._of(key).probe

    def plane(self, key: ObjectKey) -> Plane | None:
        """Return the state of the control plane of a Cluster without a control-plane provider."""
        return self._of(key).plane

    def want(self, key: ObjectKey, endpoint: ControlPlaneEndpoint, view: CapiView, *, served: bool) -> None:
        """Schedule probes of the endpoint, and reads of the CA certificate if needed; at once when one of them is new.

        ``served``: its provider has the load balancer; until then the endpoint is not probed before ``probe_s``.
        """
        facts, spec = self._facts.setdefault(key, _Facts()), view.load_balancer.spec
        before = (facts.endpoint, facts.cluster, facts.served)
        facts.unmanaged = spec.cluster_name if view.unmanaged else ""
        needs_authority = not spec.additional and not (spec.health_check is not None and spec.health_check.disabled)
        facts.cluster = spec.cluster_name if needs_authority else ""
        facts.endpoint = endpoint if endpoint.given else facts.endpoint
        facts.served = facts.served or served
        if before != (facts.endpoint, facts.cluster, facts.served) and (facts.cluster or facts.endpoint is not None):
            self._queue.add_after(key, 0.0 if served or before[1] != facts.cluster else self._probe_s)

    def forget(self, key: ObjectKey) -> None:
        """Delete the facts of a load balancer that no longer exists."""
        self._facts.pop(key, None)

    async def run(self) -> None:
        """Read and probe each load balancer at its interval, until cancelled."""
        await run_workers(self._queue, self._look, workers=_AT_ONCE, name="capi-facts", telemetry=self._telemetry)

    def _of(self, key: ObjectKey) -> _Facts:
        return self._facts.get(key) or _Facts()

    async def _look(self, key: ObjectKey) -> float | None:
        facts = self._of(key)
        due_s = self._cluster.clock.monotonic() - _PROBES_PER_READ * self._probe_s
        if facts.cluster and (facts.read_s is None or facts.read_s <= due_s):
            await self._read_authority(key, facts)
        if facts.endpoint is not None:
            probe = await probe_endpoint(facts.endpoint, resolve=self._resolve)
            plane = await self._plane(key, facts, facts.endpoint)
            if (facts.probe, facts.plane) != (probe, plane):
                facts.probe, facts.plane = probe, plane
                self._notify(key, facts)
        return self._probe_s if facts.cluster or facts.endpoint is not None else None

    async def _read_authority(self, key: ObjectKey, facts: _Facts) -> None:
        name = f"{facts.cluster}-ca"
        try:
            secret = await self._cluster.get(SECRETS, key.namespace, name)
            text = base64.b64decode((secret.data or {}).get("tls.crt", ""), validate=True).decode()
        except NotFound:
            return
        except (FairleadError, binascii.Error, UnicodeDecodeError) as error:
            self._log_once("members are checked without the Cluster's authority", f"{key.namespace}/{name}", error)
            return
        self._logged.pop(f"{key.namespace}/{name}", None)
        if text and facts.cluster:
            facts.read_s = self._cluster.clock.monotonic()
            if facts.authority != text:
                facts.authority = text
                self._notify(key, facts)

    def _notify(self, key: ObjectKey, facts: _Facts) -> None:
        if self._facts.get(key) is facts:  # else the load balancer was deleted meanwhile
            self._changed(key)

    async def _plane(self, key: ObjectKey, facts: _Facts, endpoint: ControlPlaneEndpoint) -> Plane | None:
        if not facts.unmanaged:
            return None
        name = f"{facts.unmanaged}-kubeconfig"
        try:
            await self._cluster.get(SECRETS, key.namespace, name)
        except NotFound:
            return Plane(initialized=False)
        except FairleadError as error:
            self._log_once("cannot read whether the control plane is initialized", f"{key.namespace}/{name}", error)
            return facts.plane
        self._logged.pop(f"{key.namespace}/{name}", None)
        problem = await why_not_ready(endpoint, facts.authority, resolve=self._resolve)
        return Plane(initialized=True, problem=problem)

    def _log_once(self, description: str, secret: str, error: Exception) -> None:
        """Log why a Secret could not be read; again if the reason changes, or after a successful read."""
        sentence = error.sentence if isinstance(error, FairleadError) else f"tls.crt of Secret {secret}: {error}"
        if self._logged.get(secret) != sentence:
            self._logged[secret] = sentence
            log.warning(description, secret=secret, sentence=sentence)
