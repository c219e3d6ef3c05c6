"""Requests to the embedded API server, as the holder of a tenant's kubeconfig may send them, and raw bytes.

An input is ``[method, path, query, headers, body]`` as JSON; the body is JSON or text. Any other input is
sent unchanged, instead of a request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import msgspec

from podless.failure import ApiFailure
from podless.http.parse import parse_any
from tests.fuzz.fuzz_api_victim import LBS, NS, Victim, request
from tests.fuzz.fuzz_harness import Read, Target, plain

#: A real server answers with these, too: what is asked for is not there yet, and there is no room.
_HONEST = {504, 507}


def _texts(value: Any) -> dict[str, str]:
    """Return what can be sent of a mapping: no line ends, because they would make it another request."""
    if not isinstance(value, dict):
        return {}
    clean = {str(key): str(item) for key, item in value.items()}
    return {key: item for key, item in clean.items() if key.isidentifier() or "-" in key if key.isascii()}


def _request_of(raw: bytes) -> bytes | None:
    try:
        parts = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(parts, list) or len(parts) != 5 or not all(isinstance(part, str) for part in parts[:2]):
        return None
    method, path, query, headers, body = parts
    if method not in {"GET", "POST", "PUT", "PATCH", "DELETE"}:
        return None
    heads = {
        key: "".join(char for char in text if char.isprintable()).strip()[:4000]
        for key, text in _texts(headers).items()
        if key.lower() not in {"content-length", "transfer-encoding", "host", "connection", "expect", "upgrade"}
    }
    fields = {key: text for key, text in _texts(query).items() if key != "watch"}
    try:
        return request(method, "/" + path.lstrip("/")[:2000], fields, heads, body)
    except (RecursionError, UnicodeEncodeError):
        return None


@contextmanager
def _victim() -> Generator[Read]:
    loop, victim = asyncio.new_event_loop(), Victim()
    loop.run_until_complete(victim.start())

    async def exchange(raw: bytes) -> str:
        sent = _request_of(raw)
        if sent is None:
            await victim.send_and_leave(raw)
            return "bytes"
        status, body = await victim.send(sent)
        assert status < 500 or status in _HONEST, (status, body[:500])
        assert len(body) < 3_000_000, f"{len(body)} bytes are answered to {len(raw)}"
        ask = request("GET", f"{NS}/configmaps/sentinel", {}, {}, None)
        there, what = await victim.send(ask)
        if there == 0:  # the connection was ended with the last answer, or instead of it
            there, what = await victim.send(ask)
        if there == 404:  # it may be deleted, and its namespace too
            await victim.send(request("POST", "/api/v1/namespaces", {}, {}, {"metadata": {"name": "ns"}}))
            again = {"metadata": {"name": "sentinel"}, "data": {"a": "b"}}
            await victim.send(request("POST", f"{NS}/configmaps", {}, {}, again))
        else:
            assert there == 200, (there, what[:500])
        text = body.replace(b"ns", b"").split()
        return f"{status} {b' '.join(text)[:60].decode(errors='replace')}"

    try:
        yield lambda raw: loop.run_until_complete(exchange(raw))
    finally:
        victim.drop()
        loop.run_until_complete(victim.server.stop())
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


def _case(method: str, path: str, body: Any = None, media: str = "application/json", **query: str) -> bytes:
    return msgspec.json.encode([method, path, query, {"Content-Type": media}, body])


_APPLIED = {
    "apiVersion": "fairlead.dev/v1alpha1",
    "kind": "TCPLoadBalancer",
    "spec": {"ports": [{"port": 80}, {"port": 81}]},
}
_META = {
    "name": "x",
    "generateName": "y-",
    "labels": {"a": "b"},
    "annotations": {"c": "d"},
    "finalizers": ["a/b"],
    "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "b", "controller": True}],
    "managedFields": [
        {
            "manager": "m",
            "operation": "Update",
            "apiVersion": "v1",
            "time": "2020-01-01T00:00:00Z",
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:data": {"f:k": {}, 'k:{"a":1}': {".": {}}}},
        }
    ],
}
_TOKENS = tuple(
    word.encode()
    for word in (
        "metadata",
        "spec",
        "status",
        "labels",
        "finalizers",
        "ownerReferences",
        "managedFields",
        "resourceVersion",
        "fieldSelector",
        "labelSelector",
        "limit",
        "continue",
        "/status",
        "/spec/ports/-",
        "%2f",
        "%00",
        "..",
        "$patch",
        "$retainKeys",
        "$setElementOrder/ports",
        "$deleteFromPrimitiveList/finalizers",
        '"op":"copy"',
    )
)

TARGETS = (
    Target(
        "api-requests",
        (
            _case("GET", f"{NS}/configmaps", limit="1", labelSelector="a=b", fieldSelector="metadata.name=a"),
            _case("GET", f"{NS}/configmaps", limit="1", **{"continue": "a" * 16, "resourceVersion": "5"}),
            _case("GET", f"{NS}/services/web", resourceVersion="0"),
            _case("GET", "/openapi/v3/api/v1"),
            _case("GET", "/apis/fairlead.dev/v1alpha1"),
            _case("POST", f"{NS}/configmaps", {"metadata": _META, "data": {"k": "v"}}, fieldManager="a", dryRun="All"),
            _case("POST", f"{NS}/configmaps", {"metadata": {"generateName": "a-"}, "data": {"k": "v"}}),
            _case("POST", f"{NS}/services", {"metadata": _META, "spec": {"ports": [{"port": 1}], "clusterIP": "None"}}),
            _case(
                "POST", f"{NS}/secrets", {"metadata": {"name": "s"}, "data": {"a": "YQ=="}, "stringData": {"b": "c"}}
            ),
            _case("POST", f"{NS}/pods", {"metadata": _META, "spec": {"containers": [{"name": "a", "image": "b"}]}}),
            _case(
                "POST", f"{NS}/serviceaccounts/default/token", {"spec": {"audiences": ["a"], "expirationSeconds": 600}}
            ),
            _case("POST", LBS, {"metadata": _META, **_APPLIED}, fieldValidation="Strict"),
            _case("PUT", f"{LBS}/lb/status", {"metadata": {"name": "lb"}, "status": {"conditions": []}}),
            _case("DELETE", f"{LBS}/lb", {"preconditions": {"uid": "x", "resourceVersion": "1"}, "dryRun": ["All"]}),
            _case("DELETE", f"{NS}/pods", {"propagationPolicy": "Foreground"}, labelSelector="a"),
            _case(
                "POST",
                "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
                {"spec": {"resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "a"}}},
            ),
            _case(
                "POST",
                "/apis/authorization.k8s.io/v1/subjectaccessreviews",
                {"spec": {"user": "a", "groups": ["b"], "nonResourceAttributes": {"verb": "get", "path": "/"}}},
            ),
            _case("POST", "/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": "a", "audiences": ["b"]}}),
            _case("POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", {"spec": {"namespace": "ns"}}),
            _case(
                "POST",
                "/apis/discovery.k8s.io/v1/namespaces/ns/endpointslices",
                {
                    "metadata": {"name": "e"},
                    "addressType": "IPv4",
                    "endpoints": [{"addresses": ["10.0.0.1"]}],
                    "ports": [{"port": 80, "name": "a"}],
                },
            ),
            _case(
                "POST",
                "/apis/coordination.k8s.io/v1/namespaces/ns/leases",
                {
                    "metadata": {"name": "l"},
                    "spec": {"renewTime": "2020-01-01T00:00:00.000000Z", "leaseTransitions": 1},
                },
            ),
            msgspec.json.encode(
                [
                    "GET",
                    f"{NS}/configmaps",
                    {},
                    {
                        "Accept": "application/json;as=Table;v=v1;g=meta.k8s.io",
                        "User-Agent": "a/b",
                        "Impersonate-User": "a",
                    },
                    None,
                ]
            ),
            b"GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer \xff\xfe\r\n\r\n",
            b"POST /api/v1/namespaces HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\n\r\n",
        ),
        _victim,
        tokens=_TOKENS,
        cpu_s=5.0,
        quick=600,
    ),
    Target(
        "api-patches",
        (
            _case(
                "PATCH",
                f"{LBS}/lb",
                [
                    {"op": "copy", "from": "/spec", "path": "/metadata/labels"},
                    {"op": "test", "path": "/spec/ports/0/port", "value": 80},
                    {"op": "remove", "path": "/spec/ports/0"},
                ],
                "application/json-patch+json",
            ),
            _case(
                "PATCH",
                f"{NS}/services/web",
                [
                    {"op": "move", "from": "/spec/ports/0", "path": "/spec/ports/-"},
                    {"op": "add", "path": "/spec/ports/1", "value": {"port": 7}},
                ],
                "application/json-patch+json",
            ),
            _case(
                "PATCH",
                f"{LBS}/lb",
                {"metadata": _META | {"name": "lb"}, "spec": {"ports": None}},
                "application/merge-patch+json",
            ),
            _case(
                "PATCH",
                f"{NS}/services/web",
                {
                    "metadata": {"finalizers": ["a/b"], "$deleteFromPrimitiveList/finalizers": ["a/b"]},
                    "spec": {
                        "ports": [{"port": 80, "$patch": "delete"}, {"port": 81}],
                        "$setElementOrder/ports": [{"port": 81}],
                        "$retainKeys": ["ports"],
                    },
                },
                "application/strategic-merge-patch+json",
            ),
            _case(
                "PATCH",
                f"{NS}/services/web",
                {
                    "apiVersion": "v1",
                    "kind": "Service",
                    "metadata": {"labels": {"a": "b"}},
                    "spec": {"ports": [{"port": 80, "protocol": "TCP"}, {"port": 80, "protocol": "UDP"}]},
                },
                "application/apply-patch+yaml",
                fieldManager="m",
                force="true",
            ),
            _case("PATCH", f"{LBS}/lb", _APPLIED, "application/apply-patch+yaml", fieldManager="m"),
            _case(
                "PATCH",
                f"{LBS}/lb/status",
                _APPLIED | {"status": {"conditions": [{"type": "A", "status": "True"}]}},
                "application/apply-patch+yaml",
                fieldManager="s",
                force="1",
            ),
            _case(
                "PATCH",
                f"{LBS}/lb",
                "apiVersion: fairlead.dev/v1alpha1\nkind: TCPLoadBalancer\nspec: {ports: [port: 80]}\n",
                "application/apply-patch+yaml",
                fieldManager="m",
            ),
        ),
        _victim,
        tokens=_TOKENS,
        cpu_s=5.0,
        quick=600,
    ),
    Target(
        "yaml-bodies",
        (
            b"a: {b: [1, 2.5, true, ~, 2020-01-01, !!binary YQ==, !!set {x, y}]}\n? [k]\n: v\n",
            b"a: &x [1, 2]\nb: *x\n<<: {c: d}\n",
            b"--- |\n  text\n...\n---\n- >-\n  folded\n",
            b"%YAML 1.1\n%TAG ! tag:x,2000:\n--- !!map {a: !x b}\n",
            b"\"\\u263a \\x41\": 'it''s'\n",
        ),
        plain(lambda raw: parse_any(raw, "application/yaml") is None),
        refusals=(ApiFailure,),
        tokens=(
            b"&a ",
            b"*a",
            b"<<: ",
            b"- ",
            b"? ",
            b": ",
            b"[",
            b"{",
            b"!!python/object:os.system ",
            b"|\n",
            b"\n  ",
        ),
        max_bytes=65_536,
        cpu_s=2.0,
        quick=600,
    ),
)
