"""Who changed a load balancer, when, and what: over restarts, without credentials, at the price of no extra write."""

from __future__ import annotations

import asyncio
import csv
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from hub_world import TOKEN, HubWorld

from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.api.meta import KubeObject, Resource
from fairlead.api.names import ANNOTATION_CHANGED_BY, LABEL_HISTORY, SYSTEM_NAMESPACE
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.cli.audit import show_audit
from fairlead.cli.changes import set_paused
from fairlead.cli.options import HubApi, Output
from fairlead.cli.selection import Selection
from fairlead.cli.verbs import UsageOutput
from fairlead.errors import Forbidden, Unreachable
from fairlead.ledger.history import FLUSH_S, HISTORY_MAPS
from fairlead.status.object_ref import ObjectRef
from fairlead.testing.builders import NAMESPACE, lb_key

KEY = lb_key()
WEB = ObjectRef("TCPLoadBalancer", NAMESPACE, "web")

pytestmark = pytest.mark.req("F-30")


async def write(world: HubWorld, user: str, body: dict[str, Any], method: str = "PATCH") -> None:
    """Send a write of ``user`` as kubectl would."""
    headers = {
        "Authorization": f"Bearer {TOKEN}", "Impersonate-User": user, "Impersonate-Group": "system:masters",
        "Content-Type": "application/merge-patch+json" if method == "PATCH" else "application/json",
        "User-Agent": "kubectl-edit/v1.36.0",
    }  # fmt: skip
    url = f"{world.server.url}{TCP_LOAD_BALANCERS.path(NAMESPACE, 'web')}"
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, url, data=json.dumps(body), headers=headers) as answer,
    ):
        assert answer.status == 200, await answer.text()


