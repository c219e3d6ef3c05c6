"""Envoy Gateway as a control plane to compare with: outside the cluster, with its Kubernetes provider.

The program runs as a process, and so does the Envoy that its Deployment would run, with the arguments of that
Deployment. Certificates are those that its own command makes; it reads its own at /certs, which no option changes.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence
from pathlib import Path

import aiohttp
import msgspec
import yaml

from bench.cluster_world import Api, ControlPlane, User
from bench.fleet import Process, until_true
from conformance.envoygateway import DEFINITIONS, PROGRAM, directory, why_not
from fairlead.api.kubernetes import NAMESPACES, SECRETS, Secret
from fairlead.api.meta import JSONObject, KubeObject, Resource
from fairlead.errors import Terminal
from fairlead.kube.discovery import install_crds
from fairlead.providers.envoy.envoy_process import find_binary

_NAMESPACE = "envoy-gateway-system"
_CERTIFICATES = Path("/certs")
#: The ports of the proxy that the controller, which has an address of its own in a cluster, uses too.
_PORTS = {"19000": "19100", "19001": "19101"}
_ADMIN = f"http://127.0.0.1:{_PORTS['19000']}"
_SERVICE = f"envoy-gateway.{_NAMESPACE}.svc.cluster.local"


class _Deployment(KubeObject, frozen=True, gc=False):
    spec: JSONObject = msgspec.field(default_factory=dict)


_DEPLOYMENTS = Resource("apps", "v1", "Deployment", "deployments", True, _Deployment)


class EnvoyGateway(ControlPlane):
    """Envoy Gateway with one proxy."""

    name = "Envoy Gateway"
    controller = "gateway.envoyproxy.io/gatewayclass-controller"

    def __init__(self) -> None:
        self.processes = []
        self._envoy: Process | None = None
        self._linked = False

    async def start(self, api: Api, user: User) -> None:
        """Start it.

        Raises:
            Terminal: it has not been built here.
        """
        if reason := why_not():
            raise Terminal(reason)
        if problems := await install_crds(user.cluster, _definitions(), "bench"):
            raise Terminal("; ".join(problems))
        await user.create(NAMESPACES, {"metadata": {"name": _NAMESPACE}})
        self._home = api.directory / "eg"
        program = str(directory() / PROGRAM)
        made = await asyncio.create_subprocess_exec(
            "env", f"KUBECONFIG={api.kubeconfig}", program, "certgen", "--disable-topology-injector",
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        if await made.wait():
            raise Terminal("envoy-gateway certgen failed")
        config = self._prepare(await user.cluster.list(SECRETS, _NAMESPACE))
        arguments = (f"KUBECONFIG={api.kubeconfig}", program, "server", "--config-path", str(config))
        process = Process("envoy-gateway", *arguments, directory=api.directory, program=("env",))
        self.processes = [process]
        await process.start()

    def _prepare(self, secrets: Sequence[Secret]) -> Path:
        """Put the certificates where they are read; return the file with the configuration."""
        self._certificates = self._home / "certificates"
        for secret in secrets:
            directory = self._certificates / secret.metadata.name
            directory.mkdir(parents=True)
            for name, data in (secret.data or {}).items():
                (directory / name).write_bytes(base64.b64decode(data))
        if _CERTIFICATES.exists():
            raise Terminal(f"{_CERTIFICATES} exists: Envoy Gateway reads its certificates there, so remove it first")
        _CERTIFICATES.symlink_to(self._certificates / "envoy-gateway")
        self._linked = True
        kubernetes: JSONObject = {"leaderElection": {"disable": True}}
        settings: JSONObject = {
            "apiVersion": "gateway.envoyproxy.io/v1alpha1",
            "kind": "EnvoyGateway",
            "gateway": {"controllerName": self.controller},
            "provider": {"type": "Kubernetes", "kubernetes": kubernetes},
            "logging": {"level": {"default": "error"}},
        }
        config = self._home / "config.yaml"
        config.write_text(yaml.safe_dump(settings))
        return config

    async def serve(self, user: User) -> str:
        """Start Envoy with the arguments of the Deployment that there is for the Gateway."""
        deployments: list[_Deployment] = []

        async def there() -> bool:
            deployments[:] = await user.cluster.list(_DEPLOYMENTS, _NAMESPACE)
            return bool(deployments)

        await until_true(there, what="the Deployment of the proxy", timeout_s=120, every_s=0.2)
        containers: list[JSONObject] = deployments[0].spec["template"]["spec"]["containers"]
        arguments: list[str] = next(each["args"] for each in containers if each["name"] == "envoy")
        shown = [self._local(argument) for argument in arguments]
        self._envoy = Process(
            "envoy", *shown, "--use-dynamic-base-id", directory=self._home.parent, program=(str(find_binary()),)
        )
        await self._envoy.start()
        return "127.0.0.1"

    async def stop(self) -> None:
        """Stop both."""
        for process in (*self.processes, *filter(None, (self._envoy,))):
            await process.stop()
        if self._linked:
            _unlink()

    def envoys(self) -> list[int]:
        """Return the id of its Envoy."""
        running = self._envoy.process if self._envoy is not None else None
        return [running.pid] if running is not None else []

    async def admin(self, path: str) -> str:
        """Return a page of the admin interface of its Envoy; empty without an answer."""
        try:
            async with aiohttp.ClientSession() as session, session.get(f"{_ADMIN}{path}") as answer:
                return await answer.text()
        except aiohttp.ClientError:
            return ""

    def _local(self, argument: str) -> str:
        """Return an argument of the Deployment with the paths and addresses of this machine."""
        files = self._home / "sds"
        files.mkdir(exist_ok=True)
        certificates = self._certificates / "envoy"
        for name in ("xds-trusted-ca", "xds-certificate"):
            (files / f"{name}.json").write_bytes(msgspec.json.encode(_secret(name, certificates)))
        for before, after in (
            ("/sds/", f"{files}/"),
            ("/certs/", f"{certificates}/"),
            (f"{_SERVICE}.", "127.0.0.1"),
            (_SERVICE, "127.0.0.1"),
            ("$(ENVOY_POD_NAME)", "bench"),
            ("$(ENVOY_POD_NAMESPACE)", _NAMESPACE),
            ("$(ENVOY_SERVICE_ZONE)", ""),
            *_PORTS.items(),
        ):
            argument = argument.replace(before, after)
        return argument


def _definitions() -> list[JSONObject]:
    texts = [path.read_text() for path in sorted((directory() / DEFINITIONS).glob("*.yaml"))]
    return [document for text in texts for document in yaml.safe_load_all(text) if document]


def _unlink() -> None:
    _CERTIFICATES.unlink()


def _secret(name: str, certificates: Path) -> JSONObject:
    """Return a secret for Envoy as its ConfigMap has it, with files of this machine."""
    kind = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"
    of: JSONObject
    if name == "xds-trusted-ca":
        san = {"san_type": "DNS", "matcher": {"exact": "envoy-gateway"}}
        ca = {"filename": str(certificates / "ca.crt")}
        of = {"validation_context": {"trusted_ca": ca, "match_typed_subject_alt_names": [san]}}
    else:
        chain, key = str(certificates / "tls.crt"), str(certificates / "tls.key")
        of = {"tls_certificate": {"certificate_chain": {"filename": chain}, "private_key": {"filename": key}}}
    return {"resources": [{"@type": kind, "name": name.replace("-", "_"), **of}]}
