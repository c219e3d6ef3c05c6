"""Construct the parts of one server, and create the objects that an empty one starts with."""

from __future__ import annotations

from collections.abc import Callable

from fairlead.apiserver.auth.accounts import Accounts
from fairlead.apiserver.auth.bootstrap import default_roles
from fairlead.apiserver.auth.rbac import Authorizer
from fairlead.apiserver.auth.tokens import TokenSigner
from fairlead.apiserver.background.collector import Collector
from fairlead.apiserver.background.owners import Owners
from fairlead.apiserver.credentials import ServerSecrets
from fairlead.apiserver.http.gate import AccessGate
from fairlead.apiserver.http.handler import Handler
from fairlead.apiserver.http.openapi import OpenApi
from fairlead.apiserver.http.protobuf import ProtobufReader
from fairlead.apiserver.http.reads import Reads
from fairlead.apiserver.http.reviews import Reviews
from fairlead.apiserver.http.watches import Watches
from fairlead.apiserver.http.writes import Writes
from fairlead.apiserver.kinds.allocations import SERVICE_RANGE, Allocations
from fairlead.apiserver.kinds.builtin import builtin_kinds
from fairlead.apiserver.kinds.catalog import Catalog
from fairlead.apiserver.kinds.names import RBAC
from fairlead.apiserver.metrics import Metrics
from fairlead.apiserver.objects import Obj
from fairlead.apiserver.registry.context import Context
from fairlead.apiserver.registry.deletion import Deletion
from fairlead.apiserver.registry.registry import Registry
from fairlead.apiserver.schema.builtin import BuiltinSchemas
from fairlead.apiserver.schema.rules import Rules
from fairlead.apiserver.store.journal import Journal
from fairlead.apiserver.store.store import ObjectStore

NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")


class Assembly:
    """Every part of one server."""

    def __init__(
        self,
        journal: Journal,
        credentials: ServerSecrets,
        now: Callable[[], float],
        min_token_s: int,
        service_range: str = SERVICE_RANGE,
    ) -> None:
        schemas, rules, allocations = BuiltinSchemas(), Rules(), Allocations(service_range)
        self.store = ObjectStore(journal)
        signer = TokenSigner(credentials.signing_key, now)
        accounts = Accounts(self.store, signer, credentials.admin_token, now, min_ttl_s=min_token_s)
        kinds = builtin_kinds(schemas, rules, allocations=allocations, fill_token=accounts.fill_secret, now=now)
        self.catalog = Catalog(kinds, schemas)
        authorizer = Authorizer(self.store)
        self.registry = Registry(self.store, self.catalog, authorizer=authorizer, rules=rules, now=now)
        owners = Owners(self.store)
        deletion = Deletion(self.store, dependents=owners.dependents, now=now)
        self.collector = Collector(self.store, self.catalog, owners=owners, deletion=deletion, accounts=accounts)
        self.watches = Watches(self.store, now)
        self.reads = Reads(self.registry, now)
        self.metrics = Metrics(watchers=lambda: len(self.watches), objects=self._count)
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