def kubeconfig(world: HubWorld, path: Path, user: str) -> HubApi:
    """Return the options of a verb that ``user`` calls."""
    sign_in = {"token": TOKEN, "as": user}
    content = {
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": world.server.url}}],
        "users": [{"name": "c", "user": sign_in}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
    }  # fmt: skip
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return HubApi(kubeconfig=path)


async def administrator(world: HubWorld, user: str) -> None:
    group = "rbac.authorization.k8s.io"
    rule = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
    ref = {"apiGroup": group, "kind": "ClusterRole", "name": user}
    subjects = [{"apiGroup": group, "kind": "User", "name": user}]
    for kind, content in (
        ("ClusterRole", {"rules": [rule]}),
        ("ClusterRoleBinding", {"roleRef": ref, "subjects": subjects}),
    ):
        resource = Resource(group, "v1", kind, f"{kind.lower()}s", False, KubeObject)
        await world.user.create(resource, {"metadata": {"name": user}, **content})


async def changes(world: HubWorld, capsys: Any, api: HubApi, *, user: str = "", ref: ObjectRef | None = WEB) -> Any:
    capsys.readouterr()
    options: dict[str, Any] = {"since": "1h", "user": user, "hub_url": "", "token_file": None}
    await show_audit(api, Selection(ref), UsageOutput.JSON, **options)
    return json.loads(capsys.readouterr().out)["changes"]


async def test_three_users_make_four_changes_one_by_the_cli(world, hub, tmp_path, capsys):
    operator = kubeconfig(world, tmp_path / "operator", "olga")
    await administrator(world, "olga")
    await world.lb()
    await write(world, "alice", {"spec": {"ports": [{"port": 81, "name": "http"}]}})
    await write(world, "bob", {"spec": {"drain": "5s"}, "metadata": {"annotations": {ANNOTATION_CHANGED_BY: "eve"}}})
    await write(world, "alice", {"spec": {"drain": "7s"}})
    await set_paused(Selection(WEB), operator, Output.TABLE, paused=True)

    def recorded() -> list[Any]:
        return [entry.revision for entry in hub.hub.history.of(KEY) if entry.revision is not None]

    await world.until(lambda: len(recorded()) == 5, what="the changes are recorded")
    await world.quiet(3 * FLUSH_S)  # what the pause holds is stored, too
    version = (await world.user.get(TCP_LOAD_BALANCERS, NAMESPACE, "web")).metadata.resource_version
    written = len(hub.cluster.written)
    await world.quiet(5 * FLUSH_S)
    assert len([write for write in hub.cluster.written[written:] if "ConfigMap" in write]) == 0
    assert (await world.user.get(TCP_LOAD_BALANCERS, NAMESPACE, "web")).metadata.resource_version == version
    await world.stop(hub)
    await asyncio.sleep(3)  # the server's clock is real, and what it created in the last two seconds counts as new
    again = await world.start(identity="second")
    await world.until(lambda: again.hub.leading, what="another hub leads")

    rows = await changes(world, capsys, operator)
    assert [(row["operation"], row["user"], row["manager"]) for row in rows] == [
        ("Created", "kubernetes-admin", "kubectl"),
        ("Changed", "alice", "kubectl-edit"),
        ("Changed", "bob", "kubectl-edit"),
        ("Changed", "alice", "kubectl-edit"),
        ("Changed", "olga", "fairlead-cli"),
    ]
    assert not any(row["claimed"] for row in rows)
    fields = [[(field["field"], field["old"], field["new"]) for field in row["fields"]] for row in rows[1:]]
    assert ("drain", "5s", "7s") in fields[2]
    assert fields[1] == [("drain", "", "5s")]
    assert any(field[0].startswith("ports[") and field[1:] == ("80", "81") for field in fields[0])
    assert fields[3] == [("metadata.annotations.fairlead.dev/paused", "", "true")]
    assert [row["user"] for row in await changes(world, capsys, operator, user="bob", ref=None)] == ["bob"]
    tenant = kubeconfig(world, tmp_path / "tenant", "tenant")
    with pytest.raises(Forbidden, match="--hub-url"):
        await changes(world, capsys, tenant, ref=None)

    await write(world, "carol", {}, "DELETE")
    await world.quiet(FLUSH_S + 5)
    rows = await changes(world, capsys, operator)
    assert [(row["operation"], row["user"]) for row in rows[5:]] == [("Deleted", "carol")]
    options: dict[str, Any] = {"since": "1h", "user": "", "hub_url": "", "token_file": None}
    capsys.readouterr()
    await show_audit(operator, Selection(WEB), UsageOutput.CSV, **options)
    lines = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert {line["field"] for line in lines if line["user"] == "bob"} == {"drain"}


async def test_a_creation_is_shown_before_the_hub_has_stored_it(world, hub, tmp_path, capsys):
    await world.lb()
    await world.quiet(1)
    operator = kubeconfig(world, tmp_path / "operator", "olga")
    await administrator(world, "olga")
    rows = await changes(world, capsys, operator)
    assert [(row["operation"], row["user"], row["manager"]) for row in rows] == [("Created", "", "kubectl")]
    await write(world, "carol", {}, "DELETE")
    await world.quiet(FLUSH_S + 5)
    await world.lb()
    await world.quiet(1)
    rows = await changes(world, capsys, operator)
    assert [(row["operation"], row["manager"]) for row in rows] == [
        ("Created", "kubectl"),
        ("Deleted", ""),
        ("Created", "kubectl"),
    ]


async def test_users_are_certain_once_the_version_of_the_server_was_read(world, hub, monkeypatch):
    async def unanswered() -> str:
        raise Unreachable("no answer")

    def revisions() -> list[Any]:
        return [entry.revision for entry in hub.hub.history.of(KEY) if entry.revision is not None]

    monkeypatch.setattr(hub.cluster, "version", unanswered)
    await world.lb()
    await write(world, "alice", {"spec": {"drain": "5s"}})
    await world.until(lambda: len(revisions()) == 2)
    assert (revisions()[-1].user, revisions()[-1].claimed) == ("alice", True)
    monkeypatch.undo()
    await write(world, "bob", {"spec": {"drain": "7s"}})
    await world.until(lambda: len(revisions()) == 3)
    assert (revisions()[-1].user, revisions()[-1].claimed) == ("bob", False)


async def test_no_value_of_a_free_field_or_credential_is_stored(world, hub):
    body = {"metadata": {"name": "edge"}, "spec": {"provider": "memory", "targets": "Pod"}}
    await world.user.apply(LOAD_BALANCER_CLASSES, body, manager="kubectl")
    await world.lb()
    for number, secret in enumerate(("hunter2", "Bearer abcdefghijkl", "https://me:hunter3@example.com")):
        annotations = {"fairlead.dev/maintenance": f'[{{"until":"2030-01-0{number + 1}T00:00:00Z","page":"{secret}"}}]'}
        annotations["fairlead.dev/api-token"] = secret
        await write(world, "alice", {"metadata": {"annotations": annotations}})
    await world.until(
        lambda: sum(entry.revision is not None for entry in hub.hub.history.of(KEY)) == 4, what="all are recorded"
    )
    await world.quiet(FLUSH_S + 1)
    maps = await world.user.list(HISTORY_MAPS, SYSTEM_NAMESPACE, label_selector=LABEL_HISTORY)
    stored = repr([stored_map.data for stored_map in maps])
    assert "metadata.annotations.fairlead.dev/api-token" in stored
    assert not any(secret in stored for secret in ("hunter3", "abcdefghijkl"))
