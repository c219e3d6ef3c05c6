"""What of Gateway API is put into the member: its kinds and the class, Gateways, routes."""

from __future__ import annotations

from collections.abc import Mapping

from fairlead.api.gateway import GATEWAY_CLASSES
from fairlead.api.meta import JSONObject
from fairlead.api.names import GATEWAY_CONTROLLER
from fairlead.kube.cluster import Cluster
from fairlead.kube.discovery import install_crds
from podless.offline import gateway_definitions


async def install_gateway_api(member: Cluster) -> None:
    """Install the CRDs and the class ``fairlead``."""
    if problems := await install_crds(member, gateway_definitions(), "bench"):
        raise RuntimeError("; ".join(problems))
    await member.create(
        GATEWAY_CLASSES, {"metadata": {"name": "fairlead"}, "spec": {"controllerName": GATEWAY_CONTROLLER}}
    )


def gateway(name: str, *, port: int) -> JSONObject:
    listener = {"name": "http", "port": port, "protocol": "HTTP"}
    return {**meta(name), "spec": {"gatewayClassName": "fairlead", "listeners": [listener]}}


def route_spec(parent: str, host: str, weights: Mapping[str, int]) -> JSONObject:
    """Return the spec of an HTTPRoute to Services at port 80, by their weights."""
    backends = [{"name": name, "port": 80, "weight": weight} for name, weight in weights.items()]
    return {"parentRefs": [{"name": parent}], "hostnames": [host], "rules": [{"backendRefs": backends}]}


def meta(name: str) -> JSONObject:
    return {"metadata": {"name": name, "namespace": "default"}}
