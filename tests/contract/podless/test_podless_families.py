"""The families and cluster IPs of a Service, and what is refused, as of a real API server."""

from __future__ import annotations

from typing import Any

import pytest
from podless_client import Api, service

pytestmark = [pytest.mark.req("K-4"), pytest.mark.req("K-58")]

_NO_SELECTOR: dict[str, Any] = {"type": "ClusterIP", "clusterIP": "None", "selector": None}


def shown(spec: dict[str, Any]) -> tuple[str, list[str], list[str]]:
    """Return policy, families, and the families of the cluster IPs."""
    kinds = ["None" if ip == "None" else "IPv6" if ":" in ip else "IPv4" for ip in spec["clusterIPs"]]
    assert spec["clusterIP"] == spec["clusterIPs"][0]
    return spec["ipFamilyPolicy"], spec["ipFamilies"], kinds


async def made(api: Api, **spec: Any) -> tuple[str, list[str], list[str]]:
    return shown((await api.post(api.svcs, service("s", **spec))).ok(201)["spec"])


@pytest.mark.parametrize(
    ("asked", "policy", "families"),
    [
        ({}, "SingleStack", ["IPv4"]),
        ({"ipFamilies": ["IPv6"]}, "SingleStack", ["IPv6"]),
        ({"ipFamilyPolicy": "SingleStack"}, "SingleStack", ["IPv4"]),
        ({"ipFamilyPolicy": "PreferDualStack"}, "PreferDualStack", ["IPv4", "IPv6"]),
        ({"ipFamilyPolicy": "PreferDualStack", "ipFamilies": ["IPv6"]}, "PreferDualStack", ["IPv6", "IPv4"]),
        ({"ipFamilyPolicy": "RequireDualStack"}, "RequireDualStack", ["IPv4", "IPv6"]),
        ({"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv6", "IPv4"]}, "RequireDualStack", ["IPv6", "IPv4"]),
    ],
)
async def test_an_api_of_both_families_completes_what_is_asked(
    api: Api, asked: dict[str, Any], policy: str, families: list[str]
) -> None:
    assert await made(api, **asked) == (policy, families, families)


async def test_headless_services(api: Api) -> None:
    assert await made(api, **_NO_SELECTOR) == ("RequireDualStack", ["IPv4", "IPv6"], ["None"])
    chosen = (await api.post(api.svcs, service("t", type="ClusterIP", clusterIP="None"))).ok(201)["spec"]
    assert shown(chosen) == ("SingleStack", ["IPv4"], ["None"])


_BOTH = ["IPv4", "IPv6"]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (
            {"ipFamilies": _BOTH},
            "spec.ipFamilyPolicy: Invalid value: \"SingleStack\": must be 'RequireDualStack' or 'PreferDualStack' when "
            "multiple IP families are specified",
        ),
        ({"ipFamilyPolicy": "PreferDualStack", "ipFamilies": ["IPv4", "IPv4"]}, "spec.ipFamilies[1]: Duplicate value"),
        ({"ipFamilies": ["IPv5"]}, 'spec.ipFamilies[0]: Unsupported value: "IPv5"'),
        ({"ipFamilyPolicy": "Both"}, 'spec.ipFamilyPolicy: Unsupported value: "Both"'),
        (
            {"ipFamilies": ["IPv6"], "clusterIP": "10.0.9.9", "clusterIPs": ["10.0.9.9"]},
            'spec.clusterIPs[0]: Invalid value: "10.0.9.9": expected an IPv6 value as indicated by `ipFamilies[0]`',
        ),
    ],
)
async def test_what_contradicts_itself_is_refused(api: Api, asked: dict[str, Any], message: str) -> None:
    (await api.post(api.svcs, service("bad", **asked))).refused(422, "Invalid", message)


async def test_a_second_family_comes_and_goes_by_the_policy(api: Api) -> None:
    first = (await api.post(api.svcs, service("s"))).ok(201)["spec"]
    both = (await api.patch(api.svcs + "/s", {"spec": {"ipFamilyPolicy": "PreferDualStack"}})).ok()["spec"]
    assert shown(both) == ("PreferDualStack", _BOTH, _BOTH)
    assert both["clusterIP"] == first["clusterIP"]
    again = (await api.put(api.svcs + "/s", service("s", ipFamilyPolicy="PreferDualStack"))).ok()["spec"]
    assert again["clusterIPs"] == both["clusterIPs"], "what is not said stays"
    refused = await api.patch(api.svcs + "/s", {"spec": {"ipFamilies": ["IPv4"]}})
    refused.refused(422, "Invalid", "must be 'SingleStack' to release the secondary IP family")
    single = (await api.patch(api.svcs + "/s", {"spec": {"ipFamilyPolicy": "SingleStack"}})).ok()["spec"]
    assert (shown(single), single["clusterIP"]) == (("SingleStack", ["IPv4"], ["IPv4"]), first["clusterIP"])
    # The address that it had is free again.
    held = {"clusterIP": both["clusterIPs"][1], "clusterIPs": both["clusterIPs"][1:], "ipFamilies": ["IPv6"]}
    assert shown((await api.post(api.svcs, service("t", **held))).ok(201)["spec"])[2] == ["IPv6"]


async def test_the_first_family_stays(api: Api) -> None:
    (await api.post(api.svcs, service("s"))).ok(201)
    refused = await api.patch(api.svcs + "/s", {"spec": {"ipFamilies": ["IPv6"]}})
    refused.refused(422, "Invalid", "expected an IPv6 value as indicated by `ipFamilies[0]`")


async def test_an_api_of_one_family_gives_what_it_has_and_refuses_the_rest(single_stack: Api) -> None:
    api = single_stack
    preferred = (await api.post(api.svcs, service("prefers", ipFamilyPolicy="PreferDualStack"))).ok(201)["spec"]
    assert shown(preferred) == ("PreferDualStack", ["IPv4"], ["IPv4"])
    for asked, message in (
        (
            {"ipFamilyPolicy": "RequireDualStack"},
            'spec.ipFamilyPolicy: Invalid value: "RequireDualStack": this cluster is not configured for dual-stack '
            "services",
        ),
        ({"ipFamilies": ["IPv6"]}, 'spec.ipFamilies[0]: Invalid value: "IPv6": not configured on this cluster'),
        (
            {"ipFamilyPolicy": "PreferDualStack", "ipFamilies": _BOTH},
            'spec.ipFamilies[1]: Invalid value: "IPv6": not configured on this cluster',
        ),
    ):
        (await api.post(api.svcs, service("bad", **asked))).refused(422, "Invalid", message)
    headless = (await api.post(api.svcs, service("h", **_NO_SELECTOR))).ok(201)["spec"]
    assert shown(headless) == ("RequireDualStack", _BOTH, ["None"])
