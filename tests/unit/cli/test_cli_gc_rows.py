"""How ``fairlead gc`` lists orphans."""

from __future__ import annotations

import msgspec
from cli_builders import lb, previewed, record

from fairlead.cli.changes import orphan_lines, orphan_row
from fairlead.hub.inspect.preview import orphans_of
from fairlead.model.observed import Observed, ObservedTarget
from fairlead.sync.readback import drift_of
from fairlead.testing.builders import HTTP, target


def test_orphans_are_found_in_both_directions_and_nothing_else_is_one() -> None:
    shown = previewed(lb(target("1")), lb(target("1")), records=(record("1"),))
    seen = Observed(
        targets=tuple(ObservedTarget(HTTP, target(number).key) for number in ("1", "7")), foreign=("b/theirs",)
    )
    shown = msgspec.structs.replace(shown, observed=seen, drift=drift_of(shown.side, seen))
    assert [(orphan.kind, str(orphan.target)) for orphan in orphans_of(shown)] == [("Entry", "10.0.0.7:8080")]
    gone = msgspec.structs.replace(shown, gone=True)
    assert [(orphan.kind, orphan.leaving) for orphan in orphans_of(gone)] == [("Record", False), ("Entry", False)]


def test_a_desired_entry_is_not_an_orphan() -> None:
    shown = previewed(lb(target("1")), lb())
    seen = Observed(targets=(ObservedTarget(HTTP, target("1").key),))
    assert drift_of(shown.side, seen).unrecorded == ()


def test_the_report_says_what_is_left_and_what_was_asked() -> None:
    assert orphan_lines([], {}, warning="") == ["No orphans."]
    gone = previewed(None, lb(target("1")), records=(record("1"),), gone=True)
    (orphan,) = orphans_of(gone)
    left = orphan_row(gone, orphan, "")
    assert orphan_lines([left], {"LoadBalancer/a/b": "no answer"}, warning="No hub leads") == [
        "Records whose load balancer is gone:",
        "  TCPLoadBalancer/shop/web  TCP/80 10.0.0.1:8080  orphaned",
        "Not read back, so orphans there are unknown: LoadBalancer/a/b: no answer",
        "1 orphan left; have the hub deregister them with: fairlead gc --delete",
        "No hub leads",
    ]
    done = orphan_row(gone, orphan, "deleted: the hub deregisters it now")
    assert orphan_lines([done], {}, warning="")[-1].startswith("Removal is already requested")
    assert msgspec.to_builtins(done) == {
        "kind": "Record",
        "loadBalancer": "TCPLoadBalancer/shop/web",
        "provider": "haproxy",
        "listener": "TCP/80",
        "target": "10.0.0.1:8080",
        "record": "shop/web-1",
        "done": "deleted: the hub deregisters it now",
    }
