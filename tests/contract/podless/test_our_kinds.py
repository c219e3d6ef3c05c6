"""Our own kinds are accepted, refused and kept from changing alike, whichever server serves them."""

from __future__ import annotations

import shutil
from typing import Any, cast

import pytest
from kubectl_command import Kubectl
from our_kinds import CASES, Case, Kind, Obj, merged
from podless_client import APPLY, Api

from fairlead.api.kinds import all_crds
from tests.contract.podless.conftest import Target


def test_every_kind_has_a_case() -> None:
    assert [case.plural for case in CASES] == [crd["spec"]["names"]["plural"] for crd in all_crds()]


#: Those whose identity is fixed.
FIXED = {"loadbalancers", "loadbalancerclasses", "backendgroups", "dnszones", "hostnames"}


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case.plural, marks=[pytest.mark.req("L-36")] if case.plural in FIXED else [])
        for case in CASES
    ],
)
async def test_valid_and_invalid_values(api: Api, case: Case) -> None:
    kind = Kind(api, case.plural)
    await kind.install()
    name = f"a-{api.ns}"  # cluster-wide kinds outlive the namespace
    for patch, message in case.created:
        answer = await api.post(kind.path, kind.object(name, merged(case.good, patch)), fieldValidation="Strict")
        if message:
            answer.refused(422, "Invalid", message)
        else:
            answer.ok(201)
            (await api.delete(f"{kind.path}/{name}")).ok()
    made = (await api.post(kind.path, kind.object(name, case.good), fieldValidation="Strict")).ok(201)
    assert made["spec"].keys() >= case.good.keys()
    for patch, message in case.changed:
        current = (await api.get(f"{kind.path}/{name}")).ok()
        for answer in (
            await api.put(f"{kind.path}/{name}", current | {"spec": merged(current["spec"], patch)}),
            await api.patch(f"{kind.path}/{name}", {"spec": patch}),
        ):
            if message:
                answer.refused(422, "Invalid", message)
            else:
                answer.ok()
    (await api.delete(f"{kind.path}/{name}")).ok()


@pytest.mark.parametrize("name", ["dotted.name", "a" * 57])
async def test_a_tenant_whose_name_makes_no_namespace_is_refused(api: Api, name: str) -> None:
    tenants = Kind(api, "tenants")
    await tenants.install()
    answer = await api.post(tenants.path, tenants.object(name, {}))
    answer.refused(422, "Invalid", "metadata.name becomes part of a namespace")


@pytest.mark.req("MC-26")
async def test_a_schedule_whose_name_makes_no_label_is_refused(api: Api) -> None:
    schedules = Kind(api, "drillschedules")
    await schedules.install()
    answer = await api.post(schedules.path, schedules.object("a" * 51, {}))
    answer.refused(422, "Invalid", "at most 50 characters")


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not on PATH")
async def test_kubectl_shows_that_a_tenant_keeps_its_namespace(target: Target, api: Api) -> None:
    kubectl, tenants = Kubectl(target.kubeconfig, api.ns), Kind(api, "tenants")
    await tenants.install()
    name = f"blue-{api.ns}"
    tenant = f"apiVersion: {tenants.api_version}\nkind: Tenant\nmetadata: {{name: {name}}}\nspec: {{namespace: one}}\n"
    assert await kubectl("apply -f -", tenant) == f"tenant.fairlead.dev/{name} created"
    for how in ("apply -f -", "apply --server-side --force-conflicts -f -", "replace -f -"):
        refused = await kubectl.fails(how, tenant.replace("one", "two"))
        assert "namespace is immutable: delete the Tenant and create another" in refused
    assert await kubectl(f"get tenant {name} -o jsonpath={{.spec.namespace}}") == "one"
    await kubectl(f"delete tenant {name}")


@pytest.mark.req("F-25")
@pytest.mark.parametrize("case", CASES, ids=[case.plural for case in CASES])
async def test_ten_syncs_of_an_unchanged_manifest_show_no_difference(api: Api, case: Case) -> None:
    """Argo CD compares the object with a dry run of its server-side apply: defaults must not come back as changes."""
    kind = Kind(api, case.plural)
    await kind.install()
    manifest = kind.object(f"s-{api.ns}", case.good)
    path = f"{kind.path}/s-{api.ns}"
    live = (await api.patch(path, manifest, APPLY, fieldManager="argocd-controller", force="true")).ok(201)
    assert has_all(live["spec"], manifest["spec"])
    if kind.has_observed_generation:
        status = {"observedGeneration": live["metadata"]["generation"]}
        body = {key: manifest[key] for key in ("apiVersion", "kind")} | {"metadata": {"name": f"s-{api.ns}"}}
        hub = {"fieldManager": "fairlead-hub", "force": "true"}
        live = (await api.patch(f"{path}/status", body | {"status": status}, APPLY, **hub)).ok()
        assert live["status"]["observedGeneration"] == live["metadata"]["generation"]
    for _ in range(10):
        sync = {"fieldManager": "argocd-controller", "force": "true"}
        predicted = (await api.patch(path, manifest, APPLY, dryRun="All", **sync)).ok()
        assert without_managers(predicted) == without_managers(live)
        live = (await api.patch(path, manifest, APPLY, **sync)).ok()
    (await api.delete(path)).ok()


def has_all(live: Any, manifest: Any) -> bool:
    """Return whether every value of a manifest is in the object; defaults may be there besides."""
    if isinstance(manifest, dict) and isinstance(live, dict):
        return all(has_all(live.get(key), value) for key, value in cast("Obj", manifest).items())
    if isinstance(manifest, list) and isinstance(live, list):
        return len(manifest) == len(live) and all(map(has_all, live, cast("list[Any]", manifest)))
    return manifest == live


def without_managers(obj: Obj) -> Obj:
    meta = {key: value for key, value in obj["metadata"].items() if key != "managedFields"}
    return obj | {"metadata": meta}
