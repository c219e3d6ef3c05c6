"""JSON in annotations: reading it never raises, whatever the text is."""

from __future__ import annotations

import msgspec
import pytest

from fairlead.api.json_text import decode, decode_leniently, is_cut, read_json, repaired, salvage
from fairlead.api.tcploadbalancer import TCPLoadBalancer


def test_what_can_be_read() -> None:
    assert read_json('{"a": ["192.0.2.7"]}', dict[str, tuple[str, ...]]) == {"a": ("192.0.2.7",)}


@pytest.mark.parametrize(
    "text",
    ["", "{", "null", "[]", '{"a": 1}', '{"a": ' * 100_000, "[" * 100_000, '{"a": [' * 50_000],
    ids=["empty", "cut", "null", "a list", "another type", "deep objects", "deep lists", "both"],
)
def test_what_cannot_is_nothing(text: str) -> None:
    assert read_json(text, dict[str, tuple[str, ...]]) is None


class _Inner(msgspec.Struct, rename="camel"):
    name: str = ""
    port_number: int = 0


class _Outer(msgspec.Struct):
    meta: _Inner = msgspec.field(default_factory=_Inner)
    names: list[str] = msgspec.field(default_factory=list)


@pytest.mark.req("CORE-02")
@pytest.mark.parametrize(
    "text",
    [
        b'{"x": ' + b'{"a":' * 5_000 + b"1" + b"}" * 5_001,
        b"[" * 200_000,
        b'{"names": ["h\xfctte"]}',
        b'{"names": ["\\ud800"]}',
        b'{"meta": {"portNumber": ' + b"9" * 5_000 + b"}}",
        b'{"meta": {"portNumber": 1e999}}',
        b"\xff\xfe\x00",
        b"",
    ],
)
def test_whatever_is_wrong_is_one_error(text: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode(text, _Outer)


@pytest.mark.req("CORE-02")
@pytest.mark.parametrize(
    ("meta", "names"),
    [
        ('"portNumber": "x"', '["a"]'),
        ('"portNumber": 1e999', "[]"),
        ('"portNumber": 7', '["\\ud800", "\\\\ud800"]'),
        ('"portNumber": ' + "[" * 3_000 + "]" * 3_000, "[]"),
        ('"x": ' + '{"a":' * 3_000 + "1" + "}" * 3_000, "7"),
        ('"x": "\\"]}"', "{}"),
    ],
)
def test_fields_next_to_a_wrong_one_are_kept(meta: str, names: str) -> None:
    text = f'{{"meta": {{"name": "web", {meta}}}, "names": {names}, "unknown": "\udcff"}}'
    assert decode_leniently(text.encode(errors="surrogateescape"), _Outer).meta.name == "web"


def test_only_what_is_too_deep_is_cut() -> None:
    shallow = b'{"a": ["}", "\\\\", {"b": [1, "]"]}]}'
    assert repaired(shallow) == shallow
    deep = b'[{"a": ' + b"[" * 500 + b"]" * 500 + b'}, {"b": 1}]'
    assert is_cut(repaired(deep))
    assert decode(repaired(deep), list[dict[str, object]])[1] == {"b": 1}
    assert repaired(b'{"a": "cut off \\') == b'{"a": "cut off \\'


@pytest.mark.req("CORE-03")
def test_what_can_be_read_is_salvaged_and_the_rest_is_named() -> None:
    body = {
        "metadata": {"name": "web", "labels": ["a"]},
        "spec": {"ports": 80, "address": "192.0.2.1"},
        "status": {"allocation": {"address": "192.0.2.1"}, "heldTotal": "many"},
    }
    obj, lost = salvage(msgspec.json.encode(body), TCPLoadBalancer)
    assert obj is not None
    assert (obj.metadata.name, obj.status.allocation.address) == ("web", "192.0.2.1")
    assert {"metadata.labels", "spec.ports", "status.heldTotal"} <= lost
    assert salvage(b"[]", TCPLoadBalancer) == (None, {""})
