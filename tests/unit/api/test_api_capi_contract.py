"""What clusterctl finds on our kinds."""

from __future__ import annotations

from copy import deepcopy

import pytest

from fairlead.api.clusterapi import labelled, metadata
from fairlead.api.kinds import all_crds

_MOVE = "clusterctl.cluster.x-k8s.io/move"


def test_every_kind_has_its_provider_and_a_version_for_each_contract() -> None:
    for crd in labelled(all_crds()):
        labels = crd["metadata"]["labels"]
        assert labels["cluster.x-k8s.io/provider"] == "addon-fairlead"
        assert labels["clusterctl.cluster.x-k8s.io"] == ""
        served = {each["name"] for each in crd["spec"]["versions"]}
        for contract in ("v1beta1", "v1beta2"):
            assert labels[f"cluster.x-k8s.io/{contract}"] in served


def test_only_classes_are_moved_without_an_owner() -> None:
    moved = [crd["metadata"]["name"] for crd in labelled(all_crds()) if _MOVE in crd["metadata"]["labels"]]
    assert moved == ["loadbalancerclasses.fairlead.dev"]


def test_the_definitions_that_were_given_stay_as_they_are() -> None:
    before = deepcopy(all_crds())
    labelled(all_crds())
    assert before == all_crds()


@pytest.mark.parametrize("version", ["v0.2.0", "0.2.0", "0.2.0rc1"])
def test_a_release_series_is_that_of_its_version(version: str) -> None:
    assert metadata(version)["releaseSeries"] == [{"major": 0, "minor": 2, "contract": "v1beta2"}]


def test_a_version_without_a_minor_number_is_refused() -> None:
    with pytest.raises(ValueError, match="expected"):
        metadata("v1")
