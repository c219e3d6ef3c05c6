"""The suite is started once the GatewayClass shows all features, which come with the version of the CRDs."""

from __future__ import annotations

import json

import pytest

from conformance.cluster import knows_version


def gateway_class(*conditions: tuple[str, str]) -> str:
    listed = [{"type": kind, "status": status} for kind, status in conditions]
    return json.dumps({"kind": "GatewayClass", "status": {"conditions": listed}})


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("", False),
        ("{}", False),
        (gateway_class(), False),
        (gateway_class(("Accepted", "True")), False),
        (gateway_class(("Accepted", "True"), ("SupportedVersion", "False")), False),
        (gateway_class(("Accepted", "True"), ("SupportedVersion", "True")), True),
    ],
)
def test_the_version_is_known_when_the_class_says_so(text: str, known: bool) -> None:
    assert knows_version(text) is known
