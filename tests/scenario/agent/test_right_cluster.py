"""A kubeconfig for the wrong cluster is refused before anything is written there, by the real command line."""

from __future__ import annotations

import json
import stat
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from fairlead.api.httploadbalancer import HTTP_LOAD_BALANCERS
from fairlead.api.kinds import all_crds
from fairlead.api.kubernetes import CRDS, LEASES, NAMESPACES
from fairlead.api.names import AGENT_LEADER_LEASE, HUB_LEASE, SYSTEM_NAMESPACE
from fairlead.errors import Forbidden, Unauthorized
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig
from fairlead.kube.discovery import install_crds
from fairlead.kube.lease import Heartbeat
from fairlead_demo.worlds.processes import run_fairlead
from tests.scenario.any_api import api, authority, embedded_api, real, until

__all__ = ["api", "authority", "real"]


class ApiSide:
    """One API: its administrator, and a kubeconfig of that administrator."""

    def __init__(self, config: ClusterConfig, kubeconfig: Path) -> None:
        self.cluster = Cluster(config, name="admin")
        self.kubeconfig = str(kubeconfig)

    async def kinds(self) -> list[str]:
        return [crd.metadata.name for crd in await self.cluster.list(CRDS)]


async def side(config: ClusterConfig, path: Path, *, authority: bytes = b"") -> ApiSide:
    access = await config.sign_in(None)
    write_kubeconfig(path, config.server, access.headers["Authorization"].removeprefix("Bearer "), authority)
    return ApiSide(config, path)


def write_kubeconfig(path: Path, server: str, token: str, authority: bytes) -> None:
    trust = {"certificate-authority": str(path.with_suffix(".crt"))} if authority else {}
    path.with_suffix(".crt").write_bytes(authority)
    document = {
        "clusters": [{"name": "c", "cluster": {"server": server, **trust}}],
        "users": [{"name": "u", "user": {"token": token}}],
        "contexts": [{"name": path.stem, "context": {"cluster": "c", "user": "u"}}],
        "current-context": path.stem,
    }
    path.write_text(yaml.safe_dump(document))


def merge(path: Path, *kubeconfigs: str) -> None:
    """Write one kubeconfig that has the contexts of all; the first one's is current."""
    merged: dict[str, list[Any]] = {"clusters": [], "users": [], "contexts": []}
    for number, each in enumerate(kubeconfigs):
        document = yaml.safe_load(Path(each).read_text())
        for kind in ("clusters", "users"):
            document[kind][0]["name"] += str(number)
        document["contexts"][0]["context"] = {"cluster": f"c{number}", "user": f"u{number}"}
        for kind, entries in merged.items():
            entries.extend(document[kind])
    path.write_text(yaml.safe_dump({**merged, "current-context": merged["contexts"][0]["name"]}))


