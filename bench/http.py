"""Routes, measured: an Ingress changed at the member until requests go by the new rule, first sync, idle."""

from __future__ import annotations

import asyncio
import base64
import subprocess
import tempfile
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
from aiohttp import web

from bench.figures import Figure, percentile
from bench.fleet import Fleet, fleet, until_true
from fairlead.api.httploadbalancer import HTTP_LOAD_BALANCERS, LOAD_BALANCER_ROUTES
from fairlead.api.kubernetes import ENDPOINT_SLICES, INGRESS_CLASSES, INGRESSES, SECRETS, SERVICES
from fairlead.api.meta import AnyResource, JSONObject
from fairlead.api.names import INGRESS_CONTROLLER
from fairlead.kube.cluster import Cluster

CHANGES = 50
ONE_SECRET = "of-all"
HOST = "probe.example.com"
BACKENDS = {"first": "127.99.2.1", "second": "127.99.2.2"}
BACKEND_PORT = 8098
_AT_ONCE = 32


async def change_to_effect(*, secure: bool = False) -> AsyncIterator[Figure]:
    """Change the backend of one Ingress among 100, 1,000 and 5,000, all of them at one port.

    ``secure``: each has its host served over TLS, and so a route configuration of its own.
    """
    smallest = 0.0
    secret = ONE_SECRET if secure else ""
    scheme = "https" if secure else "http"
    data = _certificate()

    def shared(_host: str) -> JSONObject:
        return data

    for count in (100, 1000, 5000):
        async with (
            fleet(target="Pod") as running,
            filled_with(running, count, shared if secure else None, one_secret=secure),
        ):

            async def change(service: str, member: Cluster = running.member_cluster) -> None:
                spec = _ingress("probe", HOST, service, secret=secret)["spec"]
                await member.merge_patch(INGRESSES, "default", "probe", {"spec": spec})

            seconds = await changes(change, f"{scheme}://{await address_of(running)}/")
        smallest = smallest or percentile(seconds, 0.5)
        what = f"{count:,} {scheme.upper()} routes at one port"
        name = f"an Ingress changed at the member to a request by the new rule, {what}"
        for figure in change_figures(name, seconds, smallest):
            yield figure


async def changes(change: Callable[[str], Awaitable[None]], url: str) -> list[float]:
    """Let the probe's host go to one backend and the other in turn; returns seconds to the first answer of each."""
    seconds: list[float] = []
    async with aiohttp.ClientSession() as session:
        await answers(session, url, "first")
        for number in range(CHANGES):
            service = "first" if number % 2 else "second"
            started = time.perf_counter()
            await change(service)
            await answers(session, url, service)
            seconds.append(time.perf_counter() - started)
    return seconds


def change_figures(name: str, seconds: Sequence[float], smallest: float) -> Sequence[Figure]:
    """Return p50 relative to that of the smallest size, in seconds, and p99."""
    half = percentile(seconds, 0.5)
    ratio = f"{half / smallest:.2f} x the p50 of 100 routes"
    return (
        Figure(name=f"{name}: p50", value=half * 1000, unit="ms", limit=30, compares_with=ratio),
        Figure(name=f"{name}: p99", value=percentile(seconds, 0.99) * 1000, unit="ms", limit=120),
    )


async def first_sync(count: int = 1000) -> AsyncIterator[Figure]:
    """Start an agent on a member that has Ingresses with TLS already."""
    async with fleet(target="Pod") as running:
        data = _certificate()
        await _fill(running, count, certificates=lambda _host: data)
        started = time.perf_counter()
        await running.agent.start()

        async def done() -> bool:
            return await programmed(running, count)

        await until_true(done, what="first sync of Ingresses", timeout_s=600, every_s=0.5)
        yield Figure(
            name=f"first sync of {count:,} Ingresses with TLS, until Envoy has acknowledged all",
            value=time.perf_counter() - started, unit="s", limit=15,
        )  # fmt: skip


