"""How large objects and requests may be, as a real API server limits them."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from podless_client import APPLY, MERGE, Api, config_map

pytestmark = pytest.mark.req("EDGE-10")

MIB = 2**20
KIB = 2**10


async def test_values_of_a_config_map_have_a_mebibyte_together(api: Api) -> None:
    (await api.post(api.cms, config_map("full", {"a": "x" * (MIB - 3), "b": "ü", "c": "y"}))).ok(201)
    answer = await api.post(api.cms, config_map("over", {"a": "x" * (MIB - 3), "b": "ü", "c": "yy"}))
    body = answer.refused(
        422, "Invalid", 'ConfigMap "over" is invalid: []: Too long: may not be more than 1048576 bytes'
    )
    (cause,) = body["details"]["causes"]
    assert (cause["reason"], cause["field"]) == ("FieldValueTooLong", "[]")
    binary = {
        "metadata": {"name": "binary"},
        "data": {"a": "x"},
        "binaryData": {"b": base64.b64encode(b"y" * MIB).decode()},
    }
    (await api.post(api.cms, binary)).refused(422, "Invalid", "Too long")
    binary["binaryData"] = {"b": base64.b64encode(b"y" * (MIB - 1)).decode()}
    (await api.post(api.cms, binary)).ok(201)


@pytest.mark.parametrize("media", [MERGE, APPLY, "PUT"])
async def test_no_change_makes_a_config_map_too_large(api: Api, media: str) -> None:
    (await api.post(api.cms, config_map("grows", {"a": "x" * (MIB // 2)}))).ok(201)
    change = config_map("grows", {"a": "x" * (MIB // 2), "b": "x" * (MIB // 2 + 1)})
    path = f"{api.cms}/grows"
    if media == "PUT":
        answer = await api.put(path, change)
    else:
        answer = await api.patch(
            path, change, media=media, fieldManager="test", **({"force": "1"} if media == APPLY else {})
        )
    answer.refused(422, "Invalid", "Too long")
    assert set((await api.get(path)).ok()["data"]) == {"a"}


async def test_values_of_a_secret_have_a_mebibyte_together(api: Api) -> None:
    def secret(name: str, size: int) -> dict[str, Any]:
        return {"metadata": {"name": name}, "data": {"a": base64.b64encode(b"x" * size).decode()}}

    secrets = f"/api/v1/namespaces/{api.ns}/secrets"
    (await api.post(secrets, secret("full", MIB))).ok(201)
    (await api.post(secrets, secret("over", MIB + 1))).refused(
        422, "Invalid", 'Secret "over" is invalid: data: Too long: may not be more than 1048576 bytes'
    )
    text = {"metadata": {"name": "text"}, "stringData": {"a": "x" * (MIB + 1)}}
    (await api.post(secrets, text)).refused(422, "Invalid", "data: Too long")


async def test_annotations_have_256_kibibytes_together(api: Api) -> None:
    fits = {"a": "x" * (256 * KIB - 6), "bcd": '"'}
    (await api.post(api.cms, config_map("full", annotations=fits))).ok(201)
    over = {**fits, "bcde": ""}
    (await api.post(api.cms, config_map("over", annotations=over))).refused(
        422, "Invalid", "metadata.annotations: Too long: may not be more than 262144 bytes"
    )
    (await api.patch(f"{api.cms}/full", {"metadata": {"annotations": over}})).refused(422, "Invalid", "Too long")


async def test_a_request_has_three_mebibytes(api: Api) -> None:
    answer = await api.post(api.cms, config_map("huge", {"a": "x" * (3 * MIB)}))
    answer.refused(413, "RequestEntityTooLarge", "limit is 3145728")


@pytest.mark.req("L4-7")
@pytest.mark.parametrize(
    ("ranges", "accepted"),
    [
        (["10.0.0.0/24", "2001:db8::/32"], True),
        (["10.0.0.5/24"], False),
        (["10.0.0.5"], False),
        (["::ffff:10.0.0.0/104"], False),
        ([" 10.0.0.0/24 "], True),
        (["010.0.0.0/24"], False),
        (["10.0.0.0/33"], False),
        (["10.0.0.0/024"], False),
        (["10.0.0.0/255.255.255.0"], False),
        ([""], False),
        (["2001:db8::/129"], False),
        (["fe80::1%eth0/64"], False),
    ],
)
async def test_source_ranges_are_checked_as_kubernetes_does(api: Api, ranges: list[str], accepted: bool) -> None:
    body = {
        "metadata": {"name": "web"},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80}], "loadBalancerSourceRanges": ranges},
    }
    answer = await api.post(api.svcs, body)
    if accepted:
        answer.ok(201)
    else:
        answer.refused(422, "Invalid", "spec.LoadBalancerSourceRanges[0]: Invalid value")
