"""The Services of a load balancer's backends: of type ClusterIP, without selector, never exposed by themselves.

In: backends. Out: Services as objects. Pure.
"""

from __future__ import annotations

from fairlead.api.kubernetes import SERVICES
from fairlead.api.meta import JSONObject
from fairlead.model.http import Backend
from fairlead.model.keys import LoadBalancerKey
from fairlead.providers.controller.endpoints import PORT_NAME
from fairlead.providers.controller.objects import Made, made, service_name

#: The port of each Service, whatever the port of its endpoints.
SERVICE_PORT = 80
#: What says to other controllers that a backend speaks HTTP/2 without TLS.
_H2C = "kubernetes.io/h2c"


def service(load_balancer: LoadBalancerKey, backend: Backend) -> Made:
    """Return the Service of one backend."""
    port: JSONObject = {
        "name": PORT_NAME,
        "port": SERVICE_PORT,
        "protocol": "UDP" if backend.protocol == "UDP" else "TCP",
    }
    if backend.protocol == "HTTP2" and backend.tls is None:
        port["appProtocol"] = _H2C
    spec: JSONObject = {"type": "ClusterIP", "ports": [port]}
    return made(
        SERVICES, load_balancer, service_name(load_balancer, backend.name), {"spec": spec}, backend=backend.name
    )
