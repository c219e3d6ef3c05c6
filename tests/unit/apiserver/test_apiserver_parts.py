"""Do the small parts keep their word? Selectors, columns, names, history, watchers, tokens, certificates and bodies."""

import asyncio
import ssl
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.apiserver import cooperative_yield
from fairlead.apiserver.auth.identity import User
from fairlead.apiserver.auth.rbac import AccessRequest, PolicyRule
from fairlead.apiserver.auth.tokens import TokenSigner
from fairlead.apiserver.certificate import make_certificate
from fairlead.apiserver.failure import ApiFailure
from fairlead.apiserver.http.info import parse
from fairlead.apiserver.http.protobuf import MAGIC, ProtobufReader
from fairlead.apiserver.http.watcher import MAX_EVENTS, Watcher
from fairlead.apiserver.kinds.allocations import NODE_PORTS, Allocations
from fairlead.apiserver.kinds.columns import human_duration
from fairlead.apiserver.kinds.jsonpath import find
from fairlead.apiserver.kinds.jsonpath import parse as parse_path
from fairlead.apiserver.kinds.names import check_key, check_labels, check_name
from fairlead.apiserver.schema.builtin import BuiltinSchemas
from fairlead.apiserver.selectors import Selection, parse_labels
from fairlead.apiserver.store import history
from fairlead.apiserver.store.entry import WatchEvent, entry_of
from fairlead.apiserver.store.history import History
from fairlead.apiserver.store.journal import MemoryJournal
from fairlead.apiserver.store.store import ObjectStore


def event(rv: int, type_: str = "ADDED", **labels: str) -> WatchEvent:
    obj = {"kind": "X", "apiVersion": "v1", "metadata": {"name": f"n{rv}", "namespace": "ns", "labels": labels}}
    return WatchEvent(rv, type_, entry_of(obj, rv), None)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "<invalid>"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (125, "2m5s"),
        (600, "10m"),
        (3 * 3600, "3h"),
        (3 * 3600 + 60, "3h1m"),
        (8 * 3600 + 60, "8h"),
        (2 * 86400, "2d"),
        (2 * 86400 + 3600, "2d1h"),
        (8 * 86400 + 3600, "8d"),
        (3 * 365 * 86400, "3y"),
        (3 * 365 * 86400 + 86400, "3y1d"),
        (9 * 365 * 86400, "9y"),
    ],
)
def test_ages(seconds: int, text: str) -> None:
    assert human_duration(seconds) == text


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".a.b", [1]),
        ("{.a.b}", [1]),
        (".a['c.d']", [2]),
        (r".a.c\.d", [2]),
        (".l[0].n", ["x"]),
        (".l[-1].n", ["y"]),
        (".l[*].n", ["x", "y"]),
        ('.l[?(@.n=="y")].v', [2]),
        ('.l[?(@.n!="y")].v', [1]),
        (".l[?(@.v)].n", ["x", "y"]),
        (".none.at.all", []),
        (".l[7]", []),
    ],
)
def test_json_paths(path: str, found: list[Any]) -> None:
    obj = {"a": {"b": 1, "c.d": 2}, "l": [{"n": "x", "v": 1}, {"n": "y", "v": 2}]}
    assert find(parse_path(path), obj) == found


def test_a_json_path_beyond_the_subset() -> None:
    with pytest.raises(ValueError, match="is not a JSON path"):
        parse_path("..a")


@pytest.mark.parametrize(
    ("value", "style", "good"),
    [
        ("a-b", "dns1035", True),
        ("1a", "dns1035", False),
        ("1a", "label", True),
        ("a.b", "subdomain", True),
        ("a.b", "label", False),
        ("a..b", "subdomain", False),
        ("x" * 254, "subdomain", False),
        ("system:x", "path", True),
        ("a/b", "path", False),
        ("..", "path", False),
    ],
)
def test_names(value: str, style: str, good: bool) -> None:
    assert (check_name(value, style, "metadata.name") == []) is good


@pytest.mark.parametrize("key", ["a", "a/b", "example.com/A_b.c"])
def test_legal_keys(key: str) -> None:
    assert check_key(key, "x") == []


@pytest.mark.parametrize("key", ["", "a/", "UP.com/a", "x" * 64, "-a", "a b"])
def test_illegal_keys(key: str) -> None:
    assert check_key(key, "x")


