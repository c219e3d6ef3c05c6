"""A port that Envoy cannot open: what its user reads is Envoy's complaint, and nothing that is not so."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from fairlead.api.tcploadbalancer import TCPLoadBalancer
from fairlead_demo.worlds.fleet import Fleet
from fairlead_demo.worlds.loopback import service_port
from fairlead_demo.worlds.processes import run_fairlead, wait_until
from tests.e2e.e2e_backends import echoes, http, ready
from tests.e2e.e2e_own import no_services

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.envoy, pytest.mark.timeout(900)]


def reasons(lb: TCPLoadBalancer) -> dict[str, tuple[str, str]]:
    return {condition.type: (condition.status, condition.reason) for condition in lb.status.conditions or ()}


async def test_a_port_of_another_program_reads_as_rejected_by_envoy(fleet: Fleet) -> None:
    east, port = fleet.members["east"], service_port(80)
    pod, address = east.new_address(), f"{fleet.pool.rpartition('.')[0]}.211"
    at_hub: list[TCPLoadBalancer] = []
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(echoes((pod, 8080, "hello")))
        other = await asyncio.start_server(lambda _reader, writer: writer.close(), address, port)
        stack.callback(other.close)
        # Its endpoints come after it, so that it has no target at first.
        await east.service("taken", http(80, 8080), loadBalancerIP=address)

        async def says(serving: tuple[str, str]) -> bool:
            if (lb := await fleet.at_hub("east", "default.taken")) is not None:
                at_hub.append(lb)
            return bool(at_hub) and reasons(at_hub[-1]).get("Serving") == serving

        await wait_until(lambda: says(("False", "NoTargets")), "no target")
        await east.endpoints("taken", 8080, pod)

        async def healthy() -> bool:
            return await says(("Unknown", "NotProgrammed")) and at_hub[-1].status.targets == "1/1 healthy"

        await wait_until(healthy, "its target is healthy")
        assert reasons(at_hub[-1])["Programmed"] == ("False", "RejectedByProxy")
        checked = [lb for lb in at_hub if lb.status.targets == "1/1 healthy"]
        assert {reasons(lb)["Serving"] for lb in checked} == {("Unknown", "NotProgrammed")}

        code, out, _ = await run_fairlead("status", "--kubeconfig", str(fleet.kubeconfig))
        (row,) = (line.split() for line in out.splitlines() if line.startswith("east/default/taken"))
        # A load balancer of another test in this fleet may have routes, and ROUTES is then "-" here.
        cells = [cell for cell in row[3:] if cell != "-"]
        assert (code, cells) == (5, ["False", "Unknown", "RejectedByProxy", "1/1", "healthy"])
        assert f"cannot bind '{address}:{port}': Address already in use" in " ".join(out.split())
        name = "tcplb/tenant-east/default.taken"
        _, out, _ = await run_fairlead("explain", name, "--kubeconfig", str(fleet.kubeconfig))
        assert "no target" not in out
        assert "NotProgrammed: the targets are healthy" in out
        assert "not programmed: RejectedByProxy" in out

        async def reported() -> bool:
            return bool(await east.events("taken"))

        await wait_until(reported, "an Event says so")
        assert set(await east.events("taken")) == {"RejectedByProxy"}

        other.close()
        await other.wait_closed()
        assert await ready(east, "taken", 80) == address, "it is tried again, and the port is free by now"
    await no_services(fleet, east, "taken")