async def idle(count: int = 1000, seconds: float = 60.0) -> AsyncIterator[Figure]:
    """Look at what is written and pushed while nothing happens."""
    async with fleet(target="Pod") as running, filled_with(running, count):
        await asyncio.sleep(10)
        versions, pushed = await _versions(running), await pushes(running)
        await asyncio.sleep(seconds)
        after = await _versions(running)
        written = sum(versions.get(key) != after.get(key) for key in versions.keys() | after.keys())
        what = f"in {seconds:g} s of idling with {count:,} Ingresses"
        yield Figure(name=f"objects written {what}", value=written, unit="writes", limit=0)
        yield Figure(name=f"xDS resources pushed {what}", value=await pushes(running) - pushed, unit="", limit=0)


@asynccontextmanager
async def filled_with(
    running: Fleet, count: int, certificates: Callable[[str], JSONObject] | None = None, *, one_secret: bool = False
) -> AsyncGenerator[None]:
    """Fill a fleet, with the data of a Secret for each host where they are given, and wait until all is programmed.

    ``one_secret``: all hosts are served with the certificate of the first.
    """
    runners = [await backend(name, address) for name, address in BACKENDS.items()]
    try:
        await _fill(running, count, certificates=certificates, one_secret=one_secret)
        await running.agent.start()

        async def done() -> bool:
            return await programmed(running, count)

        await until_true(done, what=f"{count} Ingresses are programmed", timeout_s=1200, every_s=0.5)
        await settled(running)
        yield
    finally:
        for runner in runners:
            await runner.cleanup()


async def _fill(
    running: Fleet, count: int, *, certificates: Callable[[str], JSONObject] | None, one_secret: bool = False
) -> None:
    member = running.member_cluster
    body: JSONObject = {"metadata": {"name": "fairlead"}, "spec": {"controller": INGRESS_CONTROLLER}}
    objects: list[tuple[AnyResource, JSONObject]] = [(INGRESS_CLASSES, body)]
    for name, address in BACKENDS.items():
        ports = [{"port": 80, "targetPort": BACKEND_PORT}]
        objects.append((SERVICES, {**_meta(name), "spec": {"type": "ClusterIP", "ports": ports}}))
        labels = {"kubernetes.io/service-name": name}
        objects.append(
            (
                ENDPOINT_SLICES,
                {
                    "metadata": {"name": f"{name}-1", "namespace": "default", "labels": labels},
                    "addressType": "IPv4",
                    "ports": [{"port": BACKEND_PORT, "protocol": "TCP"}],
                    "endpoints": [{"addresses": [address], "conditions": {"ready": True}}],
                },
            )
        )
    for number in range(count):
        host = HOST if number == 0 else f"h{number}.example.com"
        name = "probe" if number == 0 else f"i{number}"
        secret = "" if certificates is None else ONE_SECRET if one_secret else name
        if certificates is not None and (number == 0 or not one_secret):
            data = certificates(host)
            objects.append((SECRETS, {**_meta(secret), "type": "kubernetes.io/tls", "data": data}))
        objects.append((INGRESSES, _ingress(name, host, "first", secret=secret)))
    slots = asyncio.Semaphore(_AT_ONCE)

    async def create(resource: AnyResource, each: JSONObject) -> None:
        async with slots:
            await member.create(resource, each)

    await asyncio.gather(*(create(resource, each) for resource, each in objects))


def _meta(name: str) -> JSONObject:
    return {"metadata": {"name": name, "namespace": "default"}}


def _ingress(name: str, host: str, service: str, *, secret: str = "") -> JSONObject:
    backend = {"service": {"name": service, "port": {"number": 80}}}
    paths = [{"path": "/", "pathType": "Prefix", "backend": backend}]
    spec: JSONObject = {"ingressClassName": "fairlead", "rules": [{"host": host, "http": {"paths": paths}}]}
    if secret:
        spec["tls"] = [{"hosts": [host], "secretName": secret}]
    return {**_meta(name), "spec": spec}


