"""Tables of what a kernel forwards: whole ones replace, changes add up."""

from __future__ import annotations

from fairlead.model.forwarding import ForwardedLoadBalancer, ForwardingTable


def entry(name: str, address: str = "192.0.2.1") -> ForwardedLoadBalancer:
    return ForwardedLoadBalancer(kind="K", name=name, addresses=(address,))


def table(version: str, *entries: ForwardedLoadBalancer, **fields: object) -> ForwardingTable:
    return ForwardingTable(version=version, load_balancers=entries, **fields)  # type: ignore[arg-type]


def names(whole: ForwardingTable) -> dict[str, str]:
    return {each.key: each.addresses[0] for each in whole.load_balancers}


def test_a_change_replaces_adds_and_removes():
    before = table("a-1", entry("web"), entry("old"))
    after = before.updated(
        table("a-2", entry("web", "192.0.2.2"), entry("new"), whole=False, removed=("K/old", "K/never"))
    )
    assert names(after) == {"K/web": "192.0.2.2", "K/new": "192.0.2.1"}
    assert (after.version, after.whole) == ("a-2", True)


def test_a_whole_table_replaces_all_but_what_the_hub_cannot_read():
    before = table("a-1", entry("web"), entry("unread"), entry("gone"))
    after = before.updated(table("b-1", entry("web", "192.0.2.2"), kept=("K/unread", "K/never")))
    assert names(after) == {"K/web": "192.0.2.2", "K/unread": "192.0.2.1"}
