"""Tables of what a kernel forwards: whole ones replace, changes add up."""

from __future__ import annotations

from fairlead.model.machine import ForwardedLoadBalancer, ForwardingTable


def entry(name: str, address: str = "192.0.2.1") -> ForwardedLoadBalancer:
    return ForwardedLoadBalancer(kind="K", name=name, addresses=(address,))


def table(version: str, *entries: ForwardedLoadBalancer, **fields: object) -> ForwardingTable:
    return ForwardingTable(version=version, load_balancers=entries, **fields)  # type: ignore[arg-type]


def after(change: ForwardingTable, *before: ForwardedLoadBalancer) -> dict[str, str]:
    entries = change.applied_to({each.key: each for each in before})
    return {key: each.addresses[0] for key, each in entries.items()}


def test_a_change_replaces_adds_and_removes():
    change = table("a-2", entry("web", "192.0.2.2"), entry("new"), whole=False, removed=("K/old", "K/never"))
    assert after(change, entry("web"), entry("old")) == {"K/web": "192.0.2.2", "K/new": "192.0.2.1"}


def test_a_whole_table_replaces_all_but_what_the_hub_cannot_read():
    whole = table("b-1", entry("web", "192.0.2.2"), kept=("K/unread", "K/never"))
    before = entry("web"), entry("unread"), entry("gone")
    assert after(whole, *before) == {"K/web": "192.0.2.2", "K/unread": "192.0.2.1"}
