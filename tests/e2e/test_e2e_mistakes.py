"""Mistakes of a user, typed as they are made: each answer says what is wrong, where, and the next step.

Each row is worth two points: one for what is wrong and where, one for the next step. One hub and one member serve all
rows. Where the answer is not printed, as after ``kubectl delete``, a row reads Events from the API.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import pytest
import pytest_asyncio

from fairlead.api.kubernetes import EVENTS
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.api.names import AGENT_LEASE, DEFAULT_CLASS, LABEL_MANAGED_BY, MANAGED_BY
from fairlead.kube.cluster import Cluster
from fairlead.kube.lease import Heartbeat
from fairlead.runtime.clock import SystemClock
from fairlead_demo.worlds.apis import EmbeddedApis
from fairlead_demo.worlds.fleet import Fleet
from fairlead_demo.worlds.loopback import free_port
from fairlead_demo.worlds.processes import fairlead, wait_until
from tests.e2e.e2e_backends import http
from tests.e2e.e2e_ordinary_user import as_ordinary_user

pytestmark = [pytest.mark.envoy, pytest.mark.slow, pytest.mark.timeout(900)]
_RESERVED = "192.0.2.1"  # RFC 5737: no machine has it


class Mistake(NamedTuple):
    """A command, its exit code, the expected names of fault and place, and those of the next step.

    ``{...}`` are files and addresses of this run. ``until``: what was done before has its effect a moment later.
    ``events lbc/NAME`` represents ``kubectl describe``: the Events about a class at the hub.
    """

    done: str
    typed: str
    code: int
    wrong: tuple[str, ...]
    step: str
    until: bool = False
    ordinary: bool = False


_STATUS = "status --kubeconfig {hub}"
MISTAKES = (
    Mistake("swapped kubeconfigs", "agent --tenant east --kubeconfig {key} --hub-kubeconfig {member}", 2,
            ("--kubeconfig: ", "is the hub", "Nothing was written"), "exchange --kubeconfig and --hub-kubeconfig"),
    Mistake("port 80 as an ordinary user", "apiserver --data-dir {new} --listen 127.0.0.1:80", 2,
            ("The address 127.0.0.1:80 cannot be listened on: this user may not open it",), "take a port from 1024 on",
            ordinary=True),
    Mistake("an empty --data-dir", "standalone --data-dir=", 2,
            ("'--data-dir': the value is empty", "unset variable"), "name a directory, such as ./hub"),
    Mistake("an unknown class", _STATUS, 5,
            ("east/default/gold: spec.className: there is no LoadBalancerClass 'gold' at the hub",),
            "kubectl get lbc", until=True),
    Mistake("an address that another has", _STATUS, 5,
            ("load balancer east/default/second: {taken} is taken by TCPLoadBalancer/tenant-east/default.dead",),
            "leave spec.address empty to get a free one", until=True),
    Mistake("a Service without endpoints", _STATUS, 5,
             ("load balancer east/default/none: no target", "list a ready endpoint in member east?"),
            "kubectl get endpointslices -n default -l kubernetes.io/service-name=none", until=True),
    Mistake("all pods dead", _STATUS, 5,
            ("load balancer east/default/dead: the only target is not healthy", "does a process listen on the port"),
            "fairlead explain tcplb/tenant-east/default.dead", until=True),
    Mistake("an agent whose clock is ahead", _STATUS, 5,
            ("member west: the clock of the agent's machine is about 60 minutes ahead of the hub's API",),
            "set it (NTP)", until=True),
    Mistake("the default class deleted", "events lbc/envoy", 0,
            ("the default class was deleted", "Services without a class need it"),
            "To have nothing new use it, set spec.draining", until=True),
    Mistake("a member instead of the hub", "tenant add north --kubeconfig {member}", 2,
            ("is a member, an agent works there", "no hub has run there"),
            "Name the kubeconfig of the hub, or a context with --context"),
    Mistake("too few rights", "plan --kubeconfig {key}", 2,
            ("this is the key of tenant east",), "give an administrator's kubeconfig of the hub"),
    Mistake("a misspelt command", "stats", 2, ("No such command 'stats'",), "Did you mean 'status'?"),
    Mistake("a misspelt option", "status --kubeconfg x", 2, ("No such option: --kubeconfg",), "--kubeconfig)"),
    Mistake("a name that cannot be", "tenant add East_1 --kubeconfig {hub}", 2,
            ("NAME: 'East_1' cannot name a tenant",), "use lower-case letters, digits and dashes"),
    Mistake("a file that is not there", "status --kubeconfig {dir}/none", 2,
            ("{dir}/none (the path given) does not exist",), "Correct the path"),
    Mistake("a kubeconfig that is no YAML", "status --kubeconfig {broken}", 2,
            ("{broken} is not valid YAML at line 2",), "Correct it there"),
    Mistake("an unknown context", "status --kubeconfig {hub} --context nope", 2,
            ('{hub} has no context "nope"',), "It has: "),
    Mistake("an API that does not run", "status --kubeconfig {closed}", 3,
            ("refuses connections", "{closed}"), "Is the API server running"),
    Mistake("a wrong token", "status --kubeconfig {stranger}", 2, ("{stranger}",), "token"),
    Mistake("a --listen that is none", "apiserver --data-dir {new} --listen here", 2,
            ("--listen: 'here' is not HOST:PORT",), "such as 127.0.0.1:6443"),
    Mistake("a port that is taken", "apiserver --data-dir {new} --listen {in_use}", 2,
            ("The address {in_use} cannot be listened on",), "stop what uses it, or take another port"),
    Mistake("another machine's address", f"apiserver --data-dir {{new}} --listen {_RESERVED}:6443", 2,
            (f"The address {_RESERVED} cannot be listened on: this machine does not have it",), "ip address shows"),
    Mistake("a pool that is none", "standalone --data-dir {new} --address-pool banana", 2,
            ("--address-pool: 'banana' is not a CIDR",), "such as 192.0.2.0/24"),
    Mistake("a kind that verbs do not take", "plan pod/web --kubeconfig {hub}", 1,
            ("No load balancer is named 'pod/web'",), "Other objects are named KIND/NAME: svc, lb, tcplb, httplb,"),
    Mistake("too many names in one", "plan lb/a/b/c --kubeconfig {hub}", 2,
            ("'lb/a/b/c' is not KIND/NAME",), "kinds are svc, lb, tcplb, httplb, gsvc, hostname and class"),
    Mistake("a misspelt member", "tenant remove eest --kubeconfig {hub}", 1,
            ("Tenant eest does not exist at",), "Did you mean"),
    Mistake("a history at a member", "explain svc/dead --history --kubeconfig {member}", 1,
            ("The history of Service default/dead is at the hub", "is not a hub"), "give the hub's --kubeconfig"),
    Mistake("rows of top by -n", "top -n 5", 2, ("-n is a namespace",), "the number of rows is --number 5"),
    Mistake("an object that is not there", "explain lb/nope --kubeconfig {hub}", 1,
            ("LoadBalancer default/nope does not exist",), "to list all: kubectl get lb -A"),
    Mistake("a group instead of its load balancer", "explain bg/web --kubeconfig {hub}", 2,
            ("'bg/web' is a BackendGroup",), "name a load balancer that it is on, as in lb/shared"),
    Mistake("an output that is none", "status -o xml --kubeconfig {hub}", 2,
            ("'--output' / '-o'", "'xml' is not one of"), "'table', 'wide', 'json', 'yaml', 'name'"),
    Mistake("a bad selector", "status --selector app=in=web --kubeconfig {hub}", 2,
            ("--selector: ",), "write it as in app=web,tier!=test"),
    Mistake("a bad duration", "status --wait --timeout soon --kubeconfig {hub}", 2,
            ("--timeout: 'soon' is not a duration",), "such as 90s or 10m"),
    Mistake("another tenant's key", "agent --tenant west --kubeconfig {member} --hub-kubeconfig {key}", 2,
            ("--hub-kubeconfig belongs to tenant 'east'", "--tenant is 'west'"), "or --tenant east"),
)  # fmt: skip


class Place(NamedTuple):
    """Where the mistakes are made: the names that rows name, the hub, and a directory in which nothing may appear."""

    names: dict[str, str]
    hub: Cluster
    cwd: Path


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def place() -> AsyncIterator[Place]:
    with tempfile.TemporaryDirectory(prefix="fl-e2e-") as name:
        directory = Path(name)
        apis = EmbeddedApis(directory / "api", ("hub", "east"))
        fleet = Fleet(apis=apis, directory=directory, members={"east": "Pod"}, drain="0s")
        try:
            await fleet.start()
            names = await _mistaken(fleet, directory)
            async with _agent_with_a_wrong_clock(fleet, "west"):
                yield Place(names, fleet.cluster, directory / "empty")
        finally:
            await fleet.close()


async def _mistaken(fleet: Fleet, directory: Path) -> dict[str, str]:
    """Make the mistakes that are objects; return what rows name."""
    east = fleet.members["east"]
    pod = east.new_address()
    await east.service("gold", http(80, 8080), loadBalancerClass="fairlead.dev/gold")
    for name in ("dead", "second"):
        await east.endpoints(name, 8080, pod)
    await east.service("dead", http(80, 8080))
    taken = await east.address("dead")
    await east.service("second", http(80, 8080), loadBalancerIP=taken)
    await east.service("none", http(80, 8080))
    await east.address("none")
    await fleet.cluster.delete(LOAD_BALANCER_CLASSES, "", DEFAULT_CLASS)
    (directory / "empty").mkdir()
    (directory / "broken").write_text("not: [yaml\n")
    hub = fleet.kubeconfig.read_text()
    _, _, server = next(line for line in hub.splitlines() if "server:" in line).partition("server: ")
    address = server.strip().strip('"').partition("//")[2]
    (directory / "closed").write_text(hub.replace(address, f"127.0.0.1:{free_port()}"))
    tokens = [line.partition("token: ")[2].strip() for line in hub.splitlines() if "token: " in line]
    (directory / "stranger").write_text(hub.replace(tokens[0], "nobody"))
    return {
        "hub": str(fleet.kubeconfig),
        "member": str(fleet.apis.kubeconfig("east")),
        "key": str(directory / "east-at-hub.kubeconfig"),
        "dir": str(directory),
        "new": str(directory / "new"),
        "in_use": address,
        "taken": taken,
        **{name: str(directory / name) for name in ("broken", "closed", "stranger")},
    }


class WrongClock(SystemClock):
    """This machine's clock, were it an hour ahead."""

    def now(self) -> datetime:
        return super().now() + timedelta(hours=1)


