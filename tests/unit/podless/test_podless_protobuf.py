"""Protobuf bodies."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podless.failure import ApiFailure
from podless.http.protobuf import MAGIC, ProtobufReader
from podless.schema.builtin import BuiltinSchemas


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
        "spec": {"ports": [{"name": "http", "port": 80, "targetPort": "name"}], "allocateLoadBalancerNodePorts": False},
    }


@given(st.binary(max_size=60))
def test_broken_protobuf_is_a_bad_request(body: bytes) -> None:
    reader = ProtobufReader({})
    with pytest.raises(ApiFailure) as refused:
        reader.read(MAGIC + body)
    assert refused.value.code == 400