def permissions(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def names_in(path: Path) -> list[str]:
    return [each.name for each in path.iterdir()]


@asynccontextmanager
async def fresh_side(path: Path) -> AsyncGenerator[ApiSide]:
    async with embedded_api() as config:
        made = await side(config, path)
        async with made.cluster:
            yield made


@pytest.fixture
async def member(tmp_path: Path) -> AsyncIterator[ApiSide]:
    async with fresh_side(tmp_path / "member") as made:
        yield made


@pytest.fixture
async def hub(api: ClusterConfig, authority: bytes, tmp_path: Path) -> AsyncIterator[ApiSide]:
    """An API where a hub has run: its kinds, and its lease."""
    made = await side(api, tmp_path / "hub", authority=authority)
    async with made.cluster as cluster:
        assert await install_crds(cluster, all_crds(), "fairlead-hub") == []
        await cluster.apply(NAMESPACES, {"metadata": {"name": SYSTEM_NAMESPACE}}, manager="hub")
        await Heartbeat(cluster, namespace=SYSTEM_NAMESPACE, name=HUB_LEASE, identity="hub-1").beat()
        yield made
        await cluster.delete(LEASES, SYSTEM_NAMESPACE, HUB_LEASE)


async def refused(*arguments: str) -> str:
    code, out, problem = await run_fairlead(*arguments)
    assert (code, out) == (2, ""), problem
    assert problem.count("\n") == 1, "one sentence"
    return problem


async def key(hub: ApiSide, tmp_path: Path, name: str = "east") -> str:
    path = tmp_path / f"{name}-at-hub"
    code, out, problem = await run_fairlead(
        "tenant", "add", name, "--output", str(path), "--kubeconfig", hub.kubeconfig
    )
    assert (code, out) == (0, ""), problem
    return str(path)


@pytest.mark.req("X-10")
async def test_tenant_add_writes_nothing_where_no_hub_has_run(member: ApiSide):
    problem = await refused("tenant", "add", "east", "--kubeconfig", member.kubeconfig)
    for word in ("--kubeconfig", member.cluster.server, 'context "member"', "--context", "--new-hub"):
        assert word in problem
    assert await member.kinds() == []
    assert not [each for each in await member.cluster.list(NAMESPACES) if each.metadata.name.startswith("tenant-")]
    code, _, problem = await run_fairlead("tenant", "add", "east", "--new-hub", "--kubeconfig", member.kubeconfig)
    assert code == 0, problem
    assert "tenants.fairlead.dev" in await member.kinds()


@pytest.mark.req("X-10")
async def test_the_context_chooses_between_hub_and_member(member: ApiSide, tmp_path: Path):
    async with fresh_side(tmp_path / "other") as other:
        both = tmp_path / "both"
        merge(both, member.kubeconfig, other.kubeconfig)
        arguments = ("tenant", "add", "east", "--new-hub", "--kubeconfig", str(both), "--context", "other")
        code, _, problem = await run_fairlead(*arguments, "--output", str(tmp_path / "key"))
        assert code == 0, problem
        assert await member.kinds() == []
        assert await other.kinds() != []
        assert other.cluster.server in (tmp_path / "key").read_text(), "the key is for the same context"


@pytest.mark.req("X-11")
async def test_swapped_kubeconfigs_are_refused(hub: ApiSide, member: ApiSide, tmp_path: Path):
    at_hub = await key(hub, tmp_path)
    problem = await refused("agent", "--tenant", "east", "--kubeconfig", at_hub, "--hub-kubeconfig", member.kubeconfig)
    for word in ("--kubeconfig", hub.cluster.server, "the key of tenant east", "exchange --kubeconfig and --hub-kube"):
        assert word in problem
    assert await member.kinds() == []
    assert await member.cluster.list(LEASES) == []


@pytest.mark.req("X-11")
async def test_the_hubs_key_for_both_sides_is_refused(hub: ApiSide, tmp_path: Path):
    at_hub = await key(hub, tmp_path)
    problem = await refused("agent", "--tenant", "east", "--kubeconfig", at_hub, "--hub-kubeconfig", at_hub)
    assert "--kubeconfig" in problem
    assert "the key of tenant east" in problem
    assert "exchange" not in problem


@pytest.mark.req("X-11")
async def test_a_member_for_both_sides_is_refused(member: ApiSide):
    arguments = ("--kubeconfig", member.kubeconfig, "--hub-kubeconfig", member.kubeconfig)
    problem = await refused("agent", "--tenant", "east", *arguments)
    for word in ("--hub-kubeconfig", member.cluster.server, "fairlead tenant add east --output"):
        assert word in problem
    assert await member.cluster.list(LEASES) == []


@pytest.mark.req("X-11")
async def test_the_key_of_another_tenant_is_refused(hub: ApiSide, member: ApiSide, tmp_path: Path):
    at_hub = await key(hub, tmp_path, "west")
    problem = await refused("agent", "--tenant", "east", "--kubeconfig", member.kubeconfig, "--hub-kubeconfig", at_hub)
    assert "--hub-kubeconfig belongs to tenant" in problem
    assert "--tenant west" in problem
    assert await member.cluster.list(LEASES) == []


@pytest.mark.req("X-11")
async def test_a_hub_with_a_tenants_key_is_refused(hub: ApiSide, tmp_path: Path):
    at_hub = await key(hub, tmp_path)
    problem = await refused("hub", "--kubeconfig", at_hub, "--data-dir", str(tmp_path / "data"))
    assert "the key of tenant east" in problem
    assert "an administrator's kubeconfig" in problem
    problem = await refused("tenant", "add", "west", "--kubeconfig", at_hub)
    assert "the key of tenant east" in problem


@pytest.mark.req("X-11")
async def test_a_hub_that_was_given_a_member_writes_nothing_there(member: ApiSide, tmp_path: Path):
    await member.cluster.apply(NAMESPACES, {"metadata": {"name": "kube-system"}}, manager="admin")
    await Heartbeat(member.cluster, namespace="kube-system", name=AGENT_LEADER_LEASE, identity="agent").beat()
    problem = await refused("hub", "--kubeconfig", member.kubeconfig, "--data-dir", str(tmp_path / "data"))
    for word in ("--kubeconfig", "is a member", f"kube-system/{AGENT_LEADER_LEASE}", "--new-hub"):
        assert word in problem
    assert await member.kinds() == []


@pytest.mark.req("X-14", "S-11")
async def test_a_key_is_written_for_its_owner_alone(hub: ApiSide, tmp_path: Path):
    path = tmp_path / "key"
    path.write_text("old")
    path.chmod(0o644)
    arguments = ("tenant", "add", "east", "--kubeconfig", hub.kubeconfig, "--output", str(path))
    code, out, problem = await run_fairlead(*arguments)
    assert (code, out) == (0, ""), problem
    assert permissions(path) == 0o600
    assert f"--hub-kubeconfig {path}" in problem
    assert [name for name in names_in(tmp_path) if name.startswith(".")] == []


@pytest.mark.req("X-14")
async def test_a_key_on_stdout_says_so(hub: ApiSide):
    code, out, problem = await run_fairlead("tenant", "add", "east", "--kubeconfig", hub.kubeconfig)
    assert code == 0
    assert "token:" in out
    assert "The key was printed; --output FILE writes it to a file that only you can read" in problem


@pytest.mark.req("X-14")
@pytest.mark.parametrize(("output", "says"), [("{}", "is a directory"), ("{}/no/key", "does not exist")])
async def test_a_file_that_cannot_be_written_is_refused_before_anything_is_done(
    member: ApiSide, tmp_path, output, says
):
    arguments = ("tenant", "add", "east", "--new-hub", "--kubeconfig", member.kubeconfig)
    problem = await refused(*arguments, "--output", output.format(tmp_path))
    assert "--output" in problem
    assert says in problem
    assert await member.kinds() == []


async def works(kubeconfig: str) -> bool:
    async with Cluster.from_kubeconfig(kubeconfig, name="hub") as cluster:
        try:
            await cluster.list(LEASES, cluster.namespace)
        except Unauthorized:
            return False
        except Forbidden:
            pass  # it is known, and may not list leases
        return True


async def ended(kubeconfig: str) -> bool:
    return not await works(kubeconfig)


@pytest.mark.req("S-11")
async def test_rotation_ends_every_earlier_key(hub: ApiSide, tmp_path: Path):
    first = await key(hub, tmp_path)
    second = str(tmp_path / "second")
    arguments = ("east", "--kubeconfig", hub.kubeconfig, "--output")
    code, _, problem = await run_fairlead("tenant", "add", *arguments, second)
    assert code == 0, problem
    assert await works(first), "a fresh key ends no other"
    assert await works(second)
    third = str(tmp_path / "third")
    code, out, problem = await run_fairlead("tenant", "rotate", *arguments, third)
    assert (code, out) == (0, ""), problem
    assert "All earlier credentials of tenant east are revoked" in problem
    # A real API server remembers for ten seconds whom it has seen.
    await until(lambda: ended(first))
    await until(lambda: ended(second))
    assert await works(third)


@pytest.mark.req("S-11")
async def test_rotation_makes_no_tenant(hub: ApiSide, tmp_path: Path):
    code, _, problem = await run_fairlead("tenant", "rotate", "nowhere", "--kubeconfig", hub.kubeconfig)
    assert code == 1
    assert "Tenant nowhere does not exist" in problem


@pytest.mark.req("X-5")
async def test_the_list_of_members_counts_load_balancers_of_every_kind(hub: ApiSide, tmp_path: Path):
    await key(hub, tmp_path)
    at = {"namespace": "tenant-east"}
    listener = {"name": "web", "port": 80, "protocol": "HTTP"}
    http = {"metadata": {"name": "shop.web", **at}, "spec": {"listeners": [listener]}}
    await hub.cluster.apply(HTTP_LOAD_BALANCERS, http, manager="agent")
    code, out, problem = await run_fairlead("tenant", "list", "--output", "json", "--kubeconfig", hub.kubeconfig)
    assert code == 0, problem
    assert [row["loadBalancers"] for row in json.loads(out) if row["name"] == "east"] == [1]
    await hub.cluster.delete(HTTP_LOAD_BALANCERS, "tenant-east", "shop.web")
