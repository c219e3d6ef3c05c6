"""What ``explain`` says at a member of its Services of type LoadBalancer."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_api import api

from fairlead.api.kubernetes import EVENTS, SERVICES
from fairlead.api.meta import JSONObject
from fairlead.cli.explain import _present
from fairlead.cli.selection import selection_of

_SILENT = "Fairlead has reported nothing"
_WAITS = "it has no address yet"
EVENT = {
    "metadata": {"name": "web.1", "namespace": "default"},
    "involvedObject": {"kind": "Service", "namespace": "default", "name": "web"},
    "type": "Normal", "reason": "EnsuringLoadBalancer", "message": "the pool is full",
    "source": {"component": "fairlead-agent"},
}  # fmt: skip


@pytest.mark.parametrize(
    ("spec", "address", "event", "said"),
    [
        ({"type": "LoadBalancer"}, "", False, [_SILENT]),
        ({"type": "LoadBalancer"}, "", True, [_WAITS]),
        # A cluster deletes Events after an hour: that none is there says nothing of a Service that has its address.
        ({"type": "LoadBalancer"}, "192.0.2.7", False, []),
        ({"type": "ClusterIP"}, "", False, ["it is of type ClusterIP"]),
        ({"type": "LoadBalancer", "loadBalancerClass": "example.com/x"}, "", False, ["spec.loadBalancerClass example"]),
    ],
)
async def test_why_a_service_has_no_address_is_one_note(
    spec: JSONObject, address: str, event: bool, said: list[str], tmp_path: Path
) -> None:
    async with api(tmp_path) as (member, kubeconfig):
        metadata = {"name": "web", "namespace": "default"}
        await member.create(SERVICES, {"metadata": metadata, "spec": {**spec, "ports": [{"port": 80}]}})
        if address:
            status = {"status": {"loadBalancer": {"ingress": [{"ip": address}]}}}
            await member.merge_patch(SERVICES, "default", "web", status, subresource="status")
        if event:
            await member.create(EVENTS, EVENT)
        lines = (await _present(selection_of("svc/web", "default", "", sharing=True), kubeconfig, "")).lines()
        notes = [line.removeprefix("Note: ") for line in lines if line.startswith("Note: ")]
        if not spec.get("loadBalancerClass"):  # what is another controller's is not at the hub
            assert notes.pop().startswith("each backend, and why, at the hub: fairlead explain svc/web")
        assert [note[: len(text)] for note, text in zip(notes, said, strict=True)] == said
