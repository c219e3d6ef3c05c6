"""deploy/kubernetes/protection.yaml at a real API server: what carries the label cannot be deleted."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from our_kinds import CASES, Kind
from podless_client import APPLY, Api

from tests.contract.podless.real_api import Real

MANIFEST = Path(__file__).parents[3] / "deploy" / "kubernetes" / "protection.yaml"
LABEL = "fairlead.dev/do-not-delete"
POLICIES = "/apis/admissionregistration.k8s.io/v1"
PATHS = {
    "ValidatingAdmissionPolicy": f"{POLICIES}/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": f"{POLICIES}/validatingadmissionpolicybindings",
}


@pytest.fixture
async def api(real: Real) -> AsyncIterator[Api]:
    trust = ssl.create_default_context(cadata=real.authority.decode())
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust)) as session:
        api = Api(session, real.url, real.token)
        (await api.post("/api/v1/namespaces", {"metadata": {"name": api.ns}})).ok(201)
        yield api
        await api.delete(f"/api/v1/namespaces/{api.ns}")


@pytest.fixture
async def policy(api: Api) -> AsyncIterator[None]:
    made = [obj for obj in yaml.safe_load_all(MANIFEST.read_text()) if obj]
    paths = [f"{PATHS[obj['kind']]}/{obj['metadata']['name']}" for obj in made]
    for path, obj in zip(paths, made, strict=True):
        answer = await api.patch(path, obj, APPLY, fieldManager="test", fieldValidation="Strict")
        assert answer.code in {200, 201}, answer.raw
    yield
    for path in reversed(paths):
        (await api.delete(path)).ok()


async def refused(api: Api, path: str) -> Any:
    """Delete until it is refused: the server takes a moment to know of a new policy, so nothing may be lost to that."""
    async with asyncio.timeout(180):
        while True:
            answer = await api.delete(path, dryRun="All")
            if answer.code != 200:
                return answer
            await asyncio.sleep(0.05)


@pytest.mark.real_api
@pytest.mark.req("L-39")
@pytest.mark.usefixtures("policy")
@pytest.mark.parametrize("plural", ["loadbalancers", "tcploadbalancers", "backendgroups"])
@pytest.mark.parametrize("value", ["true", ""])
async def test_labelled_objects_are_not_deleted(api: Api, plural: str, value: str) -> None:
    """LT-32."""
    kind = Kind(api, plural)
    await kind.install()
    good = next(case.good for case in CASES if case.plural == plural)
    labelled = kind.object("kept", good)
    labelled["metadata"]["labels"] = {LABEL: value}
    (await api.post(kind.path, labelled)).ok(201)
    (await api.post(kind.path, kind.object("free", good))).ok(201)
    message = f"{kind.kind} {api.ns}/kept carries the label {LABEL}; remove the label, and delete it then"
    (await refused(api, f"{kind.path}/kept")).refused(403, "Forbidden", message)
    (await api.delete(f"{kind.path}/kept")).refused(403, "Forbidden", message)
    (await api.delete(kind.path)).refused(403, "Forbidden", message)  # all of them at once
    (await api.get(f"{kind.path}/kept")).ok()
    (await api.patch(f"{kind.path}/kept", {"metadata": {"labels": {LABEL: None}}})).ok()
    (await api.delete(f"{kind.path}/kept")).ok()
    (await api.get(f"{kind.path}/kept")).refused(404, "NotFound", "kept")
