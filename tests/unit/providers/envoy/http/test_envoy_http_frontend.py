"""Which resources of an L7 load balancer a change concerns, and what is left out with a reason."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.model.desired import Affinity, FrontendSpec, Listener, Target
from fairlead.model.http import (
    Attachment,
    Backend,
    BackendRef,
    BackendTls,
    Certificate,
    ClientValidation,
    IdleBackends,
    L7Config,
    L7Listener,
    Maintenance,
    PathMatch,
    RequestMatch,
    Route,
    Rule,
)
from fairlead.model.keys import ListenerKey, LoadBalancerKey, Protocol, TargetKey, backend_key
from fairlead.providers.envoy.clusters import TargetPort
from fairlead.providers.envoy.fleet_local import LocalFleet
from fairlead.providers.envoy.http import backend_clusters
from fairlead.providers.envoy.http.frontend import HttpFrontend, RouteConfigs
from fairlead.providers.envoy.http.listeners import ListenerEncoder, PortListeners
from fairlead.providers.envoy.http.route_table import HeldRoutes
from fairlead.providers.envoy.resources import packaged_schema
from fairlead.providers.envoy.store import ResourceChange
from fairlead_demo.worlds.certificates import self_signed
from tests.call_count import count_calls

KEY = LoadBalancerKey("HTTPLoadBalancer", "shop", "web")
HTTP = L7Listener("http", 80)
HTTPS = L7Listener("https", 443, "HTTPS", hostname="a.example.com", certificates=("c",))


def route(name: str, *backends: str, path: str = "/", **fields: object) -> Route:
    attached = tuple(fields.pop("attachments", (Attachment("http"),)))  # type: ignore[arg-type]
    rule = Rule(matches=(RequestMatch(path=PathMatch("PathPrefix", path)),), backends=tuple(map(BackendRef, backends)))
    return Route(name, fields.pop("kind", "HTTP"), attached, (rule,), **fields)  # type: ignore[arg-type]


def spec(*routes: Route, listeners: tuple[L7Listener, ...] = (HTTP,), **fields: object) -> FrontendSpec:
    names = sorted({backend.backend for each in routes for rule in each.rules for backend in rule.backends})
    l7 = L7Config(listeners, routes, **{"backends": tuple(map(Backend, names)), **fields})  # type: ignore[arg-type]
    keys = sorted({(each.port, Protocol.UDP if each.protocol == "UDP" else Protocol.TCP) for each in listeners})
    return FrontendSpec(
        key=KEY,
        group="t",
        listeners=tuple(Listener(*key) for key in keys),
        address="192.0.2.1",
        health_check=None,
        l7=l7,
    )


class Served:
    """A frontend, and what its changes make of the store."""

    def __init__(
        self,
        first: FrontendSpec,
        ports: Mapping[ListenerKey, TargetPort] | None = None,
        fleet: type[LocalFleet] = LocalFleet,
    ) -> None:
        self.frontend = HttpFrontend(packaged_schema(), fleet(data_dir=Path("/tmp/x")), first, ports=ports)
        self.store: dict[tuple[str, str], bytes] = {}
        self.needs: dict[tuple[str, str], frozenset[str]] = {}
        self.ensure(first)

    def ensure(self, wanted: FrontendSpec) -> set[str]:
        return self.take(self.frontend.update(wanted, bind_addresses=wanted.addresses))

    def target(self, *backends: str, address: str = "10.0.0.1") -> set[str]:
        ports = {key: self.frontend.ports[key] for key in map(backend_key, backends)}
        was_inline = {key: port.inline for key, port in ports.items()}
        for port in ports.values():
            port.put(Target(TargetKey(address, 80)))
        return self.take(self.frontend.target_changes(was_inline))

    def take(self, changes: list[ResourceChange]) -> set[str]:
        names: set[str] = set()
        for change in changes:
            name = (change.kind.short, change.name.removeprefix(f"{KEY}/"))
            names.add(f"{'-' if change.resource is None else ''}{name[0]} {name[1]}")
            if change.resource is None:
                self.store.pop(name, None)
                self.needs.pop(name, None)
            else:
                self.store[name], self.needs[name] = change.resource.field, frozenset(change.resource.needs)
        return names

    def check_labels(self) -> None:
        labels = {name.removeprefix(f"{KEY}/") for name in self.frontend.labels}
        assert labels == set(self.frontend.labels.values()) == {name for _, name in self.store}


def test_the_resources_of_one_http_listener() -> None:
    served = Served(spec(route("r", "b")))
    assert {f"{kind} {name}" for kind, name in served.store} == {
        "cluster backend/b",
        "endpoints backend/b",
        "listener TCP/80",
        "routes routes/80",
    }
    assert served.frontend.labels.keys() == {f"{KEY}/{name}" for _, name in served.store}


@pytest.mark.req("F-14", "F-15")
def test_the_clusters_of_collectors_are_there_while_sinks_name_them() -> None:
    served = Served(spec(route("r", "b")))
    sinks = dict.fromkeys(("accessLogSink", "tracingSink"), "http://collector:4318")
    traced = msgspec.structs.replace(spec(route("r", "b")), parameters={"accessLog": "{}", "tracing": "{}", **sinks})
    both = {"cluster collector/logs", "cluster collector/traces"}
    assert served.ensure(traced) == {"listener TCP/80", *both}
    served.check_labels()
    # The share of a route changes its route configuration only.
    own = msgspec.structs.replace(route("r", "b"), tracing="off")
    assert served.ensure(msgspec.structs.replace(traced, l7=spec(own).l7)) == {"routes routes/80"}
    assert served.ensure(spec(own)) == {"listener TCP/80", *(f"-{cluster}" for cluster in both)}
    served.check_labels()


@pytest.mark.req("K-41")
def test_a_changed_route_changes_its_route_configuration_only() -> None:
    served = Served(spec(route("r", "b"), route("s", "b", path="/s")))
    assert served.ensure(spec(route("r", "b"), route("s", "b", path="/t"))) == {"routes routes/80"}
    assert served.ensure(spec(route("r", "b"), route("s", "b", path="/t"))) == set()


def test_a_listener_is_encoded_again_only_when_something_in_it_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[int] = []
    encode = ListenerEncoder.encode

    def counted(encoder: ListenerEncoder, port: PortListeners, *, bind_address: str, reuse_port: bool) -> bytes:
        encoded.append(port.port.port)
        return encode(encoder, port, bind_address=bind_address, reuse_port=reuse_port)

    monkeypatch.setattr(ListenerEncoder, "encode", counted)
    served = Served(spec(route("r", "b")))
    assert encoded == [80]
    assert served.ensure(spec(route("r", "b", path="/t"))) == {"routes routes/80"}
    assert encoded == [80]
    ranges = msgspec.structs.replace(spec(route("r", "b", path="/t")), source_ranges=("10.0.0.0/8",))
    assert served.ensure(ranges) == {"listener TCP/80"}
    limited = msgspec.structs.replace(ranges, parameters={"connections": "7"})
    assert served.ensure(limited) == {"listener TCP/80"}
    assert encoded == [80, 80, 80]


def test_a_changed_target_changes_its_endpoints_only_and_a_dns_name_its_cluster() -> None:
    served = Served(spec(route("r", "a", "b")))
    assert served.target("b") == {"endpoints backend/b"}
    assert served.target("b", address="pod.example.com") == {"cluster backend/b", "-endpoints backend/b"}
    assert served.ensure(spec(route("r", "a", "b"))) == set()


@pytest.mark.req("K-41")
def test_a_route_waits_for_the_first_target_of_its_new_backend() -> None:
    served = Served(spec(route("r", "old")))
    before = served.store["routes", "routes/80"]
    assert served.ensure(spec(route("r", "new"))) == {"cluster backend/new", "endpoints backend/new"}
    assert served.frontend.awaited == {"new"}
    assert served.store["routes", "routes/80"] == before
    assert served.target("new") == {
        "endpoints backend/new",
        "routes routes/80",
        "-cluster backend/old",
        "-endpoints backend/old",
    }
    assert served.frontend.awaited == frozenset()


def test_the_first_targets_of_many_backends_are_one_change_of_their_routes(monkeypatch: pytest.MonkeyPatch) -> None:
    served = Served(spec())
    served.ensure(spec(*(route(f"r{name}", name, path=f"/{name}") for name in "abcde")))
    encoded: list[str] = []
    encode = RouteConfigs.encode

    def counted(configs: RouteConfigs, name: str, *args: Any, **others: Any) -> bytes:
        encoded.append(name)
        return encode(configs, name, *args, **others)

    monkeypatch.setattr(RouteConfigs, "encode", counted)
    assert served.target(*"abcd") == {*(f"endpoints backend/{name}" for name in "abcd"), "routes routes/80"}
    assert encoded == [f"{KEY}/routes/80"]
    assert served.frontend.awaited == {"e"}


@given(st.lists(st.tuples(st.sampled_from("rst"), st.frozensets(st.sampled_from("abcd"), max_size=2)), max_size=12))
@settings(max_examples=200, deadline=None)
def test_routes_wait_as_if_each_was_looked_at(steps: list[tuple[str, frozenset[str]]]) -> None:
    """A step changes the backends of a route, or none: then these have targets."""
    held, known, awaited = HeldRoutes(), set[str](), set[str]()
    first = spec().l7
    assert first is not None
    held.update(first)
    routes: dict[str, Route] = {}
    served: dict[str, Route] = {}
    for name, backends in steps:
        if name == "t":
            awaited -= backends
            held.release(backends)
        else:
            routes.pop(name, None)
            if backends:
                routes[name] = route(name, *sorted(backends))
            config = spec(*(routes[each] for each in sorted(routes))).l7
            assert config is not None
            names = {backend.name for backend in config.backends}
            awaited = (awaited | (names - known)) & names
            held.update(config)
        of = {each: {share.backend for rule in routes[each].rules for share in rule.backends} for each in routes}
        waiting = {each for each in routes if served.get(each) is not routes[each] and of[each] & awaited}
        served = {each: routes[each] for each in routes if each not in waiting} | {
            each: served[each] for each in waiting & served.keys()
        }
        assert list(map(id, held.routes)) == [id(served[each]) for each in sorted(served)]
        assert held.awaited == (awaited if waiting else frozenset())
        known = {backend.name for backend in held.backends}
        assert known >= {share.backend for each in served.values() for rule in each.rules for share in rule.backends}


def test_the_wait_for_a_backend_without_targets_ends() -> None:
    served = Served(spec(route("r", "old")))
    served.ensure(spec(route("r", "new")))
    assert "routes routes/80" in served.take(served.frontend.release(frozenset({"new"})))
    assert served.take(served.frontend.release(frozenset({"new"}))) == set()


def test_other_routes_do_not_wait() -> None:
    served = Served(spec(route("r", "old"), route("s", "old")))
    changed = served.ensure(spec(route("r", "new"), route("s", "old", path="/s")))
    assert "routes routes/80" in changed


def test_a_bad_route_is_left_out_with_a_reason_and_the_others_are_served() -> None:
    bad = msgspec.structs.replace(
        route("bad", "b"), rules=(Rule(matches=(RequestMatch(path=PathMatch("RegularExpression", "(")),)),)
    )
    served = Served(spec(route("r", "b"), bad))
    ((kind, name, reason),) = served.frontend.refused
    assert (kind, name) == ("route", "bad")
    assert "regular expression" in reason
    assert served.store["routes", "routes/80"].count(b"/r") > 0


def test_of_a_route_with_thousands_of_mistakes_the_first_few_are_reported() -> None:
    matches = tuple(RequestMatch(path=PathMatch("RegularExpression", f"({'x' * 900}{n}")) for n in range(1000))
    bad = msgspec.structs.replace(route("bad", "b"), rules=(Rule(matches=matches),))
    ((_, _, reason),) = Served(spec(route("r", "b"), bad)).frontend.refused
    assert reason.endswith("; and 999 more")
    assert len(reason) < 10_000


def test_a_listener_without_a_usable_certificate_has_no_routes_and_is_reported() -> None:
    broken = Certificate("c", "1", b"no certificate", b"no key")
    served = Served(spec(route("r", "b"), listeners=(HTTP, HTTPS), certificates={"c": broken}))
    assert {name for kind, name in served.store if kind == "routes"} == {"routes/80"}
    assert served.frontend.refused == (
        ("certificate", "c", "tls.crt has no certificate in PEM"),
        ("listener", "https", "no usable certificate"),
    )
    assert not [name for kind, name in served.store if kind == "secret"]


def test_listeners_that_open_one_by_one_are_served() -> None:
    hosts = ("*.example.com", "a.example.com", "b.example.com")
    pairs = {host: Certificate(host, "1", *self_signed(host)) for host in hosts}

    def step(usable: int, path: str = "/") -> FrontendSpec:
        # New objects each time, as the hub makes them: equal ones are the same listener.
        names = [f"https/{host}" for host in hosts]
        return spec(
            *(route(name, "b", path=path, attachments=(Attachment(name),)) for name in names),
            listeners=tuple(
                L7Listener(name, 443, "HTTPS", hostname=host, certificates=(host,))
                for name, host in zip(names, hosts, strict=True)
            ),
            certificates={host: pairs[host] for host in hosts[:usable]},
        )

    kept = Served(step(0))
    assert not [name for kind, name in kept.store if kind == "routes"]
    for number, path in ((1, "/"), (2, "/"), (3, "/"), (3, "/cart"), (3, "/")):
        kept.ensure(step(number, path))
        assert kept.store == Served(step(number, path)).store
        assert len([name for kind, name in kept.store if kind == "routes"]) == number
        assert kept.ensure(step(number, path)) == set()


def test_bad_authorities_close_the_listener_and_leave_the_backend_unresolved() -> None:
    validated = msgspec.structs.replace(HTTPS, client_validation=ClientValidation("nothing"), certificates=())
    tls = Backend("b", tls=BackendTls(server_name="b", ca_bundle=""))
    served = Served(spec(route("r", "b"), listeners=(HTTP, validated), backends=(tls,)))
    assert [part[:2] for part in served.frontend.refused] == [("backend", "b"), ("listener", "https")]
    assert served.frontend.refused[0].reason.endswith("no certificate in PEM")
    assert ("cluster", "backend/b") not in served.store


@pytest.mark.req("G-115")
def test_the_targets_of_a_udp_rule_are_in_one_weighted_cluster() -> None:
    udp = L7Listener("udp", 53, "UDP")
    backends = (Backend("a", protocol="UDP"), Backend("b", protocol="UDP"))
    wanted = route("r", "a", "b", kind="UDP", attachments=(Attachment("udp"),))
    served = Served(spec(wanted, listeners=(udp,), backends=backends))
    assert served.target("a") == {"cluster udp/53", "endpoints udp/53"}
    assert {f"{kind} {name}" for kind, name in served.store} == {
        "cluster udp/53",
        "endpoints udp/53",
        "listener UDP/53",
    }


def test_everything_is_removed() -> None:
    served = Served(spec(route("r", "a", "b")))
    served.take(served.frontend.removal())
    assert served.store == {}


ROUTES = st.dictionaries(
    st.sampled_from(["r", "s", "t"]), st.lists(st.sampled_from(["a", "b", "c"]), unique=True, max_size=2)
)
CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("routes"), ROUTES),
        st.tuples(st.just("target"), st.sampled_from(["a", "b", "c"]), st.sampled_from(["10.0.0.1", "pods.example"])),
        st.tuples(st.sampled_from(["affinity", "udp", "tls", "https"])),
    ),
    max_size=12,
)


@given(CHANGES)
@settings(max_examples=120, deadline=None)
def test_resources_after_any_changes_are_those_of_a_new_frontend(changes: list[tuple[Any, ...]]) -> None:
    served, routes, on = Served(spec()), dict[str, list[str]](), set[str]()
    for what, *rest in changes:
        if what == "routes":
            (routes,) = rest
        elif what == "target":
            if backend_key(rest[0]) not in served.frontend.ports:
                continue
            served.target(rest[0], address=rest[1])
        else:
            on ^= {what}
        wanted = spec(
            *(route(name, *backends, path=f"/{name}") for name, backends in sorted(routes.items())),
            listeners=(HTTP, HTTPS) if "https" in on else (HTTP,),
            backends=tuple(
                Backend(
                    name,
                    protocol="UDP" if "udp" in on and name == "c" else "HTTP1",
                    tls=BackendTls(ca_bundle="no certificate") if "tls" in on and name == "b" else None,
                )
                for name in sorted({backend for backends in routes.values() for backend in backends})
            ),
        )
        wanted = msgspec.structs.replace(wanted, affinity=Affinity.CLIENT_IP if "affinity" in on else Affinity.NONE)
        served.ensure(wanted)
        served.take(served.frontend.release(served.frontend.awaited))
        new = Served(wanted, served.frontend.ports)
        assert served.store == new.store
        assert served.needs == new.needs
        served.check_labels()
        assert served.frontend.refused == new.frontend.refused
        assert served.frontend.ports == new.frontend.ports


def test_a_new_backend_encodes_its_own_cluster_only(monkeypatch: pytest.MonkeyPatch) -> None:
    served = Served(spec(*(route(f"r{number}", f"b{number}", path=f"/{number}") for number in range(20))))
    encoded: list[str] = []
    encode = backend_clusters.backend_cluster_bytes

    def counted(*args: Any, **others: Any) -> bytes:
        encoded.append(others["name"])
        return encode(*args, **others)

    monkeypatch.setattr(backend_clusters, "backend_cluster_bytes", counted)
    routes = (route(f"r{number}", f"b{number}", path=f"/{number}") for number in range(21))
    assert served.ensure(spec(*routes)) == {"cluster backend/b20", "endpoints backend/b20"}
    assert served.target("b20") == {"endpoints backend/b20", "routes routes/80"}
    assert encoded == [f"{KEY}/backend/b20"]


def test_a_new_route_costs_few_calls_for_each_other_route() -> None:
    def at(host: str) -> tuple[Attachment, ...]:
        return (Attachment("http", (f"{host}.example.com",)),)

    def cost(count: int) -> int:
        names = [f"{number:04}" for number in range(count)]
        served = Served(spec(*(route(name, name, attachments=at(name)) for name in names)))
        l7 = served.frontend._spec.l7
        assert l7 is not None
        idle = IdleBackends()
        assert not idle.update(l7)
        new = route("s", "s", attachments=at("s"))
        more = msgspec.structs.replace(l7, routes=(*l7.routes, new), backends=(*l7.backends, Backend("s")))
        changed = msgspec.structs.replace(served.frontend._spec, l7=more)

        def change() -> None:
            served.ensure(changed)
            served.target("s")
            assert not idle.update(more)

        return count_calls(change)

    assert cost(1200) - cost(200) < 4 * 1000


@pytest.mark.req("F-8", "F-14", "F-15")
@pytest.mark.parametrize(
    ("fields", "kind", "reason"),
    [
        ({"access_log": "xml"}, "route", "accessLog"),
        ({"tracing": "{}"}, "route", "tracing"),
        ({"denied_sources": ("office",)}, "rule", "'office'"),
    ],
)
def test_a_log_or_list_that_no_agent_writes_concerns_its_route_alone(
    fields: dict[str, str], kind: str, reason: str
) -> None:
    bad = route("bad", "b", path="/bad")
    if "denied_sources" in fields:
        rules = (msgspec.structs.replace(bad.rules[0], **fields), *route("bad", "b", path="/other").rules)
        bad = msgspec.structs.replace(bad, rules=rules)
    else:
        bad = msgspec.structs.replace(bad, **fields)
    served = Served(spec(bad, route("good", "b")))
    (refused,) = served.frontend.refused
    assert (refused.kind, refused.name) == (kind, "bad")
    assert reason in refused.reason
    assert b"good/0/0" in served.store["routes", "routes/80"]


class BehindNodes(LocalFleet):
    """Proxies that see the address of a node instead of that of the client."""

    def sees_clients(self, spec: FrontendSpec) -> bool:
        del spec
        return False


OPEN_TO_SOME = {
    protocol: L7Listener(
        protocol.lower(), number, protocol, passthrough=protocol == "TLS", denied_sources=("192.0.2.0/24",)
    )
    for number, protocol in enumerate(("HTTP", "TLS", "TCP", "UDP"), 80)
}


@pytest.mark.req("F-8")
@pytest.mark.parametrize(
    ("parameters", "closed"),
    [
        ({}, {"http", "tls", "tcp", "udp"}),
        ({"trustedHops": "1"}, {"tls", "tcp", "udp"}),
        ({"acceptProxyProtocol": "true"}, {"udp"}),
    ],
)
def test_a_listener_is_closed_where_no_header_has_the_client(parameters: dict[str, str], closed: set[str]) -> None:
    wanted = spec(listeners=tuple(OPEN_TO_SOME.values()))
    served = Served(msgspec.structs.replace(wanted, parameters=parameters), fleet=BehindNodes)
    assert {part.name for part in served.frontend.refused} == closed
    seen = Served(wanted)
    assert not seen.frontend.refused


@pytest.mark.req("F-22")
def test_clients_that_the_proxies_do_not_see_get_the_page() -> None:
    wanted = spec(route("r", "b"), maintenance=(Maintenance(allowed_sources=("10.0.0.0/8",)),))
    served = Served(wanted, fleet=BehindNodes)
    assert [(part.kind, part.name) for part in served.frontend.refused] == [("maintenance", "*")]
    closed = Served(spec(route("r", "b"), maintenance=(Maintenance(),)), fleet=BehindNodes)
    assert served.store["routes", "routes/80"] == closed.store["routes", "routes/80"]
