"""A webhook driver over real HTTP that keeps load balancers as a real one does, until a test has it say something else.

In: calls. Out: what is on its load balancers, by the names that it gives to backends itself, and every call in order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from tests.unit.providers.webhook.scripted_driver import SUCC, Reply, ScriptedDriver

#: Hooks that change nothing anywhere.
READ_ONLY = frozenset(
    {"validateLoadBalancer", "validateBackend", "judgePodDeregister", "listBackends", "backendHealth", "healthz"}
)


class Driver(ScriptedDriver):
    """Load balancers by the name in their lbSpec; ``backends`` of each by backendAddr."""

    def __init__(self) -> None:
        super().__init__()
        self.lbs: dict[str, dict[str, Mapping[str, Any]]] = {}
        self.attributes: dict[str, Mapping[str, str]] = {}
        #: Backends, by backendAddr, that the load balancer sees as unhealthy.
        self.unhealthy: set[str] = set()
        self.really: dict[str, Reply] = {
            "createLoadBalancer": self._create,
            "ensureLoadBalancer": self._ensure,
            "deleteLoadBalancer": self._delete,
            "generateBackendAddr": self._address,
            "ensureBackend": self._register,
            "deregisterBackend": self._deregister,
            "listBackends": lambda body: SUCC | {"backends": sorted(self.lbs.get(body["lbInfo"]["id"], {}))},
            "backendHealth": self._health,
            "validateLoadBalancer": lambda _body: {"succ": True},
            "validateBackend": lambda _body: {"succ": True},
            "judgePodDeregister": lambda _body: {"succ": True, "doNotDeregister": []},
            "healthz": lambda _body: {"healthy": True},
        }
        for hook, act in self.really.items():
            self.on(hook, act)

    def first(self, hook: str, *replies: Reply | Mapping[str, Any]) -> None:
        """Answer these, one by one, and then do what is asked."""
        self.on(hook, *replies, self.really[hook])

    def always(self, hook: str, reply: Reply | Mapping[str, Any]) -> None:
        """Answer this until asked otherwise."""
        self.on(hook, reply)

    def mend(self, hook: str) -> None:
        """Do what is asked again."""
        self.on(hook, self.really[hook])

    def at(self, lb: str = "shared") -> set[str]:
        """Return the backends of one load balancer."""
        return set(self.lbs.get(f"id-{lb}", ()))

    def watched(self, at_point: Callable[[], Awaitable[None]]) -> None:
        """Be at ``at_point`` before and after everything that is really done."""

        def around(act: Reply) -> Reply:
            async def both(body: dict[str, Any]) -> Any:
                await at_point()
                answer = act(body)
                await at_point()
                return answer

            return both

        for hook, act in self.really.items():
            self.on(hook, around(act))

    @property
    def hooks(self) -> Counter[str]:
        """Return how often each hook was called."""
        return Counter(hook for hook, _ in self.calls)

    def rows(self) -> list[tuple[str, str]]:
        """Return (hook, backendAddr) of every call about a backend that has one, in order."""
        return [(hook, body["backendAddr"]) for hook, body in self.calls if "backendAddr" in body]

    def _create(self, body: dict[str, Any]) -> Mapping[str, Any]:
        name = f"id-{body['lbSpec'].get('name', 'shared')}"
        self.lbs.setdefault(name, {})
        self.attributes[name] = body["attributes"]
        return SUCC | {"lbInfo": {"id": name}}

    def _ensure(self, body: dict[str, Any]) -> Mapping[str, Any]:
        self.lbs.setdefault(body["lbInfo"]["id"], {})
        self.attributes[body["lbInfo"]["id"]] = body["attributes"]
        return SUCC

    def _delete(self, body: dict[str, Any]) -> Mapping[str, Any]:
        self.lbs.pop(body["lbInfo"].get("id", ""), None)
        return SUCC

    def _address(self, body: dict[str, Any]) -> Mapping[str, Any]:
        if (backend := body.get("podBackend")) is not None:
            return SUCC | {"backendAddr": f"{backend['pod']['metadata']['name']}:{backend['port']['portNumber']}"}
        backend = body["serviceBackend"]
        port = next(each for each in backend["service"]["spec"]["ports"] if each["port"] == backend["port"]["port"])
        return SUCC | {"backendAddr": f"{backend['nodeName']}:{port['nodePort']}"}

    def _register(self, body: dict[str, Any]) -> Mapping[str, Any]:
        if body["lbInfo"].get("id") not in self.lbs:
            return {"status": "Fail", "msg": "no such load balancer"}
        self.lbs[body["lbInfo"]["id"]][body["backendAddr"]] = body["parameters"]
        return SUCC

    def _health(self, body: dict[str, Any]) -> Mapping[str, Any]:
        there = self.lbs.get(body["lbInfo"]["id"], {})
        return SUCC | {"backends": [{"backendAddr": at, "healthy": at not in self.unhealthy} for at in sorted(there)]}

    def _deregister(self, body: dict[str, Any]) -> Mapping[str, Any]:
        self.lbs.get(body["lbInfo"].get("id", ""), {}).pop(body["backendAddr"], None)
        return SUCC
