"""Checks that the clusters are the intended ones and answer, and that credentials and clocks are valid.

In: facts. Out: findings about kubeconfigs, clocks, versions of Kubernetes, and what could not be read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta

from fairlead.doctor.facts import Facts
from fairlead.doctor.finding import Finding, error, unknown, warning
from fairlead.kube.server_clock import NOTICEABLE_S

#: The oldest minor version of Kubernetes that is tested: EndpointSlices, server-side apply and CEL rules are there.
OLDEST_MINOR = 29
_SOON = timedelta(days=7)
_FLAG = {"hub": "--kubeconfig", "member": "--member-kubeconfig"}


def unreachable(facts: Facts) -> Iterator[Finding]:
    """Name each cluster that does not answer."""
    for side in filter(None, (facts.hub, facts.member)):
        if side.error:
            fix = " ".join(filter(None, ("kubectl", side.flags, "get --raw /readyz")))
            yield error(f"{side.name} {side.server}".strip(), side.error, fix)


def swapped(facts: Facts) -> Iterator[Finding]:
    """Name a kubeconfig that is for the other side, or an agent's key that stands for an administrator."""
    for side in facts.sides:
        if side.key_of:
            fault = f"the kubeconfig is the key of tenant {side.key_of}, which only its agent can use"
            fix = f"fairlead doctor {_FLAG[side.name]} FILE   with an administrator's kubeconfig of the {side.name}"
            yield error(f"{side.name} {side.server}", fault, fix)
    hub, member = facts.hub, facts.member
    if hub is not None and member is not None and hub.uid and hub.uid == member.uid and hub.server != member.server:
        fault = f"hub and member are one cluster, under two addresses: {hub.server} and {member.server}"
        yield warning(
            f"member {member.server}", fault, "fairlead run --kubeconfig FILE   serves a cluster that is both"
        )


def old_kubernetes(facts: Facts) -> Iterator[Finding]:
    """Name a Kubernetes that is older than what is tested."""
    for side in facts.sides:
        minor = re.match(r"v?1\.(\d+)", side.version)
        if minor and int(minor[1]) < OLDEST_MINOR:
            fault = f"it runs Kubernetes {side.version}; 1.{OLDEST_MINOR} is the oldest that is tested"
            yield warning(f"{side.name} {side.server}", fault, "upgrade the cluster's control plane")


def clocks(facts: Facts) -> Iterator[Finding]:
    """Name a cluster whose clock differs from this machine's: tokens and certificates end too early, or too late."""
    for side in facts.sides:
        if side.ahead_s is not None and abs(side.ahead_s) >= NOTICEABLE_S:
            direction = "ahead of" if side.ahead_s > 0 else "behind"
            fault = f"its clock is {abs(side.ahead_s):.0f} s {direction} this machine's"
            yield warning(
                f"{side.name} {side.server}", fault, "timedatectl set-ntp true   on the machine that is wrong"
            )


def endings(facts: Facts) -> Iterator[Finding]:
    """Name each token and certificate that has ended, or ends within a week."""
    for side in facts.sides:
        for ending in side.endings:
            remaining = ending.ends - side.now
            when = f"{ending.ends:%Y-%m-%d %H:%M} UTC"
            if remaining <= timedelta():
                yield error(ending.where, f"the {ending.what} has ended at {when}", ending.renew)
            elif remaining < _SOON:
                yield warning(ending.where, f"the {ending.what} ends at {when}", ending.renew)


def unread(facts: Facts) -> Iterator[Finding]:
    """Name what could not be read, so that a check without findings is not mistaken for a passed one."""
    for side in facts.sides:
        for resource, sentence in sorted(side.unread.items()):
            fix = f"kubectl auth can-i list {resource} --all-namespaces   with the same kubeconfig"
            yield unknown(f"{side.name}: {resource}", sentence, fix)


def open_kubeconfigs(facts: Facts) -> Iterator[Finding]:
    """Name kubeconfigs that others on this machine may read."""
    for path in facts.machine.open_kubeconfigs if facts.machine else ():
        yield warning(path, "every user of this machine may read this key", f"chmod 600 {path}")
