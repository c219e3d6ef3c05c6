"""Writes the copies of Services into the member, and deletes them.

In: the Services that are there, and whether a route needs the copy. Out: copies that differ are applied; one that
nothing needs any more goes when nothing has needed it for ``LINGER_S``, so that the hub has stopped using it.
Never: writes the original, or a Service of that name that is not our copy of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import structlog

from fairlead.agent.l7.service_copies import copy_name, copy_of, is_ours, is_same_copy, reached_by, why_no_copy
from fairlead.agent.sources import MEMBER_SERVICES, MemberService, Sources
from fairlead.api.kubernetes import Service
from fairlead.api.meta import JSONObject
from fairlead.api.names import MANAGER_AGENT
from fairlead.api.times import wire_time
from fairlead.errors import Conflict, Forbidden, Invalid, NotFound, Wait
from fairlead.kube.cluster import Cluster
from fairlead.kube.overlay import Overlay

#: A copy that nothing needs stays so long, in seconds.
LINGER_S = 5.0
#: What the member refused is tried again after so many seconds.
REFUSED_RETRY_S = 60.0
RIGHTS = "deploy/kubernetes/agent.yaml"

Key = tuple[str, str]


class ServiceCopier:
    """Keeps the copies of Services; the caller holds one key at a time."""

    def __init__(self, *, member: Cluster, sources: Sources, may_write: Callable[[], bool]) -> None:
        self._member = member
        self._sources = sources
        self._services = Overlay(sources.services)
        self._may_write = may_write
        #: What the member answered when it refused a copy, and when.
        self._refused: dict[Key, tuple[str, float]] = {}
        self._idle_since: dict[Key, float] = {}
        self._log: structlog.stdlib.BoundLogger = structlog.get_logger("fairlead.agent.l7")

    def reach(self, key: Key, *, nodes: bool) -> tuple[Service | None, str]:
        """Return a Service as it is reached, and why it is not reached by the nodes (empty when it is).

        ``nodes``: its backends are the nodes. None with a sentence: it cannot be a backend; None without: there is no
        such Service.
        """
        service = self._services.get(*key)
        if service is None or not nodes:
            return service, ""
        has_endpoints = any(each.endpoints for each in self._sources.slices_of_service(key))
        if problem := why_no_copy(service, has_endpoints=has_endpoints):
            return None, problem
        return reached_by(service, self._copy(key)), self._refused.get(key, ("", 0.0))[0]

    def has_copy(self, key: Key) -> bool:
        """Return whether a Service has a copy of ours."""
        return self._copy(key) is not None

    async def ensure(self, key: Key) -> None:
        """Have the copy of a Service as it should be.

        Raises:
            Wait: another agent leads.
            Retry: the member does not answer.
        """
        self._idle_since.pop(key, None)
        service = self._services.get(*key)
        wanted = None if service is None else copy_of(service)
        if wanted is None:
            return
        present = self._services.get(*wanted.key)
        if present is not None and not is_ours(present, key):
            self._refuse(key, f"Service {present.metadata.name} was not made by Fairlead: rename or delete it")
            return
        if present is not None and (present.deleting or is_same_copy(wanted, present)):
            self._refused.pop(key, None)
            return
        if self._has_just_been_refused(key):
            return
        self._check()
        try:
            answer = await self._member.apply(MEMBER_SERVICES, _body(wanted), manager=MANAGER_AGENT)
        except Forbidden as error:
            self._log.warning("copy of a Service refused", key="/".join(key), sentence=error.sentence)
            self._refuse(key, f"the agent may not create it: apply {RIGHTS} of this version")
        except (Conflict, Invalid) as error:
            self._refuse(key, error.sentence)
        else:
            self._refused.pop(key, None)
            self._services.written(answer, before=present)

    async def collect(self, key: Key) -> bool:
        """Delete the copy of a Service that nothing needs; return whether that has to wait."""
        self._refused.pop(key, None)
        copy = self._copy(key)
        if copy is None or copy.deleting:
            self._idle_since.pop(key, None)
            return False
        now = self._member.clock.monotonic()
        if now - self._idle_since.setdefault(key, now) < LINGER_S:
            return True
        self._check()
        try:
            await self._member.delete(MEMBER_SERVICES, *copy.key, uid=copy.metadata.uid)
        except (Conflict, NotFound):
            self._log.info("already gone", kind="Service", name=copy.metadata.name)
        self._services.deleted(copy, at=wire_time(self._member.clock.now()))
        self._idle_since.pop(key, None)
        return False

    def _copy(self, key: Key) -> MemberService | None:
        present = self._services.get(key[0], copy_name(key[1]))
        return present if present is not None and is_ours(present, key) else None

    def _refuse(self, key: Key, why: str) -> None:
        sentence = (
            f"Service {key[0]}/{key[1]} has no nodePort, and its copy {copy_name(key[1])} of type NodePort could not "
            f"be made: {why}. Until then its requests go to the pods directly"
        )
        self._refused[key] = (sentence, self._member.clock.monotonic())

    def _has_just_been_refused(self, key: Key) -> bool:
        sentence, at_s = self._refused.get(key, ("", 0.0))
        return bool(sentence) and self._member.clock.monotonic() - at_s < REFUSED_RETRY_S

    def _check(self) -> None:
        if not self._may_write():
            raise Wait("another agent leads, or may: nothing is written")


def _body(wanted: Service) -> JSONObject:
    body: dict[str, Any] = msgspec.to_builtins(wanted)
    # Protocol is a key of the list, and left out when it is the default.
    ports = [{**each, "protocol": each.get("protocol", "TCP")} for each in body["spec"].get("ports", ())]
    return {"apiVersion": "v1", "kind": "Service", **body, "spec": {**body["spec"], "ports": ports}}
