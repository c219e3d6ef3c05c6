"""A right that the controller lacks is one sentence that names it; once it is given, everything goes on from there."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import structlog
import yaml
from capi_account import KINDS, MANIFEST, signed_in
from capi_world import NAMESPACE, World

from fairlead.api.kubernetes import SECRETS
from tests.scenario.any_api import EVENT, until


async def allow(world: World, *, without: tuple[str, frozenset[str]] = ("", frozenset())) -> None:
    """Give the role of the manifest, less some verbs of one resource."""
    resource, verbs = without
    for obj in yaml.safe_load_all(MANIFEST.read_text(encoding="utf-8")):
        if obj["kind"] != "ClusterRole":
            continue
        rules: list[dict[str, Any]] = []
        for rule in obj["rules"]:
            for each in rule["resources"]:
                left = [verb for verb in rule["verbs"] if each != resource or verb not in verbs]
                rules.append({**copy.deepcopy(rule), "resources": [each], "verbs": left or ["none"]})
        await world.user.apply(KINDS["ClusterRole"], {**obj, "rules": rules}, manager="operator")


def sentences(logs: list[Any]) -> list[str]:
    return [str(entry.get("sentence", "")) for entry in logs if entry["log_level"] in ("warning", "error")]


@pytest.mark.parametrize(
    ("resource", "verb"),
    [
        ("machines", "patch"),
        ("machines", "list"),
        ("clusters", "patch"),
        ("backendgroups", "patch"),
        ("loadbalancers", "patch"),
        ("loadbalancers/status", "patch"),
    ],
)
@pytest.mark.req("C-56")
async def test_a_missing_right_is_named_and_nothing_is_lost_by_it(world: World, resource: str, verb: str) -> None:
    world.capi_api = await signed_in(world)
    # A kind that may not be listed may not be watched either.
    await allow(world, without=(resource, frozenset({verb, "watch"} if verb == "list" else {verb})))
    with structlog.testing.capture_logs() as logs:
        await world.start()
        await world.cluster()
        await world.lb()
        await world.machine("m-1", "10.0.0.1")
        plural = resource.partition("/")[0]

        def named() -> list[str]:
            right = (verb, plural)
            return [each for each in sentences(logs) if "fairlead-capi" in each and all(part in each for part in right)]

        await until(named, what=f"a sentence that names {verb} {resource}: {sentences(logs)}")
        if resource in ("machines", "backendgroups", "loadbalancers"):
            # What comes before a registration is refused, so there is none.
            assert world.at_proxies() == {}
    if verb != "list" and "/" not in resource:
        await until(lambda: forbidden(world, f'["{resource}"], verbs: ["{verb}"]'), what="an Event about it")
    await allow(world)
    await world.until_states(m_1="active")
    await world.until_condition("EndpointPublished", "True")
    await world.until_served("10.0.0.1:6443")
    if verb != "list" and "/" not in resource:
        right = f'["{resource}"], verbs: ["{verb}"]'
        await until(lambda: forbidden(world, right, reason="Resolved"), what="an Event that it is over")


async def forbidden(world: World, what: str, *, reason: str = "Forbidden") -> bool:
    """Say whether a user sees at the LoadBalancer what is missing."""
    events = [each for each in await world.user.list(EVENT, NAMESPACE) if each.reason == reason]
    return any(what in each.message and each.involved_object.get("kind") == "LoadBalancer" for each in events)


@pytest.mark.req("C-56", "C-65")
async def test_members_are_served_without_the_right_to_read_secrets(world: World) -> None:
    world.capi_api = await signed_in(world)
    await allow(world, without=("secrets", frozenset({"get"})))
    body = {"metadata": {"name": "blue-ca", "namespace": NAMESPACE}, "data": {"tls.crt": "QQ=="}}
    await world.user.apply(SECRETS, body, manager="control-plane")
    with structlog.testing.capture_logs() as logs:
        await world.start()
        await world.cluster(controlPlaneRef={"kind": "AnyControlPlane", "name": "blue"})
        await world.lb()
        await world.machine("m-1", "10.0.0.1")
        await world.until_states(m_1="active")
        await until(lambda: any("secrets" in each for each in sentences(logs)), what="a sentence about Secrets")
    await allow(world)

    async def filled_in() -> bool:
        check = (await world.get_lb()).spec.health_check
        return check is not None and bool(check.ca_bundle)

    await until(filled_in, what="the authority is filled in")
