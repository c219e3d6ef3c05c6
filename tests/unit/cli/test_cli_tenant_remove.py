"""What ``tenant remove`` shows before it does anything, and what it refuses."""

from __future__ import annotations

import pytest

from fairlead.api.names import ANNOTATION_STOP_SERVING, LABEL_DO_NOT_DELETE
from fairlead.api.tenant import Tenant
from fairlead.cli.tenant import preview_lines, refuse_what_must_not_stop
from fairlead.errors import Terminal
from fairlead.testing.builders import decoded, tcp, tenant

WEB = ("TCPLoadBalancer", tcp("web"))
ALLOWED = decoded({"metadata": {"name": "east", "annotations": {ANNOTATION_STOP_SERVING: "true"}}}, Tenant)


@pytest.mark.req("X-5")
def test_the_preview_names_each_load_balancer():
    lines = preview_lines(tenant(), [WEB])
    assert lines[0] == "Tenant east (namespace tenant-east, agent Pending) has 1 load balancer, which would stop:"
    assert lines[1].split() == ["TCPLoadBalancer", str(WEB[1].key), "<pending>"]
    assert preview_lines(tenant(), [])[0].endswith("serves nothing.")


@pytest.mark.req("X-5")
def test_what_serves_needs_permission_of_now_or_of_before():
    with pytest.raises(Terminal, match=r"serves 1 load balancer, so nothing was changed.*--stop-serving"):
        refuse_what_must_not_stop(tenant(), [WEB], stop=False)
    refuse_what_must_not_stop(tenant(), [WEB], stop=True)
    refuse_what_must_not_stop(ALLOWED, [WEB], stop=False)
    refuse_what_must_not_stop(tenant(), [], stop=False)


@pytest.mark.req("X-5", "S-11")
def test_no_permission_helps_against_the_label():
    kept = decoded({"metadata": {"name": "web", "namespace": "n", "labels": {LABEL_DO_NOT_DELETE: ""}}}, type(WEB[1]))
    with pytest.raises(Terminal, match=r"n/web has the label fairlead\.dev/do-not-delete, so nothing was changed"):
        refuse_what_must_not_stop(ALLOWED, [("TCPLoadBalancer", kept)], stop=True)
