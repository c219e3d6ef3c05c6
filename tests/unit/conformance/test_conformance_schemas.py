"""The definitions of Gateway API that ship with Fairlead are those of the suite, without descriptions."""

from __future__ import annotations

from typing import Any

import yaml

from conformance.paths import SUITE_VERSION
from conformance.schemas import read_definitions
from podless.offline import gateway_definitions

CRD = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: things.gateway.networking.k8s.io
  annotations:
    api-approved.kubernetes.io: "yes"
    gateway.networking.k8s.io/bundle-version: v1
    gateway.networking.k8s.io/channel: experimental
    other: x
spec:
  group: gateway.networking.k8s.io
  names: {kind: Thing}
  versions:
    - name: v1
      served: true
      storage: false
      schema: {openAPIV3Schema: {description: text, properties: {description: {type: string, description: text}}}}
    - {name: v1beta1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
    - {name: v1alpha2, served: true, storage: false, schema: {openAPIV3Schema: {type: object}}}
"""


def test_descriptions_and_old_versions_go_and_fields_of_that_name_stay(tmp_path: Any) -> None:
    (tmp_path / "gateway.networking.k8s.io_things.yaml").write_text(CRD)
    (tmp_path / "gateway.networking.x-k8s.io_others.yaml").write_text(CRD.replace("group: gateway", "group: x"))
    (made,) = read_definitions(tmp_path)
    assert [each["name"] for each in made["spec"]["versions"]] == ["v1", "v1beta1"]
    schema = {"properties": {"description": {"type": "string"}}}
    assert made["spec"]["versions"][0]["schema"]["openAPIV3Schema"] == schema
    assert "other" not in made["metadata"]["annotations"]
    assert yaml.safe_load(CRD)["spec"]["names"] == made["spec"]["names"]


def test_the_definitions_are_those_of_the_version_that_the_suite_tests() -> None:
    versions = {
        each["metadata"]["annotations"]["gateway.networking.k8s.io/bundle-version"] for each in gateway_definitions()
    }
    assert versions == {SUITE_VERSION}
