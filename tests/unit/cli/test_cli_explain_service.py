"""What ``explain`` says at a member of its Services of type LoadBalancer."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_api import api

from fairlead.api.kubernetes import EVENTS, SERVICES
from fairlead.api.meta import JSONObject
from fairlead.api.multicluster import MULTICLUSTER_GROUP
from fairlead.cli.explain import explain_service, present_of
from fairlead.cli.options import HubApi
from fairlead.cli.selection import selection_of
from fairlead.errors import Forbidden
from fairlead.kube.cluster import Cluster
from fairlead.kube.events import resolved_message
from fairlead.status.object_ref import ObjectRef

_SILENT = "Fairlead has reported nothing"
_WAITS = "no address yet; the last Event"
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
        ({"type": "ClusterIP"}, "", False, ["the Service is of type ClusterIP"]),
        ({"type": "LoadBalancer", "loadBalancerClass": "example.com/x"}, "", False, ["spec.loadBalancerClass example"]),
    ],
)
async def test_why_a_service_has_no_address_is_one_note(
    spec: JSONObject, address: str, event: bool, said: list[str], tmp_path: Path
) -> None:
    async with api(tmp_path, kinds=False) as (member, kubeconfig):
        metadata = {"name": "web", "namespace": "default"}
        await member.create(SERVICES, {"metadata": metadata, "spec": {**spec, "ports": [{"port": 80}]}})
        if address:
            status = {"status": {"loadBalancer": {"ingress": [{"ip": address}]}}}
            await member.merge_patch(SERVICES, "default", "web", status, subresource="status")
        if event:
            await member.create(EVENTS, EVENT)
        lines = (await present_of(selection_of("svc/web", "default", "", sharing=True), HubApi(kubeconfig))).lines()
        notes = [line.removeprefix("Note: ") for line in lines if line.startswith("Note: ")]
        if not spec.get("loadBalancerClass"):  # what is another controller's is not at the hub
            assert notes.pop().startswith("the state of each backend, at the hub: fairlead explain svc/web")
        assert [note[: len(text)] for note, text in zip(notes, said, strict=True)] == said


@pytest.mark.req("X-39")
async def test_events_of_an_earlier_object_and_warnings_that_ended_are_left_out(tmp_path: Path) -> None:
    async with api(tmp_path, kinds=False) as (member, kubeconfig):
        metadata = {"name": "web", "namespace": "default"}
        made = await member.create(
            SERVICES, {"metadata": metadata, "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}}
        )
        numbers = iter(range(100))

        async def event(kind: str, reason: str, message: str, uid: str = made.metadata.uid) -> None:
            involved = {"kind": "Service", "namespace": "default", "name": "web", "uid": uid}
            about = {"type": kind, "reason": reason, "message": message, "lastTimestamp": "2030-01-01T00:00:00Z"}
            name = {"name": f"web.{next(numbers)}", "namespace": "default"}
            await member.create(EVENTS, {**EVENT, **about, "metadata": name, "involvedObject": involved})

        await event("Warning", "QuotaExceeded", "of the earlier one", uid="gone")
        await event("Warning", "NoSuchClass", "it is not there")
        await event("Warning", "PortConflict", "port 80 is taken")
        await event("Normal", "Resolved", resolved_message("NoSuchClass", "it is not there"))
        await event("Warning", "ServingStopped", "no target is healthy")
        await event("Normal", "EnsuredLoadBalancer", "answers")
        await event("Warning", "NoTargets", "no target")
        answer = await present_of(selection_of("svc/web", "default", "", sharing=True), HubApi(kubeconfig))
        shown = [row.reason for row in answer.value.events]
        assert shown == ["PortConflict", "Resolved", "EnsuredLoadBalancer", "NoTargets"]


class Restricted(Cluster):
    """The API for a user who may read no ServiceExports and ServiceImports."""

    async def get(self, resource, namespace, name):
        if resource.group == MULTICLUSTER_GROUP:
            raise Forbidden(f"You may not get {resource.plural}.")
        return await super().get(resource, namespace, name)


@pytest.mark.req("MC-1")
async def test_exports_and_imports_that_may_not_be_read_are_unknown_not_absent(tmp_path: Path) -> None:
    async with api(tmp_path) as (member, _):
        metadata = {"name": "web", "namespace": "default"}
        await member.create(SERVICES, {"metadata": metadata, "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}})
        async with Restricted(member.config, name="there") as restricted:
            row = await explain_service(restricted, ObjectRef("Service", "default", "web"))
            assert row is not None
            assert [
                kind in note for kind, note in zip(("serviceexports", "serviceimports"), row.notes, strict=False)
            ] == [True, True]
            with pytest.raises(Forbidden, match="serviceimports"):
                await explain_service(restricted, ObjectRef("Service", "default", "other"))
