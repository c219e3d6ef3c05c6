"""Why a deleted Tenant is held: it serves without permission, or a label keeps something of it."""

from __future__ import annotations

import pytest

from fairlead.api.names import ANNOTATION_STOP_SERVING, LABEL_DO_NOT_DELETE
from fairlead.api.tcploadbalancer import TCPLoadBalancer
from fairlead.api.tenant import Tenant
from fairlead.hub.tenants.tenants import why_held
from fairlead.testing.builders import decoded, lb_key, tcp, tenant

WEB = (lb_key("web"), tcp("web"))


def allowed(value="true"):
    return decoded({"metadata": {"name": "east", "annotations": {ANNOTATION_STOP_SERVING: value}}}, Tenant)


@pytest.mark.req("X-5")
@pytest.mark.parametrize(
    ("east", "objects", "reason"),
    [(tenant(), [WEB], "InUse"), (allowed("false"), [WEB], "InUse"), (allowed(), [WEB], ""), (tenant(), [], "")],
)
def test_a_removal_ends_when_nothing_is_served_or_it_may_stop(east, objects, reason):
    held = why_held(east, objects)
    assert (held.reason if held else "") == reason


@pytest.mark.req("X-5", "S-11")
@pytest.mark.parametrize("east", [tenant(), allowed()])
def test_the_label_is_stronger_than_permission(east):
    kept = decoded(
        {"metadata": {"name": "web", "namespace": "tenant-east", "labels": {LABEL_DO_NOT_DELETE: "true"}}},
        TCPLoadBalancer,
    )
    held = why_held(east, [(lb_key("web"), kept)])
    assert held is not None
    assert held.reason == "DoNotDelete"
    assert "tenant-east/web" in held.message
