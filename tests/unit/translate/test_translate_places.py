"""One tenant never comes to a place of another's at a load balancer that both use."""

from __future__ import annotations

from itertools import product
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.api.httploadbalancer import HTTPLoadBalancer, HTTPLoadBalancerSpec
from fairlead.errors import BadConfiguration
from fairlead.model.condition import ConditionReason
from fairlead.model.contract import AllocationKind
from fairlead.model.desired import FrontendSpec, Listener, Owner
from fairlead.model.keys import LoadBalancerKey
from fairlead.providers.haproxy.settings import settings_from_spec
from fairlead.testing.builders import ABLE, lb_class, tcp, tcp_view, tenant
from fairlead.translate.member import decide_tcp, not_for_tenant, owner_of, place_problem, validate_http, validate_tcp
from fairlead.translate.view import HTTPView, MemberView, TCPView

PLACES = frozenset({"backend", "backend."})
SERVED = msgspec.structs.replace(ABLE, allocation=AllocationKind.ADDRESS, place_parameters=PLACES)
DOCUMENTED = "{member}_{namespace}_{name}"


def class_with(backend: str, *tenants: str):
    return lb_class("edge", spec={"parameters": {"backend": backend, "socket": "/s"}, "tenants": list(tenants)})


def owner_of_tcp(view: TCPView) -> Owner:
    return owner_of(view, view.load_balancer.metadata, view.load_balancer.spec.origin)


def problem(backend: str, *tenants: str, owner: Owner | None = None) -> str:
    owner = owner or Owner("east", "Service", "shop", "web", "u")
    return place_problem(class_with(backend, *tenants), tenant("east") if owner.member else None, owner, PLACES)


def view(name: str = "shop.web", *, backend: str = DOCUMENTED, origin=None, status=None, **class_fields):
    origin = origin or {"kind": "Service", "namespace": "shop", "name": "web", "uid": "u"}
    return tcp_view(
        tcp(name, spec={"origin": origin, "className": "edge"}, status=status),
        load_balancer_class=lb_class("edge", spec={"parameters": {"backend": backend}, **class_fields}),
        capabilities=SERVED,
    )


@pytest.mark.req("S-3")
def test_an_origin_that_a_member_made_up_names_nothing() -> None:
    lie = view(origin={"kind": "Service", "namespace": "victim", "name": "pay", "uid": "uid-of-victim"})
    assert owner_of_tcp(lie) == Owner("east", "TCPLoadBalancer", "tenant-east", "shop.web", "uid-shop.web")
    honest = view()
    assert owner_of_tcp(honest) == Owner("east", "Service", "shop", "web", "uid-shop.web")


@pytest.mark.req("S-3")
@pytest.mark.parametrize(
    ("name", "namespace", "service"), [("a.b.c", "a.b", "c"), ("a.b.c", "a", "b.c"), ("a.b", "a", ""), ("a.b", "", "b")]
)
def test_a_name_that_can_be_read_in_two_ways_is_not_taken_apart(name: str, namespace: str, service: str) -> None:
    owner = owner_of_tcp(view(name, origin={"kind": "Service", "namespace": namespace, "name": service}))
    assert owner == Owner("east", "TCPLoadBalancer", "tenant-east", name, f"uid-{name}")


@pytest.mark.req("S-3")
def test_drivers_know_load_balancers_by_uid_or_record() -> None:
    asked = {"group": "tenant-east", "owner": {"member": "east", "uid": "as-0.1-wrote-it"}}
    entry = {"provider": "memory", "state": "Ensured", "serving": True, "asked": asked}
    on_record = view(status={"provisioned": [entry]})
    assert owner_of_tcp(on_record).uid == "as-0.1-wrote-it"
    assert owner_of_tcp(view()).uid == "uid-shop.web"


@pytest.mark.req("S-3")
@pytest.mark.parametrize(
    ("backend", "why"),
    [
        ("{namespace}-{name}", "does not contain {member} or {hubNamespace}, so members could collide"),
        ("web", "does not contain {member} or {hubNamespace}, so members could collide"),
        ("{port}", "does not contain {member} or {hubNamespace}, so members could collide"),
        ("{member}-{namespace}-{name}", "nothing but '-' between two names"),
        ("{member}{name}", "nothing but '' between two names"),
        ("{member}_{name}8{port}", "nothing but '8' between two names"),
        ("{member}_{port}-{name}", "nothing but '-' between two names"),
        (DOCUMENTED, ""),
        ("{member}.{namespace}.{name}", ""),
        ("fl-{hubNamespace}:{name}-{port}", ""),
        ("{member}_front", ""),
    ],
)
def test_a_class_for_several_members_says_whose_and_keeps_names_apart(backend: str, why: str) -> None:
    said = problem(backend)
    assert why in said
    assert bool(said) == bool(why)
    if said:
        assert "spec.tenants" in said
        assert f'backend: "{DOCUMENTED}"' in said
    assert problem(backend, "east") == "", "a class of one tenant names what it likes, as one of 0.1 did"
    assert problem(backend, "east", "west") == said


