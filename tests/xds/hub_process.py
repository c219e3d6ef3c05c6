"""A hub to be killed: serves one load balancer, says so, and waits.

Arguments: data directory, address, target address, target port.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from fairlead.model.change import Action, Reason, TargetChange
from fairlead.model.desired import FrontendSpec, Listener, Target
from fairlead.model.keys import LoadBalancerKey, TargetKey
from fairlead.providers.envoy.provider import create

KEY = LoadBalancerKey("TCPLoadBalancer", "test", "survivor")


def spec(address: str) -> FrontendSpec:
    return FrontendSpec(key=KEY, group="test", listeners=(Listener(8080),), address=address, health_check=None)


async def main(data_dir: str, address: str, target: str, port: str) -> None:
    provider = create(data_dir=Path(data_dir), concurrency=1)
    await provider.start()
    await provider.ensure(spec(address))
    row = TargetChange(KEY, Listener(8080).key, Target(TargetKey(target, int(port))), Action.REGISTER, Reason.NEW)
    await provider.apply([row])
    provider.publish()
    # A program of its own: it imports nothing of the tests.
    while (status := await provider.observe(KEY)) is None or not status.programmed:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    print("ready", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
