"""Annotations that users of a member write on Services, Ingresses and PoolServices: text that no schema checks."""

from __future__ import annotations

import msgspec

from fairlead.agent.sources.http import limit_problem, limited
from fairlead.agent.sources.service.plan import Ours, ServiceView, Settings, build_export, decide
from fairlead.agent.sources.service.source import find_warnings
from fairlead.api.kubernetes import Service, ServicePort, ServiceSpec
from fairlead.api.meta import KubeObject, ObjectMeta
from fairlead.api.names import (
    ANNOTATION_ACCESS_POINTS,
    ANNOTATION_BACKENDS,
    ANNOTATION_NODEPOOL_SELECTOR,
    ANNOTATION_PROXY_PROTOCOL,
    ANNOTATION_REQUESTED_ADDRESS,
    ANNOTATION_REQUESTS_PER_SECOND,
    ANNOTATION_SERVICE,
    ANNOTATION_SERVICE_CLASS,
    ANNOTATION_TARGET,
    MANAGER_AGENT,
)
from fairlead.api.poolservice import PoolService, PoolServiceSpec
from fairlead.api.selectors import BadSelector, parse_selector
from fairlead.api.tcploadbalancer import TCPLoadBalancer
from fairlead.model.http import Rule
from fairlead.publish.objects import Publication, Refused
from fairlead.regions.balancer_plan import translate
from fairlead.regions.plan import recorded_points
from fairlead.regions.source import Backends, SourceService, class_in_document, decode_backends, name_in_document
from tests.fuzz.fuzz_harness import Target, plain

_MAP = msgspec.json.Decoder(dict[str, str])
_SETTINGS = Settings(tenant="berlin", namespace="tenant-berlin")
_PORTS = [ServicePort(port=80, node_port=30_080, name="http")]


def _annotated(raw: bytes) -> ObjectMeta:
    annotations = {key[:200]: value for key, value in _MAP.decode(raw).items()}
    return ObjectMeta(name="web", namespace="shop", uid="u1", annotations=annotations)


def _service(raw: bytes) -> str:
    """Whatever is on a Service, it is refused in a sentence, or what is published is legal at the hub."""
    service = Service(metadata=_annotated(raw), spec=ServiceSpec(type="LoadBalancer", ports=_PORTS))
    decision = decide(service, cloud="absent")
    for event in find_warnings(service, decision):
        assert event.message.isprintable()
    if not isinstance(decision, Ours):
        return type(decision).__name__
    return _checked(build_export(ServiceView(service), decision, _SETTINGS))


def _route(raw: bytes) -> str:
    route = KubeObject(metadata=_annotated(raw))
    rules = limited((Rule(),), route)
    assert msgspec.json.decode(msgspec.json.encode(rules), type=tuple[Rule, ...]) == rules
    return f"{limit_problem(route)[:60]} {bool(rules[0].requests_per_second)}"


def _pool_service(raw: bytes) -> str:
    """The annotations of a PoolService: written by layer 1, and by any client that may write there."""
    meta = _annotated(raw)
    spec = PoolServiceSpec(nodepool_name="north", load_balancer_class="fairlead.dev/envoy")
    pool_service = PoolService(metadata=meta, spec=spec)
    document = pool_service.annotation(ANNOTATION_SERVICE)
    named = class_in_document(document) + name_in_document(document)
    backends = decode_backends(pool_service.annotation(ANNOTATION_BACKENDS))
    return named[:20] + _checked(translate(pool_service, backends or Backends(), region="north"))


def _source(raw: bytes) -> str:
    service = SourceService(metadata=_annotated(raw), spec=ServiceSpec(type="LoadBalancer", load_balancer_class="x"))
    points = recorded_points(service)
    parse_selector(service.selector)
    return f"{len(points)} {service.managed} {service.concerns_us}"


def _checked(published: object) -> str:
    if isinstance(published, Refused):
        assert published.sentence.isprintable()
        return published.reason
    if not isinstance(published, Publication):
        return type(published).__name__
    raw = msgspec.json.encode(published.load_balancer)
    assert msgspec.json.decode(raw, type=TCPLoadBalancer).spec == published.load_balancer.spec
    return f"{len(published.slices or ())} slices"


def _json(**annotations: str) -> bytes:
    return msgspec.json.encode(annotations)


_SERVICE = '{"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80, "nodePort": 30080}]}}'
_BACKENDS = (
    '{"pool": "north", "groups": [{"slice": "web-1", "addressType": "IPv4", "ports": [{"port": 80}],'
    ' "endpoints": [{"address": "10.0.0.1", "ready": true, "node": "n1"}]}]}'
)
_SERVICE_TOKENS = tuple(
    name.encode()
    for name in (
        ANNOTATION_TARGET,
        ANNOTATION_PROXY_PROTOCOL,
        ANNOTATION_REQUESTED_ADDRESS,
        ANNOTATION_SERVICE_CLASS,
        "service.beta.kubernetes.io/load-balancer-source-ranges",
        "fairlead.dev/",
        MANAGER_AGENT,
        "2001:db8::1",
        "192.0.2.0/24",
    )
)

TARGETS = (
    Target(
        "service-annotations",
        (
            _json(**{ANNOTATION_TARGET: "Pod", ANNOTATION_PROXY_PROTOCOL: "v2"}),
            _json(**{ANNOTATION_REQUESTED_ADDRESS: "192.0.2.7", ANNOTATION_SERVICE_CLASS: "kubelb"}),
            _json(**{"service.beta.kubernetes.io/load-balancer-source-ranges": "192.0.2.0/24, 10.0.0.0/8"}),
        ),
        plain(_service),
        refusals=(msgspec.DecodeError, UnicodeDecodeError),
        tokens=_SERVICE_TOKENS,
    ),
    Target(
        "route-annotations",
        (_json(**{ANNOTATION_REQUESTS_PER_SECOND: "100"}), _json(**{ANNOTATION_REQUESTS_PER_SECOND: "many"})),
        plain(_route),
        refusals=(msgspec.DecodeError, UnicodeDecodeError),
        tokens=(b"9" * 5_000, b"-1", b"1e3", "²".encode(), b" 5"),
    ),
    Target(
        "pool-service-annotations",
        (_json(**{ANNOTATION_SERVICE: _SERVICE, ANNOTATION_BACKENDS: _BACKENDS}), _json(**{ANNOTATION_SERVICE: "{}"})),
        plain(_pool_service),
        refusals=(msgspec.DecodeError, UnicodeDecodeError),
        tokens=(ANNOTATION_BACKENDS.encode(), b'\\"', b'"nodes\\": [', b"IPv6", b"FQDN"),
    ),
    Target(
        "region-annotations",
        (
            _json(**{ANNOTATION_NODEPOOL_SELECTOR: "region in (north,south),!edge"}),
            _json(**{ANNOTATION_ACCESS_POINTS: '{"north": ["192.0.2.7"]}'}),
        ),
        plain(_source),
        refusals=(msgspec.DecodeError, UnicodeDecodeError, BadSelector),
        tokens=(b" in (", b"notin", b"!", b"=", b","),
    ),
)
