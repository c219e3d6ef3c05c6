"""One Service of three members: shares by weight, a partition, failover in order, a member that dies, a shift, a drill.

In: a ``SharedContext``. Out: lines of progress, and a table of what was sent, answered and failed, by member and event;
``ExpectationFailed`` with one sentence when a check fails.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fairlead.api.globalservice import GLOBAL_SERVICES, GlobalService
from fairlead.api.meta import JSONObject
from fairlead.model.in_words import counted
from fairlead_demo.stories.context import FleetContext, start_everything
from fairlead_demo.worlds.apis import EmbeddedApis
from fairlead_demo.worlds.fleet import Fleet
from fairlead_demo.worlds.link import LinkState
from fairlead_demo.worlds.loopback import service_port
from fairlead_demo.worlds.processes import ExpectationFailed, run_fairlead, wait_until
from fairlead_demo.worlds.traffic import Traffic
from fairlead_demo.worlds.workload import POD_PORT, Workload

MEMBERS = ("west", "east", "north")
WEIGHTS = (60, 30, 10)
#: The member whose network to the hub is cut.
CUT_OFF = "west"
_NAMESPACE, _NAME = "tenant-west", "web"
_PODS = 2
_PER_S = 80.0
#: Requests of one event: so many show the shares to one percent.
_COUNTED = 200
#: So many connections may fail when a member dies: those that are being opened while its first ones are refused.
_IN_FLIGHT = 5
#: Proxies are read each two seconds, and each phase of a drill has to hold some readings.
_DRILLED = "6s"
_KEPT = "connections that are kept"


class Row(msgspec.Struct, frozen=True):
    """What became of the requests during one event."""

    event: str
    sent: int
    answered: Counter[str]
    failed: int
    lost: int


class SharedContext(FleetContext):
    """The context of this demo; ``rows`` has what each event did to requests, each on a connection of its own."""

    def __init__(self, *, fleet: Fleet, apis: EmbeddedApis, console: Console, plain: bool) -> None:
        super().__init__(fleet=fleet, apis=apis, console=console, plain=plain)
        self.rows: list[Row] = []
        self.address = ""
        self._event = ""
        self._start: Row | None = None

    @property
    def load(self) -> Traffic:
        """Return the requests that open a connection each."""
        return self.traffics[_title()]

    def pods(self) -> Iterator[tuple[str, str]]:
        """Yield (title of its traffic, name) of every pod."""
        return ((_title(), pod.name) for workload in self.workloads.values() for pod in workload.pods)

    def begin(self, event: str) -> None:
        """Count requests for another event from now on."""
        self.end()
        self._event, self._start = event, self._now()

    def end(self) -> None:
        """Add the row of the present event, if anything was sent in it."""
        if self._start is not None and (row := self.so_far()).sent:
            self.rows.append(row)
        self._start = None

    def so_far(self) -> Row:
        """Return the row of the present event as it is now."""
        start, now = self._start or self._now(), self._now()
        return Row(
            self._event,
            now.sent - start.sent,
            now.answered - start.answered,
            now.failed - start.failed,
            now.lost - start.lost,
        )

    def _now(self) -> Row:
        count, answered = self.load.count, Counter[str]()
        for pod, number in count.by_pod.items():
            answered[_member_of(pod)] += number
        return Row(self._event, count.sent, answered, count.failed, count.lost)

    async def served(self, shares: str) -> GlobalService:
        """Wait until the GlobalService shows these shares; return it."""
        status = ""

        async def as_wanted() -> bool:
            nonlocal status
            status = (await self.global_service()).status.shares
            return status == shares

        try:
            await wait_until(as_wanted, f"the members share as {shares}")
        except ExpectationFailed as error:
            raise ExpectationFailed(f"{error.sentence} (they share as {status})") from error
        return await self.global_service()

    async def global_service(self) -> GlobalService:
        """Return the GlobalService as it is now."""
        return await self.fleet.cluster.get(GLOBAL_SERVICES, _NAMESPACE, _NAME)

    async def apply(self, *members: JSONObject) -> None:
        """Write the GlobalService as its operator does."""
        body = {
            "metadata": {"name": _NAME, "namespace": _NAMESPACE},
            "spec": {"service": "default/web", "members": list(members), "returnDelay": "2s", "returnRamp": "6s"},
        }
        await self.fleet.cluster.apply(GLOBAL_SERVICES, body, manager="operator")

    async def counted(self, event: str, *, only: str = "", requests: int = _COUNTED) -> Row:
        """Wait for so many answers of an event; return its row.

        Until ``only`` that member answers, requests are of the event before: a change is on its way.
        """
        if only:

            async def moved() -> bool:
                before = self._now().answered
                await asyncio.sleep(20 / _PER_S)
                after = self._now().answered - before
                return set(after) == {only}

            await wait_until(moved, f"only {only} answers")
        self.begin(event)
        await wait_until(lambda: self._has(requests), f"{requests} more requests are answered")
        return self.so_far()

    async def _has(self, requests: int) -> bool:
        return self.so_far().answered.total() >= requests

    def table(self) -> Table | None:
        """Return the rows so far, and the one that is being counted."""
        if not self.rows and self._start is None:
            return None
        table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold")
        table.add_column("EVENT")
        for title in ("SENT", *(f"BY {name.upper()}" for name in MEMBERS), "FAILED", "LOST WITH POD"):
            table.add_column(title, justify="right")
        under_way = [self.so_far()] if self._start is not None else []
        for row in (*self.rows, *under_way):
            whole = row.answered.total() or 1
            table.add_row(
                row.event,
                str(row.sent),
                *(f"{row.answered[name]} ({100 * row.answered[name] / whole:.0f} %)" for name in MEMBERS),
                Text(str(row.failed), style="bold red" if row.failed > self._allowed(row) else "green"),
                str(row.lost),
            )
        return table

    @staticmethod
    def _allowed(row: Row) -> int:
        return _IN_FLIGHT if row.event == _DIES else 0

    def failures(self) -> list[str]:
        """Return one sentence for each event with more failed requests than it may have."""
        rows = [*self.rows, *([self.so_far()] if self._start is not None else [])]
        failures = [
            f"{row.event}: {counted(row.failed, 'request')} failed ({'; '.join(self.load.count.failures)})"
            for row in rows
            if row.failed > self._allowed(row)
        ]
        kept = self.traffics[_KEPT].count if _KEPT in self.traffics else None
        if kept is not None and kept.failed:
            failures.append(
                f"{counted(kept.failed, 'request')} on kept connections failed ({'; '.join(kept.failures)})"
            )
        return failures

    def ending(self, *, passed: bool) -> str:
        """Return the suffix of the summary."""
        del passed
        return f", {self.lost()} lost with the member that was killed"

    def commands(self) -> list[str]:
        """Return commands that the user can try while everything is kept running."""
        kubeconfig = self.fleet.kubeconfig
        return [
            *self.kubectl("globalservices", "services"),
            f"  fairlead shift --kubeconfig {kubeconfig} default/web west=50,east=50 --every 5s",
            f"  fairlead member drain east --kubeconfig {kubeconfig}",
            f"  curl http://{self.address}:{self.load.port}/",
        ]


_DIES = "west is killed"


async def give_one_address(context: SharedContext) -> None:
    """Create a Service in each member, and one GlobalService for all of them."""
    context.progress.step_started("a Service in each member, and one GlobalService")
    await asyncio.gather(*(_serve(context, name) for name in context.fleet.members))
    await context.apply(*({"tenant": name, "weight": weight} for name, weight in zip(MEMBERS, WEIGHTS, strict=True)))
    obj = await context.served("west 60%, east 30%, north 10%")
    context.address = obj.status.address
    context.traffics[_title()] = Traffic(host=context.address, kept=0, new_per_s=_PER_S)
    context.traffics[_KEPT] = Traffic(host=context.address, kept=4, new_per_s=0.01)
    await wait_until(context.load.is_answered, "the address answers")
    for traffic in context.traffics.values():
        traffic.start()
    context.progress.step_done("three members have one address", f"{context.address}: {obj.status.shares}")


async def share_by_weight(context: SharedContext) -> None:
    """Count the shares of 60/30/10."""
    context.progress.step_started("new connections are counted by member")
    _check_shares(await context.counted("60/30/10 by weight"), WEIGHTS)
    context.progress.step_done("each member gets its share", _shares_of(context))


async def survive_partition(context: SharedContext) -> None:
    """Cut a member off from the hub while its pods serve, start another pod there, and heal the network.

    Raises:
        ExpectationFailed: a request failed, or the shares changed, or the hub learned of the pod during the partition.
    """
    member, workload = context.fleet.members[CUT_OFF], context.workloads[CUT_OFF]
    if member.link is None:
        raise ExpectationFailed(f"the network between {CUT_OFF} and the hub cannot be cut")
    context.progress.step_started(f"{CUT_OFF} is cut off from the hub, and starts another pod")
    member.link.become(LinkState.STALL)
    counting = context.counted(f"{CUT_OFF} is cut off from the hub")
    row, pod = await asyncio.gather(counting, workload.start_pod(member.host("web")))
    _check_shares(row, WEIGHTS)
    if context.load.count.by_pod[pod.name]:
        raise ExpectationFailed(f"the hub learned of {pod.name} while {CUT_OFF} was cut off")
    context.check_traffic(f"while {CUT_OFF} was cut off from the hub")
    context.progress.step_done(
        "the member that is cut off serves its share, and no request failed", _shares_of(context)
    )
    context.progress.step_started("the network heals")
    context.begin("the network heals")
    member.link.become(LinkState.OPEN)
    await wait_until(lambda: _has_answered(context, pod.name), f"{pod.name} answers, too")
    context.check_traffic("when the network healed")
    context.progress.step_done(f"the hub learned of {pod.name}, and no request failed", _shares_of(context))
    context.end()


async def fail_over_in_order(context: SharedContext) -> None:
    """Give the members an order, and kill the first with all that it has; then let it return."""
    context.progress.step_started("the members get an order: west, east, north")
    context.begin("an order is given")
    await context.apply(*({"tenant": name, "priority": number} for number, name in enumerate(MEMBERS)))
    await context.served("west 100%, east standby, north standby")
    await context.counted("west before east and north", only="west")
    context.progress.step_done("the first member serves alone", _shares_of(context))
    context.progress.step_started("west is killed: pods, agent and API")
    context.begin(_DIES)
    west, workload = context.fleet.members["west"], context.workloads["west"]
    with context.load.pod_dies(), context.traffics[_KEPT].pod_dies():
        await asyncio.gather(*(pod.child.kill() for pod in workload.pods), west.agent.kill(), context.apis.kill("west"))
    await wait_until(lambda: _answers(context, "east"), "east serves in its place")
    died = context.so_far()
    context.check_traffic("when a member was killed")
    await context.counted("east instead of west", only="east")
    context.progress.step_done(
        "the next member in order serves",
        f"{counted(died.failed, 'connection')} failed, {counted(died.lost, 'request')} lost with their pods",
        _shares_of(context),
    )


async def return_member(context: SharedContext) -> None:
    """Start the killed member again."""
    context.progress.step_started("west returns")
    context.begin("west starts again")
    await context.apis.restart("west")
    workload, host = context.workloads["west"], context.fleet.members["west"].host("web")
    for pod in list(workload.pods):
        await workload.forget(pod)
    await asyncio.gather(context.fleet.members["west"].agent.start(), *(workload.start_pod(host) for _ in range(_PODS)))
    await context.counted("west has returned", only="west")
    context.check_traffic("when the member returned")
    context.progress.step_done("the member that returned serves again, and no request failed", _shares_of(context))


async def shift_weights(context: SharedContext) -> None:
    """Move most connections to east in steps; of two shifts that are requested at once, one is refused."""
    context.progress.step_started("equal order again, 60/30/10")
    context.begin("60/30/10 is given")
    await context.apply(*({"tenant": name, "weight": weight} for name, weight in zip(MEMBERS, WEIGHTS, strict=True)))
    await context.served("west 60%, east 30%, north 10%")
    await wait_until(lambda: _answers(context, "north"), "all members serve again")
    context.progress.step_started("half of all connections move from west to east, 20 % at a time")
    context.begin("shift to 10/80/10")
    hub = ("--kubeconfig", str(context.fleet.kubeconfig), "--output", "json")
    # Both at once, so that a busy machine does not start the second one after the first shift has ended.
    command = ("shift", "default/web", "west=10,east=80,north=10", "--step", "20", "--every", "6s", *hub)
    first, second = sorted(await asyncio.gather(run_fairlead(*command), run_fairlead(*command)))
    if first[0] or not json.loads(first[1]):
        raise ExpectationFailed(f"fairlead shift failed: {first[2].strip()}")
    if second[0] != 1:
        raise ExpectationFailed("a second shift was not refused while the first was under way")
    await context.served("west 10%, east 80%, north 10%")
    # The last connections of the step before are on their way.
    await asyncio.sleep(0.5)
    _check_shares(await context.counted("10/80/10 after the shift"), (10, 80, 10))
    context.check_traffic("while connections moved")
    context.progress.step_done(
        "half of the connections moved in steps, and none failed",
        _shares_of(context),
        second[2].strip().splitlines()[-1],
    )
    context.end()


async def rehearse_a_failure(context: SharedContext) -> None:
    """Take east out of service by a drill, which measures what the others make of it."""
    context.progress.step_started(f"a drill takes east out of service for {_DRILLED}")
    context.begin("a drill of east")
    hub = ("--kubeconfig", str(context.fleet.kubeconfig), "--output", "json")
    code, out, problem = await run_fairlead("drill", "member", "east", "--for", _DRILLED, *hub)
    if code:
        raise ExpectationFailed(f"the drill failed: {problem.strip()}")
    phases = [phase for service in json.loads(out)["status"]["services"] for phase in service.get("phases", ())]
    context.check_traffic("during the drill")
    context.progress.step_done(
        "the others serve without east, and no request failed",
        *(
            f"{phase['phase']}: "
            + ", ".join(f"{member['tenant']} {member.get('connections', 0)}" for member in phase.get("members", ()))
            for phase in phases
        ),
    )
    context.end()


STEPS = (
    start_everything,
    give_one_address,
    share_by_weight,
    survive_partition,
    fail_over_in_order,
    return_member,
    shift_weights,
    rehearse_a_failure,
)


async def _serve(context: SharedContext, name: str) -> None:
    member = context.fleet.members[name]
    workload = Workload(cluster=member.cluster, service="web", directory=context.fleet.directory)
    context.workloads[name], host = workload, member.host("web")
    await member.node(host.node, f"{member.network}.1")
    for _ in range(_PODS):
        await workload.start_pod(host)
    await member.service("web", {"port": service_port(80), "targetPort": POD_PORT}, selector={"app": "web"})


async def _answers(context: SharedContext, name: str) -> bool:
    return context.so_far().answered[name] > 0


async def _has_answered(context: SharedContext, pod: str) -> bool:
    return context.load.count.by_pod[pod] > 0


def _check_shares(row: Row, weights: Sequence[int]) -> None:
    """Raise ``ExpectationFailed`` when a member got two percent more or less than its share."""
    for name, weight in zip(MEMBERS, weights, strict=True):
        share = 100 * row.answered[name] / row.answered.total()
        if abs(share - weight) > 2:
            raise ExpectationFailed(
                f"{name} got {share:.1f} % of {row.answered.total()} requests instead of {weight} %"
            )


def _shares_of(context: SharedContext) -> str:
    answered = context.so_far().answered
    return "answered: " + ", ".join(f"{name} {answered[name]}" for name in MEMBERS)


def _title() -> str:
    return "new connections"


def _member_of(pod: str) -> str:
    """Return the member of a pod, whose name is that of the Service, the member and a number."""
    return pod.split("-")[1]
