"""An agent's token is short-lived, and the agent renews it itself: at the hub's API, by the agent's own rights."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import stat
from collections.abc import AsyncGenerator, AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pytest
import structlog
import yaml
from agent_world import World, until
from agent_world import cluster as admin_of

from fairlead.agent.app import Agent
from fairlead.agent.config import AgentConfig
from fairlead.agent.term import TokenRenewal
from fairlead.api.kinds import all_crds
from fairlead.api.kubernetes import LEASES, ROLES, SERVICE_ACCOUNTS
from fairlead.api.names import AGENT_LEASE, AGENT_SERVICE_ACCOUNT
from fairlead.cli.tenant import end_keys, issue_access
from fairlead.errors import Forbidden, NotFound, Unauthorized
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig, request_token, token_times
from fairlead.kube.discovery import install_crds
from fairlead.runtime.clock import VirtualClock
from fairlead.translate.tenant import agent_rules
from tests.scenario.any_api import api, authority, real

__all__ = ["api", "authority", "real"]


class Key:
    """The kubeconfig of a tenant's agent, in a file."""

    def __init__(self, admin: Cluster, path: Path, tenant: str, authority: bytes = b"") -> None:
        self.admin = admin
        self.path = path
        self.tenant = tenant
        self.namespace = f"tenant-{tenant}"
        self._trust = {"certificate-authority-data": base64.b64encode(authority).decode()} if authority else {}

    async def write(self, *, valid_s: int) -> str:
        access = await issue_access(
            self.admin, name=self.tenant, region="", valid_s=valid_s, server="", trust=dict(self._trust)
        )
        self.path.write_text("# kept as it is\n" + access.kubeconfig)
        self.path.chmod(0o600)
        return self.token

    async def rotate(self, *, valid_s: int) -> str:
        await end_keys(self.admin, self.namespace)
        return await self.write(valid_s=valid_s)

    @property
    def token(self) -> str:
        return yaml.safe_load(self.path.read_text())["users"][0]["user"]["token"]

    async def accepts(self, token: str) -> bool:
        """Say whether the hub still knows ``token``."""
        other = self.path.with_name(f"probe-{uuid4().hex}")
        other.write_text(self.path.read_text().replace(self.token, token))
        async with Cluster.from_kubeconfig(other, name="probe") as probe:
            try:
                await probe.get(LEASES, self.namespace, AGENT_LEASE)
            except Unauthorized:
                return False
            except NotFound:
                pass
            return True


@pytest.fixture
async def key(api: ClusterConfig, authority: bytes, tmp_path: Path) -> AsyncIterator[Key]:
    async with Cluster(api, name="admin") as admin:
        assert await install_crds(admin, all_crds(), "fairlead-hub") == []
        yield Key(admin, tmp_path / "at-hub", f"t-{uuid4().hex[:8]}", authority)


@contextlib.asynccontextmanager
async def renewing(key: Key, clock: VirtualClock) -> AsyncGenerator[tuple[Cluster, TokenRenewal]]:
    async with Cluster.from_kubeconfig(key.path, name="the hub", clock=clock) as hub:
        renewal = TokenRenewal(hub, tenant=key.tenant)
        task = asyncio.create_task(renewal.run())
        try:
            yield hub, renewal
        finally:
            task.cancel()
            await asyncio.wait({task})


@pytest.mark.req("S-11")
async def test_at_half_of_its_life_a_token_is_renewed_and_written(key: Key):
    first = await key.write(valid_s=3600)
    clock = VirtualClock(start=datetime.now(UTC))
    async with renewing(key, clock) as (hub, renewal):
        await clock.advance(1700)
        assert key.token == first, "not before half of it has gone"
        await clock.advance_until(lambda: key.token != first, step_s=10, limit_s=600)
        second = key.token
        assert stat.S_IMODE(key.path.stat().st_mode) == 0o600
        assert key.path.read_text().startswith("# kept as it is\n")
        times = token_times(second)
        assert times is not None
        assert (times.namespace, times.account, times.life_s) == (key.namespace, AGENT_SERVICE_ACCOUNT, 3600)
        assert (await hub.config.sign_in(None)).headers["Authorization"] == f"Bearer {second}"
        assert await key.accepts(second)
        assert await key.accepts(first), "renewing ends no token"
        assert renewal.problem == ""
        third = await key.rotate(valid_s=3600)

    async def ended() -> bool:
        return not await key.accepts(first) and not await key.accepts(second)

    # A real API server remembers for ten seconds whom it has seen.
    await until(ended, timeout_s=60, what="rotation ends renewed tokens too")
    assert await key.accepts(third)