def _certificate() -> JSONObject:
    """Return the data of a Secret; the hosts share it, as what is measured is how many there are."""
    with tempfile.TemporaryDirectory() as name:
        key, chain = Path(name) / "k", Path(name) / "c"
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days",
             "30", "-subj", "/CN=example.com", "-addext", "subjectAltName=DNS:*.example.com",
             "-keyout", str(key), "-out", str(chain)],
            check=True, capture_output=True,
        )  # fmt: skip
        return {
            "tls.crt": base64.b64encode(chain.read_bytes()).decode(),
            "tls.key": base64.b64encode(key.read_bytes()).decode(),
        }


async def backend(name: str, address: str) -> web.AppRunner:
    async def answer(_request: web.Request) -> web.Response:
        return web.Response(text=name)

    app = web.Application()
    app.router.add_get("/", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, address, BACKEND_PORT).start()
    return runner


async def programmed(running: Fleet, count: int) -> bool:
    """Say whether Envoy has all routes, and a usable certificate for each listener that needs one."""
    load_balancers = await running.hub_cluster.list(HTTP_LOAD_BALANCERS)
    there = bool(load_balancers) and all(
        lb.status.routes == count
        and not lb.status.refused
        and {"Programmed", "ResolvedRefs"}
        <= {
            each.type
            for each in lb.status.conditions or ()
            if each.status == "True" and each.observed_generation == lb.metadata.generation
        }
        for lb in load_balancers
    )
    return there and len(await running.hub_cluster.list(LOAD_BALANCER_ROUTES)) == count


async def settled(running: Fleet, *member_kinds: AnyResource) -> None:
    """Wait until nothing more is written: names and statuses of thousands of Ingresses follow their routes."""
    before: dict[str, str] = {}

    async def quiet() -> bool:
        nonlocal before
        last, before = before, await _versions(running, *member_kinds)
        return last == before

    await until_true(quiet, what="nothing more is written", timeout_s=600, every_s=3)


async def address_of(running: Fleet) -> str:
    """Return the address of the load balancer."""
    probe = await running.member_cluster.get(INGRESSES, "default", "probe")
    shown = [each.ip for each in probe.status.load_balancer.ingress or () if each.ip]
    if not shown:
        (load_balancer,) = await running.hub_cluster.list(HTTP_LOAD_BALANCERS)
        return load_balancer.status.address
    return shown[0]


async def answers(session: aiohttp.ClientSession, url: str, expected: str) -> None:
    """Ask for the probe's host at ``url`` until the expected backend answers."""

    async def as_expected() -> bool:
        try:
            async with session.get(url, headers={"Host": HOST}, server_hostname=HOST, ssl=False) as answer:
                return answer.status == 200 and await answer.text() == expected
        except aiohttp.ClientError:
            return False

    await until_true(as_expected, what=f"{expected} answers", timeout_s=60, every_s=0.0005)


async def _versions(running: Fleet, *member_kinds: AnyResource) -> dict[str, str]:
    """Return the resourceVersion of what Ingresses, or ``member_kinds``, are about, at both API servers."""
    kinds: dict[str, tuple[AnyResource, ...]] = {
        "hub": (HTTP_LOAD_BALANCERS, LOAD_BALANCER_ROUTES, ENDPOINT_SLICES),
        "member": member_kinds or (INGRESSES, SERVICES, ENDPOINT_SLICES),
    }
    versions: dict[str, str] = {}
    for place, cluster in (("hub", running.hub_cluster), ("member", running.member_cluster)):
        for resource in kinds[place]:
            for item in await cluster.list(resource):
                versions[f"{place}/{resource.plural}/{item.key}"] = item.metadata.resource_version
    return versions


async def pushes(running: Fleet) -> float:
    """Return how many responses have changed a resource of Envoy."""
    return (await running.metrics()).get("fairlead_xds_changing_pushes_total", float("nan"))
