"""The nftables rules of egress identities on a proxy machine: pods leave with the address of a load balancer.

    pod ─► node ─► machine that announces the address ─► source becomes that address, port of its range ─► outside

Each change replaces all rules of the table ``inet fairlead_egress`` in one transaction; connections under way keep
their translation, which is in the kernel's connection tracking. A source port in the range is kept, so the machine that
takes the address over translates open connections alike. Segments of those that it does not know yet are dropped and
not refused: the pod sends again, and the connection goes on. The table is never deleted. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from ipaddress import ip_address

from fairlead.model.forwarding import EGRESS_TABLE as TABLE
from fairlead.model.forwarding import EgressIdentity


def egress_rules(identities: Sequence[EgressIdentity]) -> str:
    """Return the commands that make exactly these identities the ones of the kernel."""
    return "\n".join(_rules(identities)) + "\n"


def _rules(identities: Sequence[EgressIdentity]) -> Iterator[str]:
    yield f"table {TABLE} {{"
    yield " chain leaving { type nat hook postrouting priority srcnat - 10; policy accept; }"
    yield " chain arriving { type filter hook input priority filter - 10; policy accept; }"
    yield "}"
    yield f"flush chain {TABLE} leaving"
    yield f"flush chain {TABLE} arriving"
    for version, payload in ((4, "ip"), (6, "ip6")):
        of_family = [identity for identity in identities if ip_address(identity.address).version == version]
        if not of_family:
            continue
        leaving = f"add rule {TABLE} leaving"
        for first, last in sorted({(identity.first_port, identity.last_port) for identity in of_family}):
            at_ports = [entry for entry in of_family if (entry.first_port, entry.last_port) == (first, last)]
            to = f"{payload} to {payload} saddr map {{ {_by_source(at_ports)} }}"
            yield f"{leaving} meta l4proto {{ tcp, udp }} snat {to} : {first}-{last}"
        # Others, such as ICMP, have no ports to keep apart.
        yield f"{leaving} snat {payload} to {payload} saddr map {{ {_by_source(of_family)} }}"
        ranges = ", ".join(f"{identity.address} . {identity.first_port}-{identity.last_port}" for identity in of_family)
        at_range = f"{payload} daddr . th dport {{ {ranges} }}"
        yield f"add rule {TABLE} arriving ct state new,invalid meta l4proto {{ tcp, udp }} {at_range} drop"


def _by_source(identities: Sequence[EgressIdentity]) -> str:
    return ", ".join(f"{source} : {entry.address}" for entry in identities for source in entry.sources)
