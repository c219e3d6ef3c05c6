"""What ``explain`` says at a member of its Ingresses, Gateways and routes."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_api import api

from fairlead.api.ingress import INGRESS_CLASSES, INGRESSES
from fairlead.api.names import INGRESS_CONTROLLER
from fairlead.cli.explain import _present
from fairlead.cli.selection import selection_of


@pytest.mark.parametrize(
    ("named", "controller", "why"),
    [
        ("", "", "it names no class; set spec.ingressClassName"),
        ("gold", "", "there is no IngressClass gold in this cluster; create it, with the controller fairlead.dev/"),
        ("gold", "k8s.io/ingress-nginx", "IngressClass gold is another controller's; name a class with"),
        ("gold", INGRESS_CONTROLLER, "does an agent run? fairlead doctor"),
    ],
)
async def test_why_no_controller_looks_at_an_ingress(named: str, controller: str, why: str, tmp_path: Path) -> None:
    async with api(tmp_path) as (member, kubeconfig):
        spec = {"defaultBackend": {"service": {"name": "web", "port": {"number": 80}}}}
        spec |= {"ingressClassName": named} if named else {}
        await member.create(INGRESSES, {"metadata": {"name": "shop", "namespace": "default"}, "spec": spec})
        if controller:
            await member.create(INGRESS_CLASSES, {"metadata": {"name": named}, "spec": {"controller": controller}})
        answer = await _present(selection_of("ingress/shop", "default", "", sharing=True), kubeconfig, "")
        assert any(line.startswith(f"Note: Fairlead has reported nothing: {why}") for line in answer.lines())