@pytest.mark.req("S-11")
async def test_an_agent_can_ask_for_its_own_token_only(key: Key):
    await key.write(valid_s=600)
    await key.admin.apply(
        SERVICE_ACCOUNTS, {"metadata": {"name": "other", "namespace": key.namespace}}, manager="admin"
    )
    async with Cluster.from_kubeconfig(key.path, name="the hub") as hub:
        for namespace, name in ((key.namespace, "other"), ("kube-system", AGENT_SERVICE_ACCOUNT)):
            with pytest.raises(Forbidden):
                await request_token(hub, namespace, name, valid_s=600)
        assert (await request_token(hub, key.namespace, AGENT_SERVICE_ACCOUNT, valid_s=600)).token


@pytest.mark.req("S-11")
async def test_a_token_without_renewal_is_reported_before_it_expires(key: Key):
    first = await key.write(valid_s=3600)
    inside = {"name": AGENT_SERVICE_ACCOUNT, "namespace": key.namespace}
    rules = [rule for rule in agent_rules() if "serviceaccounts/token" not in rule["resources"]]
    await key.admin.apply(ROLES, {"metadata": inside, "rules": rules}, manager="fairlead-hub")
    clock = VirtualClock(start=datetime.now(UTC))
    with structlog.testing.capture_logs() as logs:
        async with renewing(key, clock) as (_, renewal):
            assert not [entry for entry in logs if entry["event"] == "token not renewed"]
            await clock.advance_until(
                lambda: any(entry["event"] == "token not renewed" for entry in logs), step_s=20, limit_s=2400
            )
            (said,) = [entry["sentence"] for entry in logs if entry["event"] == "token not renewed"]
            assert f"fairlead tenant rotate {key.tenant}" in said
            assert "/token" in said
            assert first not in str(logs)
            clock.jump(2600)  # the answer has shown the true time at the server
            assert f"fairlead tenant rotate {key.tenant}" in renewal.problem
            assert "expires at" in renewal.problem
            whole = [*rules, *[rule for rule in agent_rules() if rule not in rules]]
            await key.admin.apply(ROLES, {"metadata": inside, "rules": whole}, manager="fairlead-hub")
            await clock.advance_until(lambda: key.token != first, step_s=20, limit_s=600)
            assert renewal.problem == ""


def working(world: World, kubeconfig: Path) -> Agent:
    config = AgentConfig(tenant="east", heartbeat_s=0.5, preflight_retry_s=0.2)
    hub = Cluster.from_kubeconfig(kubeconfig, name="the hub", qps=10_000)
    agent = Agent(member=admin_of(world.member_url, "the member"), hub=hub, config=config)
    world.agents.append((agent, asyncio.create_task(agent.run(), name="agent")))
    return agent


async def exports(world: World, name: str) -> None:
    await world.service(name)
    await until(lambda: world.load_balancer(f"shop.{name}"), what=name)


@pytest.mark.req("S-11")
async def test_an_agent_works_on_past_several_lives_of_its_token(world: World, tmp_path: Path):
    key = Key(world.hub, tmp_path / "at-hub", "east")
    tokens = [await key.write(valid_s=10)]
    agent = working(world, key.path)
    await exports(world, "web-0")
    for number in range(1, 4):
        await until(lambda: key.token not in tokens, timeout_s=60, what="renewed")
        tokens.append(key.token)
        await exports(world, f"web-{number}")
    assert not await key.accepts(tokens[0]), "its own life has ended"
    await until(lambda: agent.readiness() == [], what="ready")
    await world.stop(agent)
    assert await key.accepts(key.token)
    again = working(world, key.path)
    await exports(world, "restarted")
    rotated = await key.rotate(valid_s=600)
    assert not await key.accepts(tokens[-1])
    await exports(world, "rotated")
    assert key.token == rotated, "a renewed token does not overwrite the new key"
    await until(lambda: again.readiness() == [], what="ready")


@pytest.mark.req("S-11")
async def test_where_the_file_cannot_be_written_the_token_is_kept_in_memory(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    key = Key(world.hub, tmp_path / "at-hub", "east")
    first = await key.write(valid_s=10)

    def read_only(*_: object, **__: object) -> None:
        # What a mounted Secret answers; root may write into any directory, so that permissions would prove nothing.
        raise OSError(os.strerror(30))

    monkeypatch.setattr("fairlead.runtime.private_file.tempfile.mkstemp", read_only)
    with structlog.testing.capture_logs() as logs:
        agent = working(world, key.path)
        await exports(world, "web-0")

        def renewed() -> int:
            return sum(entry["event"] == "token renewed" for entry in logs)

        await until(lambda: renewed() >= 3, timeout_s=90, what="renewed three times")
        assert not await key.accepts(first)
        await exports(world, "web-1")
    assert key.token == first
    (said,) = [entry["sentence"] for entry in logs if entry["event"] == "token is kept in memory"]
    assert str(key.path) in said
    assert "fairlead tenant rotate east" in said
    monkeypatch.undo()
    second = await key.rotate(valid_s=600)
    await exports(world, "web-2")
    assert (await agent.hub.config.sign_in(None)).headers["Authorization"] == f"Bearer {second}"
