"""A view of an HTTP load balancer is translated alike after others and alone, and only what differs is translated."""

from __future__ import annotations

from operator import is_
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.api.httploadbalancer import LoadBalancerRoute
from fairlead.api.kubernetes import Endpoint, EndpointConditions, EndpointPort, EndpointSlice
from fairlead.api.meta import ObjectMeta
from fairlead.api.names import ANNOTATION_ROUTE_FIGURES, LABEL_ORIGIN_UID
from fairlead.model.http import Backend, BackendRef, Rule
from fairlead.model.keys import TargetKey
from fairlead.testing.builders import tenant
from fairlead.translate.http_backends import Translated
from fairlead.translate.member import decide_http
from fairlead.translate.view import HTTPView, MemberState
from tests.call_count import count_calls
from tests.golden.translate.golden_views import read_view

CASES = Path(__file__).parents[2] / "golden" / "translate" / "http"
NAMES = ("a", "b", "c")
ENDPOINTS = st.lists(st.tuples(st.sampled_from(["10.0.0.1", "10.0.0.2", "bad"]), st.booleans()), max_size=3)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("slices"), st.sampled_from(NAMES), ENDPOINTS),
        st.tuples(st.just("route"), st.sampled_from(NAMES), st.lists(st.sampled_from([*NAMES, ""]), max_size=2)),
        st.tuples(st.just("gone"), st.sampled_from(NAMES)),
        st.tuples(st.sampled_from(["given", "drained", "figures", "nodes", "ranges"])),
    ),
    max_size=12,
)


class ChangingView:
    """A view whose parts stay the same objects until they change, as those of a hub do."""

    def __init__(self) -> None:
        view = read_view(CASES / "one-route.in.json", HTTPView)
        self._route = view.routes[0]
        self.view = msgspec.structs.replace(view, routes=(), slices={})

    def change(self, what: str, *rest: Any) -> None:
        view = self.view
        match what:
            case "slices":
                name, endpoints = rest
                listed = [Endpoint(addresses=[each], conditions=EndpointConditions(ready=up)) for each, up in endpoints]
                ports = [EndpointPort(name="http", port=8080, protocol="TCP")]
                labels = {LABEL_ORIGIN_UID: name} if name != "c" else {}
                of_name = EndpointSlice(metadata=ObjectMeta(name=name, labels=labels), endpoints=listed, ports=ports)
                self.replace(slices={**view.slices, f"shop/{name}": (of_name,)})
            case "route":
                name, backends = rest
                kept = [route for route in view.routes if route.metadata.name != name]
                self.replace(routes=tuple(sorted([*kept, self.route(name, backends)], key=lambda each: each.key)))
            case "gone":
                self.replace(routes=tuple(route for route in view.routes if route.metadata.name != rest[0]))
            case "given":
                self.replace(given={TargetKey("10.0.0.1", 8080): [view.key]} if not view.given else {})
            case "drained":
                self.replace(member=MemberState(drained=not view.member.drained))
            case "ranges":
                ranges = () if view.tenant and view.tenant.spec.target_ranges else ("10.0.0.2/32",)
                self.replace(tenant=tenant(spec={"targetRanges": ranges}))
            case "nodes":
                spec = view.load_balancer.spec
                targets = "Node" if spec.targets == "Pod" else "Pod"
                spec = msgspec.structs.replace(spec, targets=targets)
                self.replace(load_balancer=msgspec.structs.replace(view.load_balancer, spec=spec))
            case _:
                meta = view.load_balancer.metadata
                on = meta.annotations is None or ANNOTATION_ROUTE_FIGURES not in meta.annotations
                meta = msgspec.structs.replace(meta, annotations={ANNOTATION_ROUTE_FIGURES: "true"} if on else {})
                self.replace(load_balancer=msgspec.structs.replace(view.load_balancer, metadata=meta))

    def replace(self, **parts: object) -> None:
        self.view = msgspec.structs.replace(self.view, **parts)

    def route(self, name: str, backends: list[str]) -> LoadBalancerRoute:
        named = [Backend(each, f"shop/{each}", "http", node_port=30000 + len(each)) for each in backends if each]
        rule = Rule(backends=tuple(map(BackendRef, backends)))
        spec = msgspec.structs.replace(self._route.spec, rules=(rule,), backends=tuple(named))
        meta = msgspec.structs.replace(self._route.metadata, name=name)
        return msgspec.structs.replace(self._route, metadata=meta, spec=spec)


@given(STEPS)
@settings(max_examples=300, deadline=None)
def test_a_view_is_translated_alike_after_others_and_alone(steps: list[tuple[Any, ...]]) -> None:
    hub, before = ChangingView(), Translated()
    for step in steps:
        hub.change(*step)
        bit_by_bit, at_once = decide_http(hub.view, before=before), decide_http(hub.view)
        assert bit_by_bit == at_once


def test_only_the_changed_backend_is_translated_again() -> None:
    hub, before = ChangingView(), Translated()
    for name in NAMES:
        hub.change("route", name, [name])
        hub.change("slices", name, [("10.0.0.1", True)])
    first = decide_http(hub.view, before=before).desired
    hub.change("slices", "b", [("10.0.0.2", True)])
    second = decide_http(hub.view, before=before).desired
    hub.change("route", "d", ["a"])
    third = decide_http(hub.view, before=before).desired
    assert first is not None
    assert second is not None
    assert third is not None
    assert second.spec.l7 is first.spec.l7
    assert [key.backend for key in second.targets if second.targets[key] is not first.targets[key]] == ["b"]
    assert third.spec.l7 is not None
    assert first.spec.l7 is not None
    assert third.targets is second.targets
    assert [route.name for route in third.spec.l7.routes if route not in first.spec.l7.routes] == ["d"]
    assert all(is_(*pair) for pair in zip(third.spec.l7.routes, first.spec.l7.routes, strict=False))


def test_a_new_route_costs_few_calls_for_each_other_route() -> None:
    def cost(count: int) -> int:
        hub, before = ChangingView(), Translated()
        routes = tuple(hub.route(f"r{number:04}", [f"b{number:04}"]) for number in range(count))
        hub.replace(routes=routes, slices={f"shop/b{number:04}": () for number in range(count)})
        decide_http(hub.view, before=before)
        hub.replace(routes=(*routes, hub.route("s", ["s"])), slices={**hub.view.slices, "shop/s": ()})
        return count_calls(lambda: decide_http(hub.view, before=before))

    assert cost(1200) - cost(200) < 5 * 1000


def test_a_new_route_to_a_known_backend_costs_as_much_among_many_as_among_few() -> None:
    def cost(count: int) -> int:
        hub, before = ChangingView(), Translated()
        routes = tuple(hub.route(f"r{number:04}", [f"b{number:04}"]) for number in range(count))
        hub.replace(routes=routes, slices={f"shop/b{number:04}": () for number in range(count)})
        decide_http(hub.view, before=before)
        hub.replace(routes=(*routes[:5], hub.route("r0004x", ["b0004"]), *routes[5:]))
        calls = count_calls(lambda: decide_http(hub.view, before=before))
        return calls - count  # each backend without a ready target is named

    assert cost(1000) < cost(100) + 50
