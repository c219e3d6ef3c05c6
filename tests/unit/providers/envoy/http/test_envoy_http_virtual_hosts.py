"""The virtual hosts that are kept across a change equal those built from scratch."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.model.desired import FrontendSpec, Listener
from fairlead.model.http import (
    Attachment,
    Backend,
    BackendRef,
    L7Config,
    L7Listener,
    PathMatch,
    RequestMatch,
    Route,
    Rule,
)
from fairlead.model.keys import LoadBalancerKey
from fairlead.providers.envoy.fleet_local import LocalFleet
from fairlead.providers.envoy.http.frontend import HttpFrontend
from fairlead.providers.envoy.resources import packaged_schema
from fairlead.providers.envoy.store import ResourceChange

HOSTS = ("", "*.com", "*.a.com", "a.com", "x.a.com", "*.x.a.com", "y.com")
PATHS = ("/", "/a", "/a/b", "/c")

attachments = st.builds(
    Attachment,
    st.sampled_from(["any", "com", "a"]),
    st.lists(st.sampled_from(HOSTS), max_size=2, unique=True).map(tuple),
    st.booleans(),
)
rules = st.builds(
    lambda path, backend: Rule(
        matches=(RequestMatch(path=PathMatch("PathPrefix", path)),), backends=(BackendRef(backend),)
    ),
    st.sampled_from(PATHS),
    st.sampled_from(["b0", "b1"]),
)
routes = st.builds(
    lambda name, listed, given: Route(name, "HTTP", tuple(listed), tuple(given)),
    st.sampled_from([f"r{number}" for number in range(5)]),
    st.lists(attachments, min_size=1, max_size=2),
    st.lists(rules, min_size=1, max_size=2),
)
LISTENERS = (L7Listener("any", 80), L7Listener("com", 80, hostname="*.com"), L7Listener("a", 80, hostname="*.a.com"))
configs = st.builds(
    lambda listed, count: L7Config(
        LISTENERS[:count], tuple({route.name: route for route in listed}.values()), (Backend("b0"), Backend("b1"))
    ),
    st.lists(routes, max_size=5),
    st.integers(1, 3),
)


def spec(config: L7Config) -> FrontendSpec:
    key = LoadBalancerKey("HTTPLoadBalancer", "n", "lb")
    return FrontendSpec(key=key, group="g", listeners=(Listener(80),), address="192.0.2.1", l7=config)


def frontend(first: FrontendSpec) -> HttpFrontend:
    return HttpFrontend(packaged_schema(), LocalFleet(data_dir=Path("/tmp/x")), first)


def take(store: dict[object, bytes], changes: list[ResourceChange]) -> dict[object, bytes]:
    for change in changes:
        if change.resource is None:
            del store[change.kind, change.name]
        else:
            store[change.kind, change.name] = change.resource.field
    return store


@given(st.lists(configs, min_size=2, max_size=5))
@settings(max_examples=150, deadline=None)
def test_changes_lead_to_recreated_objects(steps: list[L7Config]) -> None:
    kept = frontend(spec(steps[0]))
    store: dict[object, bytes] = {}
    for step in steps:
        take(store, kept.update(spec(step), bind_addresses=("192.0.2.1",)))
        anew = take({}, frontend(spec(step)).update(spec(step), bind_addresses=("192.0.2.1",)))
        assert store == anew
        assert kept.labels.keys() == {name for _, name in store}  # type: ignore[misc]
