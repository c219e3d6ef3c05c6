"""Errors of a cluster and their sentences, retries, sign-in, limits and metrics."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from aiohttp import web
from kube_scripted import QUICK, ScriptedApi, Seen, is_list, method, service, status

from fairlead.api.kubernetes import ENDPOINT_SLICES, NODES, SERVICES
from fairlead.errors import (
    BadConfiguration,
    Conflict,
    Expired,
    FairleadError,
    Forbidden,
    Invalid,
    NamespaceNotFound,
    NotFound,
    NotServed,
    Throttled,
    Unauthorized,
    Unreachable,
)
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import Access, ClusterConfig, bearer
from fairlead.kube.transport import KubeMetrics, RetryPolicy, Transport
from fairlead.runtime.clock import VirtualClock

# --- errors ---------------------------------------------------------------------------------------------------

SENTENCES = [
    (400, "BadRequest", "unable to parse", Invalid, "unable to parse"),
    (401, "Unauthorized", "Unauthorized", Unauthorized, 'user "tester" of kubeconfig test'),
    (403, "Forbidden", "no", Forbidden, 'user "tester" lacks the right to "get" services in namespace "a"'),
    (
        403,
        "Forbidden",
        'services "b" is forbidden: unable to create new content in namespace a because it is being terminated',
        NamespaceNotFound,
        'namespace "a" is being deleted',
    ),
    (409, "Conflict", 'conflict with "kubectl"', Conflict, 'conflict with "kubectl"'),
    (410, "Expired", "too old", Expired, "it has expired"),
    (415, "UnsupportedMediaType", "no yaml", Invalid, "no yaml"),
    (422, "Invalid", "spec.ports: Required value", Invalid, "spec.ports: Required value"),
    (429, "TooManyRequests", "slow", Throttled, "slow down"),
    (500, "InternalError", "etcd", Unreachable, "answered 500 (etcd)"),
    (503, "ServiceUnavailable", "starting", Unreachable, "answered 503"),
    (302, "", "", BadConfiguration, "redirect"),
]


@pytest.mark.req("CORE-02")
@pytest.mark.parametrize(
    ("code", "verb", "limit"),
    [(200, "get", "LINE"), (200, "list", "ANSWER"), (500, "get", "ERROR"), (500, "watch", "ERROR")],
)
async def test_an_answer_without_end_is_not_read_to_its_end(
    api: ScriptedApi, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, code: int, verb: str, limit: str
) -> None:
    for name in ("LINE", "ANSWER", "ERROR"):
        limit_bytes = (1 if name == limit else 64) * 2**20
        monkeypatch.setattr(f"fairlead.kube.transport.{name}_LIMIT_BYTES", limit_bytes)
    sent = 0

    async def spaces() -> AsyncGenerator[bytes]:
        nonlocal sent
        while sent < 2**27:
            yield b" " * 2**16
            sent += 2**16

    async def endless(_seen: Seen) -> web.StreamResponse:
        nonlocal sent
        sent = 0
        return web.Response(status=code, body=spaces(), content_type="application/json")

    api.fault(method("GET"), endless, times=99)

    async def watch() -> None:
        async with cluster.watch(SERVICES, "", params={}, idle_s=9.0):
            pytest.fail("the watch was opened")

    calls = {"get": lambda: cluster.get(SERVICES, "a", "web"), "list": lambda: cluster.list(SERVICES), "watch": watch}
    with pytest.raises(Unreachable, match="more than 1 MiB"):
        await calls[verb]()
    assert sent < 2**27


@pytest.mark.parametrize(("code", "reason", "message", "kind", "text"), SENTENCES)
async def test_every_answer_has_a_class_and_a_sentence(
    api: ScriptedApi, cluster: Cluster, code: int, reason: str, message: str, kind: type[FairleadError], text: str
) -> None:
    api.answer(method("GET"), code, reason, message, times=99)
    with pytest.raises(kind) as caught:
        await cluster.get(SERVICES, "a", "web")
    assert type(caught.value) is kind
    assert text in caught.value.sentence
    assert caught.value.sentence.startswith("Cannot get services a/web at one (127.0.0.1:")
    assert caught.value.sentence.endswith((".", "]"))


async def test_missing_parts_are_named(api: ScriptedApi, cluster: Cluster) -> None:
    with pytest.raises(NotFound, match="there is no such object"):
        await cluster.get(SERVICES, "a", "x")

    async def no_namespace(_seen: Seen) -> web.Response:
        return status(404, "NotFound", 'namespaces "b" not found', name="b", kind="namespaces")

    api.fault(method("POST"), no_namespace)
    with pytest.raises(NamespaceNotFound, match='namespace "b" does not exist'):
        await cluster.create(SERVICES, service("web", "b"))

    async def no_kind(_seen: Seen) -> web.Response:
        return web.Response(status=404, text="404 page not found")

    api.fault(method("GET"), no_kind)
    with pytest.raises(NotServed, match=r"does not serve EndpointSlice in discovery\.k8s\.io/v1"):
        await cluster.list(ENDPOINT_SLICES)


async def test_a_missing_right_is_the_rbac_rule_to_add(api: ScriptedApi, cluster: Cluster) -> None:
    api.answer(lambda _: True, 403, "Forbidden", times=99)
    with pytest.raises(Forbidden) as caught:
        await cluster.apply(SERVICES, service("web"), manager="m", subresource="status")
    assert 'apiGroups: [""], resources: ["services/status"], verbs: ["patch"]' in caught.value.sentence
    with pytest.raises(Forbidden, match="ClusterRole"):
        await cluster.list(NODES)


async def test_a_refused_connection_names_host_and_kubeconfig() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = ClusterConfig(server=f"http://127.0.0.1:{port}", source="kubeconfig /home/me/config")
    async with Cluster(config, name="one", policy=QUICK) as cluster:
        with pytest.raises(Unreachable, match=rf"127\.0\.0\.1:{port} refuses connections.*/home/me/config"):
            await cluster.get(SERVICES, "a", "x")


@pytest.mark.req("I-1")
@pytest.mark.parametrize("code", [200, 403, 404, 500, 502, 503])
@pytest.mark.parametrize("verb", ["GET", "DELETE", "PATCH"])
async def test_a_page_of_html_is_not_an_answer_of_the_api(
    api: ScriptedApi, cluster: Cluster, code: int, verb: str
) -> None:
    async def page(_seen: Seen) -> web.Response:
        return web.Response(status=code, text="<html>\n<body>Please log in</body>\n", content_type="text/html")

    api.fault(method(verb), page, times=99)
    api.put("services", service("web"))
    calls = {
        "GET": lambda: cluster.get(SERVICES, "a", "web"),
        "DELETE": lambda: cluster.delete(SERVICES, "a", "web"),
        "PATCH": lambda: cluster.merge_patch(SERVICES, "a", "web", {}),
    }
    with pytest.raises(Unreachable, match=rf"answered with a page of HTML \({code}\)\. Is there a proxy"):
        await calls[verb]()


@pytest.mark.req("I-1")
@pytest.mark.parametrize(
    "body",
    [
        "{}",
        "null",
        "[]",
        '{"error": "login required"}',
        "logged out",
        '{"kind": "Status", "status": "Failure"}',
        '{"metadata": {"name": "other", "namespace": "a", "resourceVersion": "1"}}',
        '{"metadata": {"name": "web", "namespace": "other", "resourceVersion": "1"}, "kind": 3}',
        '{"x": ' + '{"a":' * 1_500 + "1" + "}" * 1_501,
    ],
)
async def test_an_answer_without_an_object_is_not_the_apis(api: ScriptedApi, cluster: Cluster, body: str) -> None:
    """A Lease without a holder would be free, and what was not deleted would count as gone."""

    async def other(_seen: Seen) -> web.Response:
        return web.Response(text=body, content_type="application/json")

    api.fault(lambda _: True, other, times=99)
    for call in (cluster.get(SERVICES, "a", "web"), cluster.delete(SERVICES, "a", "web")):
        with pytest.raises(Unreachable, match="Is there a proxy or a login page in between"):
            await call


async def test_an_unexpected_shape_is_invalid(api: ScriptedApi, cluster: Cluster) -> None:
    api.put("services", service("web", port="eighty"))
    with pytest.raises(Invalid, match="expected shape"):
        await cluster.get(SERVICES, "a", "web")


# --- retries --------------------------------------------------------------------------------------------------


async def test_429_waits_as_long_as_asked_also_for_create(api: ScriptedApi) -> None:
    clock = VirtualClock()
    async with api.cluster(clock=clock, policy=RetryPolicy(deadline_s=60)) as cluster:
        api.answer(method("POST"), 429, times=2, headers={"Retry-After": "7"})
        task = asyncio.create_task(cluster.create(SERVICES, service("web")))
        await clock.advance_until(task.done)
        assert (await task).metadata.name == "web"
        assert clock.monotonic() >= 14


@pytest.mark.req("B19")
async def test_5xx_is_retried_for_what_may_be_done_twice(api: ScriptedApi, cluster: Cluster) -> None:
    api.put("services", service("web"))
    for verb in ("GET", "PUT", "PATCH"):
        api.answer(method(verb), 503, times=2)
    await cluster.get(SERVICES, "a", "web")
    await cluster.replace(SERVICES, service("web"))
    await cluster.apply(SERVICES, service("web"), manager="m")
    assert len(api.seen) == 9


@pytest.mark.parametrize("headers", [{}, {"Retry-After": "0"}])
async def test_5xx_on_create_is_retried_only_when_the_server_says_so(
    api: ScriptedApi, cluster: Cluster, headers: dict[str, str]
) -> None:
    api.answer(method("POST"), 503, headers=headers)
    if headers:
        await cluster.create(SERVICES, service("web"))
    else:
        with pytest.raises(Unreachable):
            await cluster.create(SERVICES, service("web"))
    assert len(api.seen) == 1 + bool(headers)


async def test_retries_end(api: ScriptedApi, cluster: Cluster) -> None:
    api.answer(method("GET"), 500, times=99)
    with pytest.raises(Unreachable):
        await cluster.get(SERVICES, "a", "x")
    assert len(api.seen) == QUICK.attempts


async def test_the_deadline_ends_them_sooner(api: ScriptedApi) -> None:
    clock = VirtualClock()
    async with api.cluster(clock=clock, policy=RetryPolicy(deadline_s=30)) as cluster:
        api.answer(method("GET"), 429, times=99, headers={"Retry-After": "20"})
        task = asyncio.create_task(cluster.get(SERVICES, "a", "x"))
        await clock.advance_until(task.done)
        with pytest.raises(Throttled) as caught:
            await task
        assert caught.value.after_s == 20
        assert len(api.seen) == 2


async def test_an_attempt_has_what_is_left_until_the_deadline(
    api: ScriptedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second attempt that hangs would otherwise have the whole time once more."""
    clock, limits = VirtualClock(), []
    attempt = Transport._attempt

    async def slow(self: Transport, *args: Any, limit_s: float) -> Any:
        limits.append(limit_s)
        clock.jump(25)
        return await attempt(self, *args, limit_s=limit_s)

    monkeypatch.setattr(Transport, "_attempt", slow)
    policy = RetryPolicy(base_s=0.0, deadline_s=60, attempts=9)
    async with api.cluster(clock=clock, policy=policy) as cluster:
        api.answer(lambda _: True, 503, "ServiceUnavailable", "starting", times=9)
        with pytest.raises(Unreachable):
            await cluster.list(SERVICES)
    assert limits == [60, 35, 10]