def test_label_values() -> None:
    assert check_labels({"a": "", "b": "X_y.z"}, "l") == []
    assert len(check_labels({"a": "x" * 64, "b": "no spaces"}, "l")) == 2


@given(st.dictionaries(st.sampled_from("abc"), st.sampled_from("xyz")), st.sampled_from("abc"), st.sampled_from("xyz"))
def test_selectors_and_their_opposites(labels: dict[str, str], key: str, value: str) -> None:
    def matches(text: str) -> bool:
        return all(term.matches(labels) for term in parse_labels(text))

    assert matches(f"{key}={value}") is not matches(f"{key}!={value}")
    assert matches(f"{key} in ({value})") is not matches(f"{key} notin ({value})")
    assert matches(key) is not matches(f"!{key}")


def test_history_is_bounded_and_knows_what_it_forgot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "MAX_EVENTS", 3)
    kept = History(0)
    for rv in range(1, 6):
        kept.add(event(rv))
    assert kept.after(1) is None
    assert [e.rv for e in kept.after(2) or []] == [3, 4, 5]
    assert kept.after(5) == []
    kept.compact(4)
    assert (kept.after(3), [e.rv for e in kept.after(4) or []]) == (None, [5])


def test_the_store_changes_nothing_when_the_journal_refuses() -> None:
    class Refusing(MemoryJournal):
        def put(self, bucket: str, entry: Any) -> None:
            raise ApiFailure(507, "InsufficientStorage", "full")

    store = ObjectStore(Refusing())
    with pytest.raises(ApiFailure):
        store.put("x", {"metadata": {"name": "a"}})
    assert (store.rv, len(store.bucket("x"))) == (0, 0)


async def test_a_slow_watcher_is_cut_off() -> None:
    cut: list[str] = []
    watcher = Watcher(Selection(), lambda: cut.append("off"))
    for rv in range(1, MAX_EVENTS + 2):
        watcher.offer(event(rv))
    assert (cut, watcher.closed, watcher.pending) == (["off"], True, 0)
    watcher.offer(event(9))
    assert await watcher.next(1) == []


async def test_a_watcher_wakes_its_reader() -> None:
    watcher = Watcher(Selection(namespace="ns"), lambda: None)
    assert await watcher.next(0) == []
    waiting = asyncio.create_task(watcher.next(10))
    await asyncio.sleep(0)
    watcher.offer(event(1))
    assert [(type_, e.rv) for type_, e in await waiting] == [("ADDED", 1)]


def test_lines_are_made_once() -> None:
    one = event(1)
    assert one.line("ADDED") is one.line("ADDED")
    assert one.line("ADDED").startswith(b'{"type":"ADDED","object":{"kind":"X"')


def test_tokens_are_bound_to_key_and_time() -> None:
    moment = [1000.0]
    signer = TokenSigner(b"k" * 32, lambda: moment[0])
    token = signer.sign({"sub": "x", "exp": 1010})
    assert (signer.verify(token) or {})["sub"] == "x"
    assert TokenSigner(b"o" * 32, lambda: moment[0]).verify(token) is None
    head, body, mac = token.split(".")
    for forged in ("", "a", f"{head}.{body}.", f"{head}.{body}x.{mac}", f"{body}.{head}.{mac}", "é.é.é"):
        assert signer.verify(forged) is None
    moment[0] = 1010
    assert signer.verify(token) is None


@pytest.mark.parametrize(
    ("ask", "allowed"),
    [
        (AccessRequest("get", "", "services"), True),
        (AccessRequest("get", "", "services", "status"), False),
        (AccessRequest("list", "", "services"), False),
        (AccessRequest("get", "apps", "services"), False),
    ],
)
def test_rules(ask: AccessRequest, allowed: bool) -> None:
    assert PolicyRule(("get",), ("",), ("services",)).allows(ask) is allowed


def test_rules_with_wildcards_names_and_urls() -> None:
    assert PolicyRule(("*",), ("*",), ("*/status",)).allows(AccessRequest("patch", "x", "services", "status"))
    assert not PolicyRule(("get",), ("",), ("services",), names=("a",)).allows(AccessRequest("get", "", "services"))
    assert PolicyRule(("get",), urls=("/api/*",)).allows(AccessRequest("get", path="/api/v1"))
    assert not PolicyRule(("get",), ("*",), ("*",)).allows(AccessRequest("get", path="/api"))
    assert not User("x", groups=("a",)).is_master


