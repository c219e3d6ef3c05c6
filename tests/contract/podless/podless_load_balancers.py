"""An embedded API that has TCPLoadBalancers, for tests of what clients send to it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from podless_client import Api

from fairlead.api.kinds import all_crds
from podless import ApiServer

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.fixture
async def api(memory_server: ApiServer) -> AsyncIterator[Api]:
    async with aiohttp.ClientSession() as session:
        api = Api(session, memory_server.url, memory_server.admin_token)
        (await api.post("/api/v1/namespaces", {"metadata": {"name": api.ns}})).ok(201)
        for crd in all_crds():
            if crd["spec"]["names"]["plural"] == "tcploadbalancers":  # type: ignore[index,call-overload]
                (await api.post(CRDS, crd)).ok(201)
        yield api


def lbs(api: Api) -> str:
    return f"/apis/fairlead.dev/v1alpha1/namespaces/{api.ns}/tcploadbalancers"


def lb(name: str, **meta: Any) -> dict[str, Any]:
    kind = {"apiVersion": "fairlead.dev/v1alpha1", "kind": "TCPLoadBalancer"}
    return kind | {"metadata": {"name": name, **meta}, "spec": {"ports": [{"port": 80}]}}