async def test_a_broken_connection_is_retried(api: ScriptedApi, cluster: Cluster) -> None:
    api.put("services", service("web"))

    requests: list[web.Request] = []
    original = api._handle

    async def handle(request: web.Request) -> web.StreamResponse:
        requests.append(request)
        if len(requests) == 1:
            assert request.transport
            request.transport.abort()
        return await original(request)

    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", handle)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    async with Cluster(ClusterConfig(server=url), name="one", policy=QUICK) as other:
        assert (await other.apply(SERVICES, service("web"), manager="m")).metadata.name == "web"
    assert len(requests) == 2
    await runner.cleanup()


# --- sign-in --------------------------------------------------------------------------------------------------


async def test_after_401_fresh_credentials_are_used_and_streams_stay_open(api: ScriptedApi) -> None:
    tokens = ["old", "new"]
    current = Access(headers={"Authorization": "Bearer old"})
    asked: list[Access | None] = []

    async def sign_in(refused: Access | None) -> Access:
        nonlocal current
        asked.append(refused)
        if refused is current:
            current = Access(headers={"Authorization": f"Bearer {tokens[-1]}"})
        return current

    api.put("services", service("web"))
    config = ClusterConfig(server=api.url, sign_in=sign_in)
    async with api.cluster(config=config) as cluster:
        async with cluster.watch(SERVICES, "", params={"resourceVersion": "0"}, idle_s=5) as chunks:
            assert b"web" in await anext(chunks)
            api.answer(lambda s: s.headers.get("Authorization") == "Bearer old", 401, "Unauthorized", times=99)
            await asyncio.gather(*(cluster.get(SERVICES, "a", "web") for _ in range(5)))
            api.put("services", service("later"))
            assert b"later" in await anext(chunks)
        await cluster.get(SERVICES, "a", "web")
    assert api.seen[-1].headers["Authorization"] == "Bearer new"


