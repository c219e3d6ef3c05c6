"""What an HTTPLoadBalancer says of certificates and backends that are not there."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from fairlead.api.kubernetes import Endpoint, EndpointPort, EndpointSlice
from fairlead.api.meta import ObjectMeta
from fairlead.api.names import LABEL_ORIGIN_UID
from fairlead.model.condition import Condition, ConditionReason, ConditionType
from fairlead.model.http import ExternalAuth, Filters, L7Listener
from fairlead.model.keys import backend_key
from fairlead.translate.certificates import UNREAD, UNREAD_VERSION
from fairlead.translate.member import decide_http, validate_http
from fairlead.translate.view import HTTPView, says_no_ready
from tests.golden.translate.golden_views import read_view

GONE = "there is no Secret cert beside the load balancer at the hub"
CASES = Path(__file__).parents[2] / "golden" / "translate" / "http"


def resolved(view: HTTPView) -> Condition:
    by_type = {condition.type: condition for condition in decide_http(view).conditions}
    return by_type[ConditionType.RESOLVED_REFS]


@pytest.mark.parametrize(
    ("missing", "reason", "named"),
    [
        ({"a": UNREAD}, ConditionReason.PENDING, "certificate a"),
        ({"a": UNREAD_VERSION}, ConditionReason.PENDING, "certificate a"),
        ({"a": UNREAD, "b": GONE}, ConditionReason.INVALID, "certificate b"),
    ],
)
def test_a_certificate_is_missing_once_it_has_been_looked_for(
    missing: dict[str, str], reason: ConditionReason, named: str
) -> None:
    view = read_view(CASES / "one-route.in.json", HTTPView)
    said = resolved(msgspec.structs.replace(view, missing_certificates=missing))
    assert (said.status, said.reason) == (False, reason)
    assert said.message.startswith(named)


def test_the_object_whose_backend_does_not_exist_is_named() -> None:
    said = resolved(read_view(CASES / "backend-unresolved.in.json", HTTPView))
    assert (said.status, said.reason) == (False, ConditionReason.BACKEND_NOT_FOUND)
    assert said.message.startswith("a backend of Ingress shop/web cannot be resolved")
    assert not says_no_ready(said.reason, said.message), "it says more than that no backend is ready"


def test_certificates_that_a_proxy_would_load_thousands_of_times_are_refused() -> None:
    view = read_view(CASES / "one-route.in.json", HTTPView)
    names = tuple(f"c{number}" for number in range(64))
    listeners = tuple(
        L7Listener(f"l{number}", 443, "HTTPS", f"h{number}.example.com", certificates=names) for number in range(33)
    )
    spec = msgspec.structs.replace(view.load_balancer.spec, listeners=listeners)
    refused = validate_http(view, spec)
    assert refused is not None
    assert refused.message.startswith("spec.listeners: ")
    assert "2,112" in refused.message
    assert "2,048" in refused.message
    assert "several load balancers" in refused.message
    assert validate_http(view, msgspec.structs.replace(spec, listeners=listeners[:32])) is None


def listed(uid: str, address: str) -> EndpointSlice:
    meta = ObjectMeta(name=f"s-{address}", labels={LABEL_ORIGIN_UID: uid} if uid else {})
    ports = [EndpointPort(name="http", port=8080, protocol="TCP")]
    return EndpointSlice(metadata=meta, endpoints=[Endpoint(addresses=[address])], ports=ports)


@pytest.mark.req("L4-9")
def test_targets_of_a_backend_are_owned_by_the_service_that_lists_them() -> None:
    view = read_view(CASES / "one-route.in.json", HTTPView)
    slices = [listed("first", "10.1.0.1"), listed("second", "10.1.0.2")]
    desired = decide_http(msgspec.structs.replace(view, slices={"shop/web": slices})).desired
    assert desired is not None
    (backend,) = desired.targets
    owners = {key.address: target.owners for key, target in desired.targets[backend].items()}
    assert owners == {"10.1.0.1": ("Service/shop/web/first",), "10.1.0.2": ("Service/shop/web/second",)}
    assert desired.owners == {backend: {"Service/shop/web/first", "Service/shop/web/second"}}


@pytest.mark.req("L4-9")
@pytest.mark.parametrize("uids", [(), ("",), ("first", "")], ids=["no-slice", "earlier-release", "both"])
def test_the_owner_of_a_backend_is_unknown_where_its_slices_do_not_say(uids: tuple[str, ...]) -> None:
    view = read_view(CASES / "one-route.in.json", HTTPView)
    slices = [listed(uid, f"10.1.0.{number}") for number, uid in enumerate(uids)]
    desired = decide_http(msgspec.structs.replace(view, slices={"shop/web": slices})).desired
    assert desired is not None
    assert not desired.owners


@pytest.mark.req("F-8", "F-22")
@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"listeners": (L7Listener("web", 80, denied_sources=("office",)),)}, "deniedSources of web: 'office'"),
        ({"listeners": (L7Listener("web", 80, allowed_sources=("10.0.0.1/8",)),)}, "allowedSources of web"),
        ({"error_pages": {"404": "", "4x": ""}}, "spec.errorPages: '4x'"),
    ],
)
def test_lists_and_pages_that_no_agent_writes_are_refused(fields: dict[str, object], named: str) -> None:
    view = read_view(CASES / "one-route.in.json", HTTPView)
    refused = validate_http(view, msgspec.structs.replace(view.load_balancer.spec, **fields))
    assert refused is not None
    assert refused.reason == ConditionReason.INVALID
    assert named in refused.message


@pytest.mark.req("F-19")
def test_an_external_service_is_held_to_the_ranges_of_the_member() -> None:
    view = read_view(CASES / "one-route.in.json", HTTPView)
    (source,) = view.routes
    asked = msgspec.structs.replace(source.spec.rules[0], filters=Filters(auth=ExternalAuth("shop/auth")))
    (backend,) = source.spec.backends
    backends = (backend, msgspec.structs.replace(backend, name="shop/auth", service="shop/auth"))
    spec = msgspec.structs.replace(source.spec, rules=(asked,), backends=backends)
    route = msgspec.structs.replace(source, spec=spec)
    addresses = ("10.1.0.2", "127.0.0.1", "169.254.169.254", "0.0.0.0")
    slices = {**view.slices, "shop/auth": [listed("auth", address) for address in addresses]}
    desired = decide_http(msgspec.structs.replace(view, routes=(route,), slices=slices)).desired
    assert desired is not None
    targets = {key.address for key in desired.targets[backend_key("shop/auth")]}
    assert targets == {"10.1.0.2"}
