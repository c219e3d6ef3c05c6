"""What ``fairlead status`` prints on a screen."""

from __future__ import annotations

import io

import msgspec
import pytest
from rich.console import Console

from fairlead.api.multicluster import ExportedService, ImportedService
from fairlead.api.tenant import Tenant
from fairlead.cli.status import print_status
from fairlead.status.fleet import Trouble
from fairlead.testing.builders import decoded, tenant
from tests.fleet_objects import GOOD, fleet_of, load_balancer, status


def test_the_table_shows_everything_and_cuts_nothing() -> None:
    out = io.StringIO()
    print_status(status(), Console(file=out))
    text = out.getvalue()
    for word in (
        "east",
        "eu",
        "Engaged",
        "east/default/web",
        "127.200.0.1",
        "2/3",
        "local/here",
        "SYNCED",
        "everything serves",
    ):
        assert word in text


def test_problems_are_listed_apart_from_the_tables() -> None:
    out = io.StringIO()
    print_status(status(agent_age_s=None), Console(file=out, width=120))
    lines = out.getvalue().splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("!"))
    assert lines[first - 1] == ""


@pytest.mark.parametrize("terminal", [True, False])
def test_names_and_addresses_are_never_cut_in_tables(terminal: bool) -> None:
    lb = load_balancer(*GOOD)
    metadata = msgspec.structs.replace(lb.metadata, name=f"{'n' * 63}.{'w' * 63}")
    fleet = fleet_of(load_balancers=[msgspec.structs.replace(lb, metadata=metadata)])
    out = io.StringIO()
    print_status(fleet, Console(file=out, width=80, force_terminal=terminal, no_color=True), wide=True)
    for word in (lb.status.address, f"tcplb/{metadata.namespace}/{metadata.name}"):
        assert word in out.getvalue()


def member(name: str, cluster_set: str) -> Tenant:
    obj = tenant(name)
    return msgspec.structs.replace(obj, spec=msgspec.structs.replace(obj.spec, cluster_set=cluster_set))


def export(name: str, ready: bool, conflict: str = "") -> ExportedService:
    ready_reason = "Exported" if ready else "Failed"
    conditions = [
        {"type": "Ready", "status": str(ready), "reason": ready_reason, "message": "Tenant north is in no set."},
        {"type": "Conflict", "status": str(bool(conflict)), "reason": conflict or "NoConflicts", "message": "Why."},
    ]
    meta = {"name": "shop.web", "namespace": f"tenant-{name}"}
    spec = {"namespace": "shop", "name": "web"}
    return decoded({"metadata": meta, "spec": spec, "status": {"conditions": conditions}}, ExportedService)


@pytest.mark.req("MC-1", "MC-2")
def test_services_of_a_cluster_set_are_shown_with_members_and_conflicts() -> None:
    imports = [
        decoded(
            {
                "metadata": {"name": "shop.web", "namespace": f"tenant-{name}"},
                "spec": {"namespace": "shop", "name": "web"},
            },
            ImportedService,
        )
        for name in ("west", "east", "south")
    ]
    members = [member("west", "prod"), member("east", "prod"), member("south", "prod"), member("north", "")]
    exports = [export("west", True, "PortConflict"), export("east", True, "PortConflict"), export("north", False)]
    fleet = fleet_of(tenants=members, exports=exports, imports=imports)
    shown = [(row.cluster_set, row.exported_by, row.imported_by, row.reason) for row in fleet.shared_services]
    assert shown == [("", [], [], "Failed"), ("prod", ["east", "west"], ["east", "south", "west"], "PortConflict")]
    of_exports = [(each.namespace, each.reason) for each in fleet.troubles if each.kind == "ExportedService"]
    assert of_exports == [("tenant-east", "PortConflict"), ("tenant-north", "Failed"), ("tenant-west", "PortConflict")]
    assert fleet.state is not Trouble.NONE
    out = io.StringIO()
    print_status(fleet, Console(file=out))
    assert "shop/web         prod          east, west    east, south, west   PortConflict" in out.getvalue()