async def test_credentials_that_stay_refused_are_an_error_at_once(api: ScriptedApi, cluster: Cluster) -> None:
    api.answer(method("GET"), 401, "Unauthorized", times=99)
    with pytest.raises(Unauthorized):
        await cluster.get(SERVICES, "a", "x")
    assert len(api.seen) == 1


@pytest.mark.req("X-45")
async def test_an_expired_key_of_an_agent_names_its_end_and_the_command_that_renews_it(api: ScriptedApi) -> None:
    claims = {"sub": "system:serviceaccount:tenant-east:fairlead-agent", "iat": 1000, "exp": 4600}
    token = ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode() for part in ({}, claims, ""))
    api.answer(method("GET"), 401, "Unauthorized", times=99)
    async with api.cluster(config=ClusterConfig(server=api.url, sign_in=bearer(token))) as cluster:
        with pytest.raises(Unauthorized) as of_call:
            await cluster.get(SERVICES, "a", "x")
        with pytest.raises(Unauthorized) as of_stream:
            async with cluster.watch(SERVICES, "", params={"resourceVersion": "0"}, idle_s=5):
                pass
    for refused in (of_call, of_stream):
        assert "1970-01-01T01:16:40Z" in refused.value.sentence
        assert "fairlead tenant rotate east" in refused.value.sentence
        assert token not in refused.value.sentence


