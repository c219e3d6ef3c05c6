"""Stories: what users ask for, one step after another, and what has to be there in the end."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from fairlead.model.desired import DesiredLoadBalancer, Target
from fairlead.model.keys import LoadBalancerKey, TargetKey
from fairlead.testing.builders import desired

KEYS = tuple(LoadBalancerKey("LoadBalancer", "shop", name) for name in ("a", "b", "c"))
DRAIN_S = 2.0

Intended = DesiredLoadBalancer | None
Step = tuple[float, str, LoadBalancerKey, Any]


def backend(
    number: int, *, owners: Sequence[str] = (), pod: str = "", weight: int = 1, draining: bool = False
) -> Target:
    return Target(
        TargetKey(f"10.0.0.{number}", 8080),
        weight,
        draining,
        tuple(sorted(owners)),
        (("weight", str(weight)),) if weight > 1 else (),
        pod and f"Pod/shop/{pod}/uid-{pod}",
    )


def story(seed: int, *, length: int = 2) -> tuple[list[Step], dict[LoadBalancerKey, Intended]]:
    """Make up what users do; each load balancer ends deleted, or with at least one ready backend."""
    rng = random.Random(seed)
    steps: list[Step] = []
    for _ in range(length):
        key = rng.choice(KEYS)
        wait_s = rng.choice((0.0, 0.0, 0.3, 1.0, 3.0))
        what = rng.random()
        if what < 0.15:
            steps.append((wait_s, "delete", key, None))
        elif what < 0.3:
            steps.append((wait_s, "delete record", key, rng.random()))
        else:
            steps.append((wait_s, "intended", key, _intended(rng, key)))
    ends: dict[LoadBalancerKey, Intended] = {}
    for key in KEYS:
        numbers = rng.sample(range(1, 4), rng.randint(1, 2))
        gone = rng.random() < 0.3
        end = None if gone else desired([_some(rng, n) for n in numbers], key=key, drain_s=DRAIN_S)
        steps.append((rng.choice((0.0, 0.5)), "delete" if gone else "intended", key, end))
        ends[key] = end
    return steps, ends


def _intended(rng: random.Random, key: LoadBalancerKey) -> DesiredLoadBalancer:
    numbers = rng.sample(range(1, 4), rng.randint(0, 3))
    return desired(
        [_some(rng, n, draining=rng.random() < 0.15) for n in numbers],
        key=key,
        ports=rng.choice(([80], [80], [80, 443])),
        drain_s=rng.choice((0.0, DRAIN_S)),
        address=rng.choice(("192.0.2.1", "192.0.2.1", "192.0.2.2")),
    )


def _some(rng: random.Random, number: int, *, draining: bool = False) -> Target:
    owners = rng.choice((("g1",), ("g1", "g2"), ("g2",)))
    pod = rng.choice(("", f"web-{number}", f"web-{number}", f"next-{number}"))
    return backend(number, owners=owners, pod=pod, weight=rng.choice((1, 1, 2)), draining=draining)
