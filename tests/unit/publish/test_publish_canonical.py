"""Equal meaning is equal value, and nothing that is published gets lost."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.api.kubernetes import EndpointConditions, EndpointSlice
from fairlead.publish.objects import canonical_slice, conditions_of, make_conditions

CONDITIONS = [
    (None, (True, True, False)),
    (EndpointConditions(), (True, True, False)),
    (EndpointConditions(ready=False), (False, True, False)),
    (EndpointConditions(ready=False, serving=True, terminating=True), (False, True, True)),
    (EndpointConditions(ready=True, serving=False), (True, False, False)),
]


@pytest.mark.parametrize(("raw", "expected"), CONDITIONS)
def test_defaults_of_conditions_are_explicit(raw: EndpointConditions | None, expected: tuple[bool, ...]) -> None:
    ready, serving, terminating = expected
    assert conditions_of(raw) is make_conditions(ready=ready, serving=serving, terminating=terminating)


def decoded(endpoints: object, ports: object = None, **meta: object) -> EndpointSlice:
    body = {"metadata": {"name": "s", **meta}, "addressType": "IPv4", "endpoints": endpoints, "ports": ports}
    return msgspec.convert(body, type=EndpointSlice)


def test_unread_fields_are_dropped_and_null_is_empty() -> None:
    labels = {"app": "web", "fairlead.dev/tenant": "east", "kubernetes.io/service-name": "web"}
    annotations = {"note": "x", "fairlead.dev/stale": "why"}
    owners = [{"kind": "PoolService", "name": "p", "uid": "u"}]
    raw = decoded(None, labels=labels, annotations=annotations, ownerReferences=owners)
    small = canonical_slice(raw)
    assert (small.endpoints, small.ports) == ([], [])
    assert small.metadata.labels == {"fairlead.dev/tenant": "east", "kubernetes.io/service-name": "web"}
    assert small.metadata.annotations == {"fairlead.dev/stale": "why"}
    assert small.metadata.owner_references is None
    assert canonical_slice(raw, owners=True).metadata.owner_references == raw.metadata.owner_references


def test_an_endpoint_without_an_address_is_none() -> None:
    assert canonical_slice(decoded([{"addresses": None}, {"addresses": ["10.0.0.1"]}])).endpoints == [
        *(canonical_slice(decoded([{"addresses": ["10.0.0.1"]}])).endpoints or ())
    ]


ENDPOINTS = st.lists(
    st.fixed_dictionaries(
        {"addresses": st.sampled_from([["10.0.0.1"], ["10.0.0.2"], ["10.0.0.3"]])},
        optional={
            "nodeName": st.sampled_from(["a", "b"]),
            "zone": st.just("z"),
            "conditions": st.fixed_dictionaries({"ready": st.sampled_from([True, False, None])}),
        },
    ),
    max_size=5,
)


@given(endpoints=ENDPOINTS, data=st.data())
def test_order_does_not_matter_and_twice_is_once(endpoints: list[object], data: st.DataObject) -> None:
    first = canonical_slice(decoded(endpoints))
    assert canonical_slice(decoded(data.draw(st.permutations(endpoints)))) == first
    assert canonical_slice(first) == first