@pytest.mark.req("S-3")
def test_a_name_with_dots_is_not_parted_by_dots() -> None:
    dotted = Owner("east", "TCPLoadBalancer", "tenant-east", "a.b", "u")
    assert "nothing but '.' between two names" in problem("{member}.{namespace}.{name}", owner=dotted)
    assert problem(DOCUMENTED, owner=dotted) == ""


@pytest.mark.req("S-3")
def test_without_a_tenant_the_hubs_own_namespace_says_whose() -> None:
    owner = Owner("", "TCPLoadBalancer", "apps", "web", "u")
    assert problem("{member}_{name}", owner=owner)
    assert problem("{hubNamespace}_{name}", owner=owner) == problem(DOCUMENTED, owner=owner) == ""


NAME = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,3}[a-z0-9])?", fullmatch=True)
PART = st.sampled_from(["{member}", "{hubNamespace}", "{namespace}", "{name}", "{port}", "-", "_", ".", ":", "a", "8"])


@given(
    st.lists(PART, min_size=1, max_size=7), st.lists(st.tuples(NAME, NAME, NAME), min_size=2, max_size=6, unique=True)
)
@pytest.mark.req("S-3")
def test_no_two_tenants_come_to_one_name_by_any_class(parts: list[str], owners: list[tuple[str, str, str]]) -> None:
    """``alpha`` + ``x-default`` is not ``alpha-x`` + ``default``."""
    backend = "".join(parts)
    names: dict[str, str] = {}
    for (member, namespace, name), port in product(owners, (80, 8080)):
        owner = Owner(member, "Service", namespace, name, "u")
        if place_problem(class_with(backend), tenant(member), owner, PLACES):
            continue
        key = LoadBalancerKey("TCPLoadBalancer", f"tenant-{member}", f"{namespace}.{name}")
        spec = FrontendSpec(key, "g", (Listener(port),), parameters={"socket": "/s", "backend": backend}, owner=owner)
        try:
            place = next(iter(settings_from_spec(spec).backends.values()))
        except BadConfiguration:
            continue
        assert names.setdefault(place, member) == member, backend


@pytest.mark.req("S-3", "E-31")
def test_a_class_is_for_the_tenants_that_it_names() -> None:
    for_west = class_with(DOCUMENTED, "west")
    assert not_for_tenant(for_west, tenant("west")) == not_for_tenant(class_with(DOCUMENTED), tenant("east")) == ""
    assert not_for_tenant(for_west, None)
    refused = validate_tcp(view(tenants=["west"]), view().load_balancer.spec)
    assert refused is not None
    assert refused.reason is ConditionReason.CLASS_NOT_USABLE
    assert "west" not in refused.message, "who else may is not for this member to know"
    assert "ask the operator" in refused.message


@pytest.mark.req("S-3")
def test_what_0_1_had_accepted_by_such_a_class_is_served_on() -> None:
    accepted = {"ports": [{"port": 80, "nodePort": 30080}], "className": "edge"}
    old = view(backend="{namespace}-{name}", status={"accepted": accepted})
    old = msgspec.structs.replace(old, accepted_class=old.load_balancer_class)
    translation = decide_tcp(old)
    assert translation.desired is not None
    assert translation.serving_last_accepted
    assert translation.conditions[0].reason is ConditionReason.CLASS_NOT_USABLE


@pytest.mark.req("S-3")
def test_a_class_may_list_the_backends_that_are_to_be_had() -> None:
    key = LoadBalancerKey("LoadBalancer", "shop", "shared")
    parameters = {"socket": "/s", "backend": "shop_web", "allowedBackends": "api, shop_*"}
    spec = FrontendSpec(key, "g", (Listener(80),), parameters=parameters)
    assert list(settings_from_spec(spec).backends.values()) == ["shop_web"]
    for wrong in ("admin", "xshop_web", "apis", "Shop_web"):
        other = msgspec.structs.replace(spec, parameters=parameters | {"backend": wrong})
        with pytest.raises(BadConfiguration, match=rf"backend {wrong} is not among the class's parameters\.allowed"):
            settings_from_spec(other)


@pytest.mark.req("S-3", "E-31")
def test_a_class_that_is_not_for_a_member_serves_no_requests_of_it_either() -> None:
    tcp = view(tenants=["west"])
    spec = HTTPLoadBalancerSpec(class_name="edge", listeners=())
    fields: dict[str, Any] = {name: getattr(tcp, name) for name in MemberView.__struct_fields__}
    fields["load_balancer"] = HTTPLoadBalancer(metadata=tcp.load_balancer.metadata, spec=spec)
    fields["providers"] = {name: msgspec.structs.replace(each, l7=True) for name, each in tcp.providers.items()}
    http = HTTPView(**fields)
    refused = validate_http(http, spec)
    assert refused is not None
    assert refused.reason is ConditionReason.CLASS_NOT_USABLE
