"""What proxies, HAProxies, drivers and hubs say to us, and kubeconfigs: bytes of others that we read."""

from __future__ import annotations

import ipaddress
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from fairlead.agent.events import usable_addresses
from fairlead.api.kubernetes import Ingress
from fairlead.errors import FairleadError, Retry
from fairlead.kube.kubeconfig import load_config
from fairlead.providers.envoy.resources import ResourceType, packaged_schema
from fairlead.providers.envoy.session import Session
from fairlead.providers.envoy.store import ResourceStore
from fairlead.providers.haproxy.snapshot import snapshot_from_text
from fairlead.providers.webhook.protocol import Malformed, answer_from_body, decode, kept_from_body, verdict_from_body
from tests.fuzz.fuzz_harness import Read, Target, plain

_REQUEST = "envoy.service.discovery.v3.DeltaDiscoveryRequest"


def _frames(raw: bytes) -> str:
    """Two requests of one stream, one after the other: whatever a proxy says, its session answers or refuses."""
    store = ResourceStore()
    store.publish()
    session = Session(group=store.group("g"), node_id="n")
    half = len(raw) // 2
    answered = 0
    for frame in (raw, raw[:half], raw[half:], raw):
        try:
            request = packaged_schema().read_request(frame)
        except ValueError:
            continue
        session.on_request(request, now=1.0)
        answered += len(session.pump(now=1.0))
    session.close()
    return str(answered)


def _snapshot(raw: bytes) -> str:
    snapshot = snapshot_from_text(raw.decode(errors="replace"), "web", socket="/s")
    return f"{len(snapshot.servers or ())} {len(snapshot.messages)}"


def _answer(raw: bytes) -> str:
    body = decode(raw)
    said = ""
    for read in (answer_from_body, verdict_from_body, kept_from_body):
        try:
            said += str(type(read(body)))
        except Malformed as error:
            said += str(error)[:200]
    return said


def _addresses(raw: bytes) -> str:
    text = raw.decode(errors="surrogateescape")
    good, bad = usable_addresses([Ingress(ip=text), Ingress(hostname=text)])
    for entry in good:
        assert entry.hostname or ipaddress.ip_address(entry.ip or "")
    assert all(word.isprintable() for word in bad)
    return f"{len(good)}"


@contextmanager
def _kubeconfig() -> Generator[Read]:
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "config"

        def read(raw: bytes) -> str:
            file.write_bytes(raw)
            return load_config(file, environ={}).server

        yield read


def _request(kind: ResourceType, **fields: object) -> bytes:
    return packaged_schema().encode(_REQUEST, {"type_url": kind.value, **fields})


_INFO = b"Pid: 7\nVersion: 2.9\nStart_time_sec: 5\n\n"
_STATE = b"1\n# be_id be_name srv_id srv_name srv_addr srv_op_state\n3 web 1 fl-0-192.0.2.1_80 192.0.2.1 2\n\n"
_STAT = b"# pxname,svname,qcur,scur,status,\nweb,fl-0-192.0.2.1_80,0,1,UP,\n\n"
_CONFIG = b"""apiVersion: v1
kind: Config
current-context: c
clusters: [{name: c, cluster: {server: 'https://127.0.0.1:6443', insecure-skip-tls-verify: true}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: c, context: {cluster: c, user: u, namespace: n}}]
"""

TARGETS = (
    Target(
        "xds-frames",
        (
            _request(ResourceType.CLUSTER, resource_names_subscribe=["*"]),
            _request(ResourceType.LISTENER, response_nonce="1", resource_names_unsubscribe=["a"]),
            _request(ResourceType.ENDPOINTS, initial_resource_versions={"a": "1"}, error_detail={"message": "no"}),
        ),
        plain(_frames),
        tokens=(b"type.googleapis.com/", ResourceType.CLUSTER.value.encode(), b"\x12\x01*", b"1"),
    ),
    Target(
        "haproxy-answers",
        (_INFO + _STATE + _STAT, _INFO + b"Can't find backend.\n", b"Permission denied\n", _INFO + _STAT + _STATE),
        plain(_snapshot),
        refusals=(Retry,),
        tokens=(b"# be_id ", b"# pxname,", b"\n\n", b"\n", b'"', b",", b"Pid: ", b"web", b"9" * 5_000),
        max_bytes=262_144,
    ),
    Target(
        "webhook-answers",
        (
            b'{"status": "Succ", "msg": "done", "lbInfo": {"id": "1"}, "minRetryDelayInSeconds": "5"}',
            b'{"succ": false, "msg": "no"}',
            b'{"doNotDeregister": [{"metadata": {"name": "a", "namespace": "b"}}]}',
            b'{"msg": ' + b"[" * 20_000 + b"]" * 20_000 + b"}",
            b'{"status": ' + b'{"a":' * 20_000 + b"1" + b"}" * 20_001,
            b"<html>",
        ),
        plain(_answer),
        refusals=(Malformed,),
        tokens=(b'"status":', b'"Running"', b"[" * 900, b'{"a":' * 900, b"1e999", b"NaN", b"\\ud800", b'"msg":'),
        max_bytes=262_144,
    ),
    Target(
        "hub-addresses",
        (b"192.0.2.1", b"2001:db8::1", b"lb.example.com", b"not-an-ip; rm", b"fe80::1%eth0"),
        plain(_addresses),
        tokens=(b".", b":", b"%", b"\n", b"\x1b[2J", b"\xe2\x80\xae", b"0"),
    ),
    Target(
        "kubeconfigs",
        (_CONFIG, _CONFIG.replace(b"token: t", b"exec: {apiVersion: client.authentication.k8s.io/v1, command: x}")),
        _kubeconfig,
        refusals=(FairleadError,),
        tokens=(b"*a", b"&a ", b"[", b"]", b"{", b"}", b": ", b"\n  ", b"!!python/object:a", b"null", b"'", b"\x00"),
        quick=150,
    ),
)