@asynccontextmanager
async def _agent_with_a_wrong_clock(fleet: Fleet, member: str) -> AsyncGenerator[None]:
    """Add a member, and renew its agent's lease by a wrong clock: the hub judges an agent by its lease."""
    await fleet.tenant_kubeconfig(member)
    async with Cluster.from_kubeconfig(fleet.kubeconfig, name=member, clock=WrongClock()) as agent:
        labels, namespace = {LABEL_MANAGED_BY: MANAGED_BY}, f"tenant-{member}"
        lease = Heartbeat(agent, namespace=namespace, name=AGENT_LEASE, identity=f"{member}-agent", labels=labels)
        beats = asyncio.create_task(lease.run())
        try:
            yield
        finally:
            beats.cancel()
            await asyncio.gather(beats, return_exceptions=True)


async def _events(place: Place, name: str) -> str:
    events = json.loads(await place.hub.raw("GET", EVENTS.path()))["items"]
    return " ".join(event["message"] for event in events if event["involvedObject"].get("name") == name)


async def _type(mistake: Mistake, place: Place) -> tuple[int, str]:
    if mistake.typed.startswith("events lbc/"):
        return 0, await _events(place, mistake.typed.partition("/")[2])
    command = fairlead(*mistake.typed.format(**place.names).split())
    process = await asyncio.create_subprocess_exec(
        *(as_ordinary_user(command) if mistake.ordinary else command),
        cwd=place.cwd,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        out, _ = await asyncio.wait_for(process.communicate(), 180)
    finally:
        if process.returncode is None:
            process.kill()
    return process.returncode or 0, " ".join(out.decode().split())


def points(mistake: Mistake, code: int, said: str, names: dict[str, str]) -> int:
    """Return one point for what is wrong and where, one for the next step; none with a wrong exit code."""
    if code != mistake.code or "Traceback" in said:
        return 0
    return all(word.format(**names) in said for word in mistake.wrong) + (mistake.step.format(**names) in said)


@pytest.mark.req("X-10", "X-11", "X-15", "X-30")
@pytest.mark.asyncio(loop_scope="module")
async def test_every_mistake_gets_both_points(place: Place) -> None:
    lost: list[str] = []
    total = 0
    for mistake in MISTAKES:
        answer = 0, ""

        async def answered(mistake: Mistake = mistake) -> bool:
            nonlocal answer
            answer = await _type(mistake, place)
            return points(mistake, *answer, place.names) == 2

        if not await answered() and mistake.until:
            await wait_until(answered, mistake.done)
        score = points(mistake, *answer, place.names)
        total += score
        if score < 2:
            lost.append(f"{mistake.done}: {score} of 2, exit code {answer[0]}: {answer[1]}")
    assert not lost, "\n".join(lost)
    assert len(MISTAKES) >= 30
    assert total == 2 * len(MISTAKES)
    assert list(place.cwd.iterdir()) == [], "a mistake has written into the working directory"