async def test_a_sign_in_that_fails_for_now_is_a_retry_with_the_request_named(api: ScriptedApi) -> None:
    async def sign_in(_refused: Access | None) -> Access:
        raise Unreachable("the plugin failed.", detail="exit 1")

    async with api.cluster(config=ClusterConfig(server=api.url, sign_in=sign_in)) as cluster:
        with pytest.raises(Unreachable, match=r"Cannot get services a/x at one .*: the plugin failed"):
            await cluster.get(SERVICES, "a", "x")


async def test_no_credential_shows_in_a_repr() -> None:
    access = Access(headers={"Authorization": "Bearer s3cr3t"})
    assert "s3cr3t" not in repr(access)
    assert "s3cr3t" not in repr(ClusterConfig(server="https://x"))


# --- limits and metrics ---------------------------------------------------------------------------------------


async def test_requests_are_spread_by_the_token_bucket(api: ScriptedApi) -> None:
    clock = VirtualClock()
    async with api.cluster(clock=clock, qps=10) as cluster:
        task = asyncio.create_task(_many(cluster, 30))
        await clock.advance_until(task.done, step_s=0.1)
        assert clock.monotonic() >= 1.0


async def _many(cluster: Cluster, count: int) -> None:
    await asyncio.gather(*(cluster.list(SERVICES) for _ in range(count)))


async def test_requests_are_counted_by_verb_resource_and_code(api: ScriptedApi) -> None:
    metrics = KubeMetrics()
    async with api.cluster(metrics=metrics) as first, api.cluster(name="two", metrics=metrics) as two:
        api.answer(is_list, 503)
        await first.list(ENDPOINT_SLICES)
        await two.list(SERVICES)

    def count(cluster: str, resource: str, code: str) -> float | None:
        labels = {"cluster": cluster, "verb": "list", "resource": resource, "code": code}
        return metrics.registry.get_sample_value("fairlead_kube_requests_total", labels)

    assert count("one", "endpointslices.discovery.k8s.io", "503") == 1
    assert count("one", "endpointslices.discovery.k8s.io", "200") == 1
    assert count("two", "services", "200") == 1


async def test_a_closed_cluster_says_so(api: ScriptedApi) -> None:
    cluster = api.cluster()
    await cluster.aclose()
    with pytest.raises(Unreachable, match="closed"):
        await cluster.list(SERVICES)
