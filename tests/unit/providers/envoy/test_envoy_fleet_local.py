"""The fleet of one machine: addresses, limits, and one hub for each data directory."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from structlog.testing import capture_logs

from fairlead.errors import BadConfiguration
from fairlead.model.desired import FrontendSpec, Listener
from fairlead.model.keys import LoadBalancerKey
from fairlead.model.observed import Ensured
from fairlead.providers.envoy.envoy_process import directory_of, hub_directory
from fairlead.providers.envoy.fleet_local import GROUP, LocalFleet

KEY = LoadBalancerKey("TCPLoadBalancer", "shop", "web")
SPEC = FrontendSpec(key=KEY, group="tenant", listeners=(Listener(80),), address="192.0.2.1")


def test_long_data_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadConfiguration, match="shorter data directory"):
        LocalFleet(data_dir=tmp_path / ("x" * 100))


async def test_each_load_balancer_has_its_own_address(tmp_path: Path) -> None:
    fleet = LocalFleet(data_dir=tmp_path)
    assert (fleet.groups_of(SPEC), fleet.bind_addresses(SPEC)) == ((GROUP,), ("192.0.2.1",))
    assert fleet.addresses(KEY) == Ensured()
    assert await fleet.ensure(SPEC) == fleet.addresses(KEY) == Ensured(("192.0.2.1",))
    await fleet.delete(KEY)
    assert fleet.addresses(KEY) == Ensured()


@pytest.mark.req("P-7")
def test_the_hub_itself_is_one_of_the_machines_that_serve(tmp_path: Path) -> None:
    fleet = LocalFleet(data_dir=tmp_path)
    spec = msgspec.structs.replace(SPEC, machines=("", "host", "m1"))
    assert fleet.groups_of(spec) == (GROUP, "machine:host", "machine:m1")
    fleet.machine = "host"
    assert fleet.groups_of(spec) == (GROUP, "machine:m1")


@pytest.mark.req("P-8")
async def test_an_address_of_another_machine_waits_for_one_and_says_so(tmp_path: Path) -> None:
    fleet = LocalFleet(data_dir=tmp_path)
    assert fleet.groups_of(SPEC) == (GROUP,), "without proxy machines Envoy says what is wrong"
    fleet.has_machines = True
    assert fleet.groups_of(SPEC) == ()
    answer = await fleet.ensure(SPEC)
    assert "192.0.2.1" in answer.message
    assert "fairlead proxy token" in answer.message
    fleet.awaits_machines = lambda _key: True
    assert (await fleet.ensure(SPEC)).message == "", "a machine is about to be recorded"
    assert fleet.groups_of(msgspec.structs.replace(SPEC, machines=("m1",))) == ("machine:m1",)
    fleet.awaits_machines = lambda _key: False
    local = msgspec.structs.replace(SPEC, address="127.200.0.1")
    assert fleet.groups_of(local) == (GROUP,)
    assert (await fleet.ensure(local)).message == ""
    assert fleet.groups_of(SPEC) == (GROUP,), "Envoy has it already"


def test_listeners_are_limited_by_half_of_the_files_for_each_worker(tmp_path: Path) -> None:
    fleet = LocalFleet(data_dir=tmp_path, concurrency=2, max_files=40)
    assert fleet.refuse(group=GROUP, listeners=10) == ""
    assert "can open 10 ports" in fleet.refuse(group=GROUP, listeners=11)


@pytest.mark.parametrize(("files", "share"), [(40, 16), (20_000, 1_218), (1_048_576, 65_504)])
def test_one_port_has_a_quarter_of_the_connections_that_members_share(tmp_path: Path, files: int, share: int) -> None:
    assert LocalFleet(data_dir=tmp_path, max_files=files).connections_per_cluster == share


@pytest.mark.req("T-14")
def test_the_near_limit_of_ports_is_logged_once(tmp_path: Path) -> None:
    fleet = LocalFleet(data_dir=tmp_path, concurrency=2, max_files=400)
    with capture_logs() as logs:
        for listeners in (1, 80, 81, 90, 100):
            assert fleet.refuse(group=GROUP, listeners=listeners) == ""
        assert [(line["ports"], line["limit"]) for line in logs] == [(81, 100)]
        assert "ulimit -Hn" in logs[0]["sentence"]
        fleet.refuse(group=GROUP, listeners=50)
        fleet.refuse(group=GROUP, listeners=99)
    assert [line["ports"] for line in logs] == [81, 99]


async def test_a_second_hub_is_refused_until_the_first_has_closed(tmp_path: Path) -> None:
    binary = Path("/bin/false")
    first, second = (LocalFleet(data_dir=tmp_path, binary=binary) for _ in range(2))
    first.prepare()
    first.prepare()
    with pytest.raises(BadConfiguration, match="another hub uses the data directory"):
        second.prepare()
    await first.close()
    second.prepare()
    await second.close()


def test_a_data_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadConfiguration, match="cannot be used"):
        LocalFleet(data_dir=tmp_path / "file" / "hub", binary=Path("/bin/false")).prepare()


def test_the_data_directory_is_read_from_a_command() -> None:
    command = ["/opt/envoy", "-c", "/data/hub/bootstrap.json", "--disable-hot-restart", "--concurrency", "2"]
    assert directory_of(command) == hub_directory(Path("/data/hub")) == Path("/data/hub")
    assert hub_directory(Path("/data/hub/envoys-2/1")) == Path("/data/hub")
    for other in ("/data/envoys-2/hub", "/data/2/1", "/data/envoys-west/1"):
        assert hub_directory(Path(other)) == Path(other)
    assert directory_of(["/opt/envoy", "-c", "/data/hub/bootstrap.json"]) is None
    assert directory_of(["/opt/envoy", "--disable-hot-restart", "-c"]) is None


async def test_several_envoys_share_the_load_balancers_by_address(tmp_path: Path) -> None:
    fleet = LocalFleet(data_dir=tmp_path, envoys=3, concurrency=1, max_files=40)
    assert list(fleet.envoys) == [f"{GROUP}-{number}" for number in (1, 2, 3)]
    addresses = [f"192.0.2.{number}" for number in range(1, 250)]
    of_address = {each: fleet.groups_of(msgspec.structs.replace(SPEC, address=each))[0] for each in addresses}
    assert all(60 < list(of_address.values()).count(group) < 110 for group in fleet.envoys)
    other = LoadBalancerKey("TCPLoadBalancer", "shop", "api")
    assert all(
        fleet.groups_of(msgspec.structs.replace(SPEC, key=other, address=each)) == (group,)
        for each, group in of_address.items()
    ), "who shares an address shares the Envoy"
    # The limit of files is one of each process.
    assert [fleet.refuse(group=group, listeners=20) for group in fleet.envoys] == [""] * 3
    assert "raise --envoys" in fleet.refuse(group=f"{GROUP}-2", listeners=21)
    directories = [envoy.directory for envoy in fleet.envoys.values()]
    assert len(set(directories)) == 3
    assert {hub_directory(directory) for directory in directories} == {tmp_path}
