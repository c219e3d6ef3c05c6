"""Which pods are listed as ready for the sake of their readiness gate."""

from __future__ import annotations

import pytest

from fairlead.agent.slices import with_gated_pods
from fairlead.api.kubernetes import (
    Endpoint,
    EndpointConditions,
    EndpointSlice,
    Pod,
    PodCondition,
    PodReadinessGate,
    PodSpec,
    PodStatus,
    TargetRef,
)
from fairlead.api.meta import ObjectMeta
from fairlead.api.names import CONDITION_SERVING

CONTAINERS, OTHER = ("ContainersReady", "True", ""), "example.com/other"
WAITS = ("Ready", "False", "ReadinessGatesNotReady")


def pod(*conditions: tuple[str, str, str], gates: tuple[str, ...] = (CONDITION_SERVING,), deleted: str = "") -> Pod:
    return Pod(
        metadata=ObjectMeta(name="web", namespace="shop", uid="one", deletion_timestamp=deleted or None),
        spec=PodSpec(readiness_gates=[PodReadinessGate(gate) for gate in gates]),
        status=PodStatus(pod_ip="10.1.0.1", conditions=[PodCondition(*condition) for condition in conditions]),
    )


@pytest.mark.req("F-1")
@pytest.mark.parametrize(
    ("made", "ready", "marked"),
    [
        pytest.param(pod(CONTAINERS, WAITS), True, True, id="only the gate is missing"),
        pytest.param(pod(CONTAINERS, ("Ready", "False", "")), True, True, id="a kubelet that gives no reason"),
        pytest.param(pod(CONTAINERS, WAITS, (CONDITION_SERVING, "False", "Waiting")), True, True, id="explained"),
        pytest.param(pod(CONTAINERS, WAITS, (CONDITION_SERVING, "True", "Serving")), True, False, id="just opened"),
        pytest.param(pod(CONTAINERS, ("Ready", "True", ""), (CONDITION_SERVING, "True", "")), True, False, id="ready"),
        pytest.param(pod(("ContainersReady", "False", ""), WAITS), False, False, id="its probe fails"),
        pytest.param(pod(CONTAINERS, ("Ready", "False", "NodeNotReady")), False, False, id="its node is lost"),
        pytest.param(pod(CONTAINERS, WAITS, deleted="2030-01-01T00:00:00Z"), False, False, id="it is deleted"),
        pytest.param(pod(CONTAINERS, WAITS, gates=(CONDITION_SERVING, OTHER)), False, False, id="another gate"),
        pytest.param(
            pod(CONTAINERS, WAITS, (OTHER, "True", ""), gates=(CONDITION_SERVING, OTHER)),
            True,
            True,
            id="another gate is open",
        ),
        pytest.param(pod(CONTAINERS, WAITS, gates=()), False, False, id="without the gate"),
        pytest.param(None, False, False, id="a pod that is not known"),
    ],
)
def test_a_pod_that_lacks_only_its_gate_is_listed_as_ready(made: Pod | None, ready: bool, marked: bool) -> None:
    unready = EndpointConditions(ready=False, serving=False, terminating=False)
    listed = Endpoint(addresses=["10.1.0.1"], conditions=unready, target_ref=TargetRef(uid="one"))
    other = Endpoint(addresses=["10.1.0.2"], conditions=unready, target_ref=TargetRef(uid="two"))
    given = EndpointSlice(endpoints=[listed, other])
    changed = with_gated_pods(given, lambda uid: made if uid == "one" else None)
    first, second = changed.endpoints or []
    assert (first.ready, first.awaits_gate) == (ready, marked)
    assert second == other
    assert (changed is given) is not ready


@pytest.mark.req("F-4")
def test_a_pod_that_terminates_is_never_listed_as_ready() -> None:
    leaving = EndpointConditions(ready=False, serving=True, terminating=True)
    given = EndpointSlice(
        endpoints=[Endpoint(addresses=["10.1.0.1"], conditions=leaving, target_ref=TargetRef(uid="one"))]
    )
    assert with_gated_pods(given, lambda _uid: pod(CONTAINERS, WAITS)) is given
