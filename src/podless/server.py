"""Start and stop an API server inside a program: the public class of this package.

    server = ApiServer(data_dir=Path("/var/lib/example"), port=6443)
    url = await server.start()
    ...
    await server.stop()

Plain HTTP is for programs on this machine; kubectl sends its token over TLS only, so the kubeconfig names a second
port that speaks TLS. By default both listen on the loopback address. Several servers may run in one
loop; nothing is shared.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import errno
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

import yaml

from podless.auth.accounts import MIN_TTL_S, Accounts
from podless.auth.identity import TokenSigner
from podless.auth.rbac import Authorizer, default_roles
from podless.background.collector import Collector, Owners
from podless.background.restarted_task import restarted_task
from podless.credentials import ServerSecrets, TlsIdentity, load_credentials, load_tls, write_private
from podless.failure import ConfigurationError
from podless.http.gate import AccessGate
from podless.http.handler import Handler
from podless.http.listener import Connections
from podless.http.openapi import OpenApi
from podless.http.protobuf import ProtobufReader
from podless.http.reads import Reads
from podless.http.reviews import Reviews
from podless.http.watches import Watches
from podless.http.writes import Writes
from podless.kinds.allocations import SERVICE_RANGE, Allocations
from podless.kinds.builtin import builtin_kinds
from podless.kinds.catalog import Catalog
from podless.kinds.names import RBAC
from podless.metrics import Metrics
from podless.objects import Obj
from podless.registry.context import Context
from podless.registry.deletion import Deletion
from podless.registry.registry import Registry
from podless.schema.builtin import BuiltinSchemas
from podless.schema.rules import Rules
from podless.store.sqlite import SqliteJournal
from podless.store.store import Journal, MemoryJournal, ObjectStore

TIDY_EVERY_S = 2.0
STOP_S = 1.0


class ApiServer:
    """A Kubernetes-compatible API server; without ``data_dir`` it keeps its state in memory only."""

    def __init__(
        self,
        data_dir: Path | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        tls_port: int = 0,
        admin_token: str | None = None,
        now: Callable[[], float] = time.time,
        min_token_s: int = MIN_TTL_S,
        service_range: str = SERVICE_RANGE,
        objects: Iterable[tuple[str, bytes]] = (),
        name: str = "podless",
        user_annotations: Mapping[str, str] = {},
    ) -> None:
        """Configure the server; ``objects`` is the initial state of one without ``data_dir``, as (bucket, JSON).

        ``user_annotations``: by plural.group of a kind, the annotation in which the server stores who changed an object
        last. Clients cannot write it.

        ``name``: of the program that serves the API: in its version, its metrics and its kubeconfig.
        """
        self._name = name
        self._data_dir = data_dir
        self._host = host
        self._port = port
        self._tls_port = tls_port
        self._wanted_token = admin_token
        self._now = now
        self._min_token_s = min_token_s
        self._service_range = service_range
        self._objects = objects
        self._user_annotations = user_annotations
        self._admin_token = ""
        self._url = self._tls_url = self._certificate = ""
        self._parts: Assembly | None = None
        self._connections: Connections | None = None
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def url(self) -> str:
        """The base URL of the plain HTTP port; valid once started."""
        return self._url

    @property
    def tls_url(self) -> str:
        """The base URL of the TLS port, once started; its certificate is in ``kubeconfig()``."""
        return self._tls_url

    @property
    def admin_token(self) -> str:
        """The bearer token of the administrator; valid once started. Never log it."""
        return self._admin_token

    async def start(self) -> str:
        """Load the state, listen, and return the URL; raises ``ConfigurationError``."""
        if self._parts is not None:
            return self._url
        journal = self._open_journal()
        try:
            credentials = load_credentials(self._data_dir, self._wanted_token)
            parts = Assembly(
                journal,
                credentials,
                self._now,
                self._min_token_s,
                self._service_range,
                self._name,
                self._user_annotations,
            )
            parts.load()
            identity = load_tls(self._data_dir, [self._host, "localhost"], self._now())
            self._connections = await self._listen(parts, identity)
            self._certificate = identity.pem
        except BaseException:
            journal.close()
            raise
        self._admin_token = credentials.admin_token
        self._parts = parts
        self._tasks = [
            restarted_task("collector", parts.collector.run),
            restarted_task("checkpoint", lambda: self._checkpoint_regularly(parts)),
        ]
        return self._url

    def _open_journal(self) -> Journal:
        if self._data_dir is None:
            return MemoryJournal(self._objects)
        try:
            self._data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            sentence = f"The data directory {self._data_dir} cannot be made: check its parent, or name another one"
            raise ConfigurationError(sentence, detail=str(error)) from error
        return SqliteJournal(self._data_dir)

    async def _listen(self, parts: Assembly, identity: TlsIdentity) -> Connections:
        connections = Connections(parts.handler)
        parts.handler.on_admission = connections.admit
        host = f"[{self._host}]" if ":" in self._host else self._host
        port = self._port
        try:
            self._url = f"http://{host}:{connections.listen(self._host, port)}"
            port = self._tls_port
            self._tls_url = f"https://{host}:{connections.listen(self._host, port, identity.context)}"
        except OSError as error:
            await connections.stop(STOP_S)
            raise ConfigurationError(_not_listening(error, host, port), detail=str(error)) from error
        return connections

    @staticmethod
    async def _checkpoint_regularly(parts: Assembly) -> None:
        while True:
            await asyncio.sleep(TIDY_EVERY_S)
            await parts.store.checkpoint()

    async def stop(self) -> None:
        """End watches, finish requests in progress, and close the state."""
        if self._parts is None:
            return
        parts, self._parts = self._parts, None
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        parts.watches.close_all()
        if self._connections is not None:
            await self._connections.stop(STOP_S)
            self._connections = None
        parts.store.close()

    def kubeconfig(self) -> Obj:
        """Return a kubeconfig for the administrator, with the TLS port."""
        authority = base64.b64encode(self._certificate.encode()).decode()
        cluster = {"server": self._tls_url, "certificate-authority-data": authority}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": self._name, "cluster": cluster}],
            "users": [{"name": "admin", "user": {"token": self._admin_token}}],
            "contexts": [{"name": self._name, "context": {"cluster": self._name, "user": "admin"}}],
            "current-context": self._name,
        }

    def write_kubeconfig(self, path: Path) -> None:
        """Write the kubeconfig of the administrator atomically, with mode 0600."""
        write_private(path, yaml.safe_dump(self.kubeconfig(), sort_keys=False))

    def compact(self) -> None:
        """Drop the watch history and snapshots: older resourceVersions and continue tokens get 410."""
        parts = self._running()
        parts.store.compact()
        parts.reads.forget()

    def requests(self, user_agent: str = "") -> dict[tuple[str, str], int]:
        """Return (verb, resource) -> requests, of clients whose User-Agent starts with ``user_agent``."""
        return self._running().metrics.requests(user_agent)

    def writes(self, exclude: Collection[str] = (), user_agent: str = "") -> int:
        """Return the number of write requests, except those to the resources in ``exclude``."""
        return self._running().metrics.writes(exclude, user_agent)

    def _running(self) -> Assembly:
        if self._parts is None:
            raise ConfigurationError("The API server is not running: start it first")
        return self._parts


def _not_listening(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRNOTAVAIL:
        return (
            f"The address {host} cannot be listened on: this machine does not have it; name one that ip address shows"
        )
    if error.errno == errno.EACCES:
        return f"The address {host}:{port} cannot be listened on: this user may not open it; take a port from 1024 on"
    return f"The address {host}:{port} cannot be listened on: stop what uses it, or take another port"


NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")


class Assembly:
    """Every part of one server."""

    def __init__(
        self,
        journal: Journal,
        credentials: ServerSecrets,
        now: Callable[[], float],
        min_token_s: int,
        service_range: str,
        name: str,
        user_annotations: Mapping[str, str],
    ) -> None:
        schemas, rules, allocations = BuiltinSchemas(), Rules(), Allocations(service_range)
        self.store = ObjectStore(journal)
        signer = TokenSigner(credentials.signing_key, now)
        accounts = Accounts(self.store, signer, credentials.admin_token, now, min_ttl_s=min_token_s)
        kinds = builtin_kinds(schemas, rules, allocations=allocations, fill_token=accounts.fill_secret, now=now)
        self.catalog = Catalog(kinds, schemas)
        authorizer = Authorizer(self.store)
        self.registry = Registry(
            self.store, self.catalog, authorizer=authorizer, rules=rules, now=now, user_annotations=user_annotations
        )
        owners = Owners(self.store)
        deletion = Deletion(self.store, dependents=owners.dependents, now=now, user_annotations=user_annotations)
        self.collector = Collector(self.store, self.catalog, owners=owners, deletion=deletion, accounts=accounts)
        self.watches = Watches(self.store, now)
        self.reads = Reads(self.registry, now)
        self.metrics = Metrics(name, watchers=lambda: len(self.watches), objects=self._count)
        protobuf = ProtobufReader(schemas.definitions)
        writes = Writes(self.registry, deletion, protobuf=protobuf, authorizer=authorizer, now=now)
        self.handler = Handler(
            self.catalog,
            gate=AccessGate(accounts, authorizer),
            reads=self.reads,
            watches=self.watches,
            writes=writes,
            reviews=Reviews(self.registry, authorizer, accounts),
            openapi=OpenApi(self.catalog, schemas),
            protobuf=protobuf,
            metrics=self.metrics,
            name=name,
        )
        self.catalog.changed.append(self.watches.close_kind)
        # The order matters: the collector reads the index of owners, which must be updated first.
        for observer in (self.catalog.observe, allocations.observe, authorizer.observe, owners.observe):
            self.store.observe(observer)
        self.store.observe(self.collector.observe)

    def load(self) -> None:
        """Read the stored state and create missing default objects; older resourceVersions are expired afterwards."""
        self.store.load()
        for name in NAMESPACES:
            self._ensure("", "namespaces", {"metadata": {"name": name}})
        for role in default_roles():
            self._ensure(RBAC, f"{role['kind'].lower()}s", role)
        self.store.compact()

    def _ensure(self, group: str, plural: str, obj: Obj) -> None:
        kind = self.catalog.find(group, "v1", plural)
        if kind is not None and self.store.bucket(kind.bucket).get("", obj["metadata"]["name"]) is None:
            self.registry.create(kind, "", obj, Context())

    def _count(self) -> dict[str, int]:
        return {bucket.name: len(bucket) for bucket in self.store.buckets()}
