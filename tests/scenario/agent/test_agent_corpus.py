"""Manifests in the shape of widely used charts: what the agent, the hub and ``fairlead convert`` make of each.

A file of ``tests/corpus`` says in its first lines what ``convert`` reports as lost, and which Ingresses are not served.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from agent_l7_objects import gateway_class, ingress_class
from agent_world import USER, World, until

from fairlead.api.gateway import HTTP_ROUTES, HTTPMatch
from fairlead.api.httploadbalancer import HTTP_LOAD_BALANCERS, LOAD_BALANCER_ROUTES
from fairlead.api.kubernetes import INGRESSES, SERVICES, IngressObject
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.api.meta import ObjectKey
from fairlead.api.names import ANNOTATION_IGNORED_ANNOTATIONS, DEFAULT_CLASS
from fairlead.cli.convert import read_files
from fairlead.cli.hub_reader import snapshot_of
from fairlead.cli.route import HeldHTTP, answers, parse_request
from fairlead.convert.annotations import WITHOUT_EFFECT, by_name, of_other_controllers
from fairlead.convert.ingresses import body_of, convert_ingresses
from fairlead.kube.discovery import install_crds
from fairlead.model.keys import LoadBalancerKey
from podless.offline import gateway_definitions

CORPUS = Path(__file__).parents[2] / "corpus"
FILES = sorted(each.stem for each in CORPUS.glob("*.yaml"))
HUB_NAMESPACE = "tenant-east"


def stated(name: str, what: str) -> set[str]:
    """Return what a file says of itself."""
    (line,) = re.findall(rf"^# {what}:(.*)$", (CORPUS / f"{name}.yaml").read_text(), re.MULTILINE)
    return {each.strip() for each in line.split(",") if each.strip()}


def ingresses_of(name: str) -> list[IngressObject]:
    return read_files([str(CORPUS / f"{name}.yaml")], "default").ingresses


async def class_of_hub(world: World) -> None:
    body = {"metadata": {"name": DEFAULT_CLASS}, "spec": {"provider": "envoy"}}
    await world.hub.apply(LOAD_BALANCER_CLASSES, body, manager=USER)


async def is_taken(world: World, url: str) -> bool:
    """Return whether a rule takes a request, as the hub would translate what is published now."""
    snapshot = await snapshot_of(world.hub)
    translated = {each.key: each.translation for each in snapshot.load_balancers}
    held = [
        HeldHTTP(each, translated[LoadBalancerKey(HTTP_LOAD_BALANCERS.kind, *each.key)].desired)
        for each in await world.hub.list(HTTP_LOAD_BALANCERS)
    ]
    return any(answer.rule >= 0 for answer in answers(held, parse_request("GET", url)))


@pytest.mark.req("L7-5", "L7-12", "EDGE-12")
@pytest.mark.parametrize("name", FILES)
async def test_the_agent_serves_each_ingress_or_says_why_not(world: World, name: str) -> None:
    await ingress_class(world)
    await class_of_hub(world)
    for body in yaml.safe_load_all((CORPUS / f"{name}.yaml").read_text()):
        if body["kind"] == "Ingress":
            body["spec"]["ingressClassName"] = "fairlead"
        await world.member.apply(INGRESSES if body["kind"] == "Ingress" else SERVICES, body, manager=USER)
    agent = await world.start()
    await world.settled(agent)
    routes = await world.hub.list(LOAD_BALANCER_ROUTES, HUB_NAMESPACE)
    served = {each.spec.origin.name for each in routes}
    ingresses = ingresses_of(name)
    assert {each.metadata.name for each in ingresses} - served == stated(name, "not served")
    for ingress in ingresses:
        events = await world.events(ingress.metadata.name)
        refused = any(ANNOTATION_IGNORED_ANNOTATIONS in message for _, _, message in events)
        assert refused == (ingress.metadata.name in stated(name, "not served"))
        noticed = any(reason == "AnnotationsIgnored" for _, reason, _ in events)
        annotations = ingress.metadata.annotations
        assert noticed == bool(set(by_name(annotations)) - WITHOUT_EFFECT or of_other_controllers(annotations))
    for route in routes:
        assert all(share.backend for rule in route.spec.rules for share in rule.backends)
        for hostname in {each for attachment in route.spec.attachments for each in attachment.hostnames}:
            rule = route.spec.rules[0]
            asked = rule.matches[0].path.value if rule.matches else "/"
            assert await is_taken(world, f"http://{hostname.replace('*', 'any')}{asked}"), (hostname, asked)


@pytest.mark.req("L7-4", "L7-5", "L7-6", "L7-7", "L7-10")
@pytest.mark.parametrize("name", FILES)
async def test_converted_objects_are_accepted_and_served(world: World, name: str) -> None:
    given = read_files([str(CORPUS / f"{name}.yaml")], "default")
    gateway = ObjectKey("shop", "ingress")
    conversion = convert_ingresses(given.ingresses, given.services, gateway=gateway, class_name="fairlead")
    lost = stated(name, "lost")
    if lost and stated(name, "not served"):
        # What the agent does not serve without a protection is not converted to an open route either.
        lost.add("paths")
    assert {remark.what.partition(" ")[0] for remark in conversion.remarks if remark.lost} == lost
    assert await install_crds(world.member, gateway_definitions(), "test") == []
    await class_of_hub(world)
    await gateway_class(world)
    for service in given.services:
        await world.member.apply(SERVICES, msgspec.to_builtins(service), manager=USER)
    for resource, obj in conversion.objects:
        await world.member.apply(resource, body_of(resource, obj), manager=USER)
    await world.start()
    plain = [
        each for resource, each in conversion.objects if resource is HTTP_ROUTES
        and any(parent.section_name == "http" for parent in each.spec.parent_refs or ())  # type: ignore[attr-defined]
    ]  # fmt: skip

    async def accepted() -> bool:
        shown = [await world.member.get(HTTP_ROUTES, *each.key) for each in plain]
        conditions: list[Any] = [
            condition for each in shown for parent in each.status.parents or () for condition in parent.conditions or ()
            if parent.parent_ref.section_name == "http" and condition.type == "Accepted"
        ]  # fmt: skip
        return len(conditions) >= len(plain) and all(each.status == "True" for each in conditions)

    await until(accepted, what="every route for plain requests is accepted")
    for route in plain:
        for hostname in route.spec.hostnames or ():  # type: ignore[attr-defined]
            match = (route.spec.rules[0].matches or [HTTPMatch()])[0]  # type: ignore[attr-defined]
            if match.path is None or match.path.type != "RegularExpression":
                asked = (match.path.value if match.path is not None else "") or "/"
                url = f"http://{hostname.replace('*', 'any')}{asked}"
                assert await is_taken(world, url), url