def test_node_ports_run_out() -> None:
    free = Allocations()
    assert free.free_port(set()) != free.free_port(set())
    assert free.free_port(set(NODE_PORTS)) is None


@pytest.mark.parametrize(
    ("method", "path", "query", "expected"),
    [
        ("GET", "/api/v1/pods", {}, ("list", "", "v1", "", "pods", "", "")),
        ("GET", "/api/v1/pods", {"watch": "true"}, ("watch", "", "v1", "", "pods", "", "")),
        ("GET", "/api/v1/watch/namespaces/n/pods", {}, ("watch", "", "v1", "n", "pods", "", "")),
        (
            "GET",
            "/apis/apps/v1/namespaces/n/deployments/d/status",
            {},
            ("get", "apps", "v1", "n", "deployments", "d", "status"),
        ),
        ("PUT", "/api/v1/namespaces/n/status", {}, ("update", "", "v1", "", "namespaces", "n", "status")),
        ("DELETE", "/api/v1/namespaces/n/pods", {}, ("deletecollection", "", "v1", "n", "pods", "", "")),
        ("POST", "/api/v1/namespaces", {}, ("create", "", "v1", "", "namespaces", "", "")),
        ("GET", "/apis/apps/v1", {}, ("get", "", "", "", "", "", "")),
    ],
)
def test_urls(method: str, path: str, query: dict[str, str], expected: tuple[str, ...]) -> None:
    info = parse(method, path, query)  # type: ignore[arg-type]
    assert (info.verb, *info[2:]) == expected


def message(number: int, value: bytes) -> bytes:
    return struct.pack("BB", number << 3 | 2, len(value)) + value


def test_protobuf_bodies() -> None:
    reader = ProtobufReader(BuiltinSchemas().definitions)
    labels = message(11, message(1, b"a") + message(2, b"b"))
    meta = message(1, b"web") + message(2, b"") + labels
    port = message(1, b"http") + bytes([3 << 3, 80]) + message(4, bytes([1 << 3, 1]) + message(3, b"name"))
    raw = message(1, meta) + message(2, message(1, port) + bytes([20 << 3 & 0x7F | 0x80, 1, 0]))
    envelope = message(1, message(1, b"v1") + message(2, b"Service")) + message(2, raw)
    assert reader.read(MAGIC + envelope) == {
        "kind": "Service",
        "apiVersion": "v1",
        "metadata": {"name": "web", "labels": {"a": "b"}},
        "spec": {
            "ports": [{"name": "http", "port": 80, "targetPort": "name"}],
            "allocateLoadBalancerNodePorts": False,
        },
    }


@given(st.binary(max_size=60))
def test_broken_protobuf_is_a_bad_request(body: bytes) -> None:
    reader = ProtobufReader({})
    with pytest.raises(ApiFailure) as refused:
        reader.read(MAGIC + body)
    assert refused.value.code == 400


async def test_long_work_yields_to_other_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cooperative_yield, "SLICE_S", 0)
    steps: list[str] = []

    async def work(name: str) -> None:
        pace = cooperative_yield.TimeSlice()
        for _ in range(3):
            steps.append(name)
            await pace.rest()

    await asyncio.gather(work("a"), work("b"))
    assert steps == ["a", "b"] * 3
    monkeypatch.setattr(cooperative_yield, "SLICE_S", 60)
    await asyncio.gather(work("c"), work("d"))
    assert steps[6:] == ["c"] * 3 + ["d"] * 3


def test_certificates_are_trusted_by_openssl() -> None:
    made = make_certificate(["127.0.0.1", "::1", "localhost"], 1_800_000_000)
    shown = ssl.create_default_context(cadata=made.pem).get_ca_certs()[0]
    names = dict.fromkeys(value for _, value in shown["subjectAltName"])  # type: ignore[union-attr]
    assert list(names) == ["127.0.0.1", "0:0:0:0:0:0:0:1", "localhost"]
    assert made.pem != make_certificate(["localhost"], 1_800_000_000).pem
