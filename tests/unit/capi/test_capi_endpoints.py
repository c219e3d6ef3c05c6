"""The rule between the endpoints of a Cluster and of its load balancer, row by row."""

from __future__ import annotations

import pytest

from fairlead.api.capiside import ControlPlaneEndpoint
from fairlead.capi.view import State, settle

NONE = ControlPlaneEndpoint()
USER = ControlPlaneEndpoint("api.example", 6443)
OTHER = ControlPlaneEndpoint("192.0.2.9", 6443)
OWN = ControlPlaneEndpoint("192.0.2.1", 6443)


@pytest.mark.req("C-24", "C-25", "C-26", "C-27", "C-28", "C-29", "T-C-02", "T-C-03", "T-C-04")
@pytest.mark.parametrize(
    ("cluster", "load_balancer", "own", "state", "down", "up"),
    [
        (NONE, NONE, NONE, State.WAITING, None, None),
        (NONE, NONE, OWN, State.COPY_DOWN, OWN, None),
        (NONE, USER, OWN, State.PUBLISH, None, USER),
        (NONE, USER, NONE, State.PUBLISH, None, USER),
        (USER, NONE, OWN, State.COPY_DOWN, USER, None),
        (USER, NONE, NONE, State.COPY_DOWN, USER, None),
        (USER, USER, OWN, State.SETTLED, None, None),
        (USER, OTHER, OWN, State.CONFLICT, None, None),
        (OWN, OWN, OTHER, State.SETTLED, None, None),
    ],
)
def test_each_row(cluster, load_balancer, own, state, down, up):
    verdict = settle(cluster, load_balancer, own)
    assert (verdict.state, verdict.to_load_balancer, verdict.to_cluster) == (state, down, up)


@pytest.mark.req("EDGE-09")
@pytest.mark.parametrize(
    ("host", "other", "same"),
    [
        ("fd00:0::5", "fd00::5", True),
        ("FD00::5", "fd00::5", True),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("API.example.", "api.example", True),
        ("api.example", "api2.example", False),
        ("fd00::5", "fd00::6", False),
    ],
)
def test_spellings_of_one_endpoint_do_not_conflict(host: str, other: str, same: bool):
    verdict = settle(ControlPlaneEndpoint(host, 6443), ControlPlaneEndpoint(other, 6443), NONE)
    assert verdict.state is (State.SETTLED if same else State.CONFLICT)
    assert (verdict.to_load_balancer, verdict.to_cluster) == (None, None)


@pytest.mark.req("C-25", "C-68")
def test_nothing_that_is_set_is_ever_written_over():
    some = (NONE, USER, OTHER, OWN)
    for cluster in some:
        for load_balancer in some:
            for own in some:
                verdict = settle(cluster, load_balancer, own)
                assert verdict.to_cluster is None or not cluster.given
                assert verdict.to_load_balancer is None or not load_balancer.given


def test_a_conflict_names_both_and_the_next_step():
    message = settle(USER, OTHER, OWN).message
    assert str(USER) in message
    assert str(OTHER) in message
    assert "create a LoadBalancer" in message


@pytest.mark.req("C-15")
def test_an_additional_load_balancer_has_its_own_endpoint_and_publishes_nothing():
    assert settle(USER, NONE, OWN, additional=True).to_load_balancer == OWN
    verdict = settle(USER, OTHER, OWN, additional=True)
    assert (verdict.state, verdict.to_cluster, verdict.endpoint) == (State.OWN, None, OTHER)
    assert settle(USER, NONE, NONE, additional=True).to_load_balancer is None


def test_the_younger_of_two_that_claim_one_endpoint_writes_nothing():
    verdict = settle(NONE, NONE, OWN, claimed_by="api")
    assert (verdict.state, verdict.to_load_balancer, verdict.to_cluster) == (State.CLAIMED, None, None)
    assert "LoadBalancer api" in verdict.message


@pytest.mark.req("C-69")
def test_an_ipv6_endpoint_is_written_in_brackets():
    assert str(ControlPlaneEndpoint("2001:db8::1", 6443)) == "[2001:db8::1]:6443"


@pytest.mark.req("C-25")
@pytest.mark.parametrize("additional", [True, False])
def test_an_endpoint_of_another_cluster_is_refused(additional):
    verdict = settle(NONE, USER, OWN, additional=additional, taken_by="fleet/red")
    assert (verdict.state, verdict.to_load_balancer, verdict.to_cluster) == (State.CLAIMED, None, None)
    assert "fleet/red" in verdict.message
    assert "api.example:6443" in verdict.message
