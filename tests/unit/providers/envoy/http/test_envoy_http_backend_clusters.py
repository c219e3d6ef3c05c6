"""Which clusters a changed backend, setting or target concerns."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fairlead.model.desired import FrontendSpec, Locality, Shares, Target
from fairlead.model.health import HealthCheck, HealthCheckSettings, OutlierDetection
from fairlead.model.http import Backend, BackendTls, L7Config
from fairlead.model.keys import LoadBalancerKey, TargetKey, backend_key
from fairlead.providers.envoy.clusters import CLUSTER
from fairlead.providers.envoy.http.backend_clusters import BackendClusters, backend_cluster_bytes
from fairlead.providers.envoy.http.secrets import EnvoySecrets
from fairlead.providers.envoy.resources import packaged_schema
from fairlead.providers.envoy.store import ResourceChange
from tests.envoy_json import to_json

KEY = LoadBalancerKey("HTTPLoadBalancer", "shop", "web")
SPEC = FrontendSpec(key=KEY, group="t", listeners=(), health_check=None)
A, B = Backend("a"), Backend("b")


@pytest.fixture
def secrets() -> EnvoySecrets:
    return EnvoySecrets(packaged_schema(), KEY)


@pytest.fixture
def clusters(secrets: EnvoySecrets) -> BackendClusters:
    return BackendClusters(packaged_schema(), secrets, {}, connections=1000)


def names(changes: list[ResourceChange]) -> list[str]:
    prefix = f"{KEY}/backend/"
    return sorted(
        f"{'-' if each.resource is None else ''}{each.kind.short} {each.name.removeprefix(prefix)}" for each in changes
    )


def test_only_what_differs_is_returned(clusters: BackendClusters) -> None:
    assert names(clusters.update(SPEC, [A, B])) == ["cluster a", "cluster b", "endpoints a", "endpoints b"]
    assert clusters.update(SPEC, [A, B]) == []
    assert names(clusters.update(SPEC, [A, Backend("b", protocol="HTTP2")])) == ["cluster b"]
    assert names(clusters.update(SPEC, [A])) == ["-cluster b", "-endpoints b"]
    assert clusters.clusters == {"a": f"{KEY}/backend/a"}


def test_settings_of_the_load_balancer_concern_all(clusters: BackendClusters) -> None:
    clusters.update(SPEC, [A, B])
    checked = msgspec.structs.replace(SPEC, health_check=HealthCheck())
    changes = clusters.update(checked, [A, B])
    assert names(changes) == ["cluster a", "cluster b"]
    assert all(change.resource is not None and change.resource.warms_by_ack for change in changes)


def test_targets_stay_with_their_backend(clusters: BackendClusters) -> None:
    clusters.update(SPEC, [A, B])
    port = clusters.ports[backend_key("a")]
    port.put(Target(TargetKey("10.0.0.1", 80)))
    assert names(clusters.target_changes(SPEC, backend_key("a"), was_inline=False)) == ["endpoints a"]
    clusters.update(SPEC, [A])
    assert clusters.ports == {backend_key("a"): port}
    port.put(Target(TargetKey("pod.example.com", 80)))
    assert names(clusters.target_changes(SPEC, backend_key("a"), was_inline=False)) == ["-endpoints a", "cluster a"]
    assert names(clusters.update(SPEC, [A, B])) == ["cluster b", "endpoints b"]


def test_datagrams_have_no_cluster_of_their_own(clusters: BackendClusters) -> None:
    assert clusters.update(SPEC, [Backend("a", protocol="UDP")]) == []
    assert clusters.ports[backend_key("a")].datagrams
    assert names(clusters.update(SPEC, [A])) == ["cluster a", "endpoints a"]
    assert not clusters.ports[backend_key("a")].datagrams


def test_a_backend_that_cannot_be_verified_is_not_served(clusters: BackendClusters, secrets: EnvoySecrets) -> None:
    wrong = Backend("a", tls=BackendTls("a", ca_bundle="nothing"))
    secrets.update(L7Config((), backends=(wrong,)))
    assert clusters.update(SPEC, [wrong]) == []
    assert [part.kind for part in secrets.refused] == ["backend"]
    system = Backend("a", tls=BackendTls("a", system_ca=True))
    assert names(clusters.update(SPEC, [system])) == ["cluster a", "endpoints a"]


@pytest.mark.req("MC-9", "MC-10")
def test_how_members_share_a_backend_concerns_that_backend(clusters: BackendClusters) -> None:
    def shared(**weights: int) -> FrontendSpec:
        localities = tuple(Locality(name, weight) for name, weight in sorted(weights.items()))
        return msgspec.structs.replace(SPEC, backend_shares={"a": Shares(localities)})

    clusters.update(SPEC, [A, B])
    assert names(clusters.update(shared(west=1), [A, B])) == ["cluster a", "endpoints a"]
    assert clusters.update(shared(west=1), [A, B]) == []
    # A weight is in the endpoints: the cluster with its connections stays.
    assert names(clusters.update(shared(west=2), [A, B])) == ["endpoints a"]
    clusters.ports[backend_key("a")].put(Target(TargetKey("10.0.0.1", 80), locality="west"))
    (change,) = clusters.target_changes(shared(west=2), backend_key("a"), was_inline=False)
    assert change.resource is not None
    assert b"west" in change.resource.field
    assert names(clusters.update(SPEC, [A, B])) == ["cluster a", "endpoints a"]


@pytest.mark.req("F-11", "F-13")
def test_a_backend_with_a_check_of_its_own_concerns_itself_alone(clusters: BackendClusters) -> None:
    checked = msgspec.structs.replace(SPEC, health_check=HealthCheck())
    clusters.update(checked, [A, B])
    before = clusters.ports[backend_key("b")]
    own = msgspec.structs.replace(B, health_check=HealthCheckSettings(path="/healthz", port=8080))
    assert names(clusters.update(checked, [A, own])) == ["cluster b", "endpoints b"]
    assert clusters.ports[backend_key("b")] is not before, "its health is judged again"
    assert names(clusters.update(checked, [A, msgspec.structs.replace(own, health_check=None)])) == [
        "cluster b",
        "endpoints b",
    ]


def cluster_of(backend: Backend) -> Any:
    spec = msgspec.structs.replace(SPEC, health_check=HealthCheck())
    encoded = backend_cluster_bytes(packaged_schema(), spec, backend, name=backend.name, connections=9)
    return to_json(packaged_schema(), CLUSTER, encoded)


@pytest.mark.req("F-11", "F-13")
def test_what_users_set_is_in_the_cluster() -> None:
    settings = HealthCheckSettings(path="/healthz", expected="200-299")
    cluster = cluster_of(Backend("shop", health_check=settings, outlier_detection=OutlierDetection(5, 3, "9s", 20)))
    (check,) = cluster["health_checks"]
    assert check["http_health_check"]["expected_statuses"] == [{"start": "200", "end": "300"}]
    assert "no_traffic_healthy_interval" not in check, "an idle backend is checked as often as the user asks"
    outlier = cluster["outlier_detection"]
    assert (outlier["consecutive_5xx"], outlier["enforcing_consecutive_5xx"]) == (5, 100)
    assert (outlier["consecutive_gateway_failure"], outlier["enforcing_consecutive_gateway_failure"]) == (3, 100)
    assert (outlier["base_ejection_time"], outlier["max_ejection_percent"]) == ("9s", 20)
    calm = cluster_of(Backend("calm", outlier_detection=OutlierDetection(max_ejection_percent=0)))
    assert "outlier_detection" not in calm
    unchecked = cluster_of(Backend("unchecked", health_check=HealthCheckSettings(type="none")))
    assert "health_checks" not in unchecked
