"""A class with provider ``ingress``: another controller of the hub's cluster serves, and its answer comes home."""

from __future__ import annotations

import pytest
from hub_http_world import KEY, NAMESPACE, endpoints, load_balancer, read, route, says, secret

from fairlead.api.httploadbalancer import HTTP_LOAD_BALANCERS, LOAD_BALANCER_ROUTES
from fairlead.api.kubernetes import ENDPOINT_SLICES, INGRESSES, SECRETS, SERVICES
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.api.names import LABEL_SERVICE_NAME
from fairlead.cli.changes import plan_of
from fairlead.errors import Forbidden
from fairlead.hub.inspect.preview import preview
from fairlead.providers.controller.ingress import create
from fairlead.providers.controller.objects import made_for, service_name
from fairlead.translate.certificates import pair_digest
from fairlead_demo.worlds.certificates import self_signed

ADDRESS = "203.0.113.7"


@pytest.fixture
async def served(world):
    """A hub whose class ``nginx`` has the Ingresses of controller class ``public`` serve."""
    connections = []

    def provider():
        connections.append(world.connect("hub"))
        return create(connections[-1])

    world.factories["ingress"] = provider
    hub = await world.start()
    await world.tenant()
    spec = {"provider": "ingress", "parameters": {"controllerClass": "public", "annotation.example.com/tier": "edge"}}
    await world.user.apply(LOAD_BALANCER_CLASSES, {"metadata": {"name": "nginx"}, "spec": spec}, manager="kubectl")
    yield hub
    for each in list(world.hubs):
        await world.stop(each)
    for each in connections:
        await each.aclose()


async def made(world, resource):
    return [each for each in await world.user.list(resource, NAMESPACE) if made_for(each) == KEY]


async def controller_answers(world, address=ADDRESS):
    """Do what an Ingress controller does: write the address that it serves an Ingress at."""
    ingresses = await world.until(lambda: made(world, INGRESSES), what="an Ingress")
    for each in ingresses:
        status = {"status": {"loadBalancer": {"ingress": [{"ip": address}]}}}
        await world.user.merge_patch(INGRESSES, *each.key, status, subresource="status")


async def addresses(world):
    slices = await made(world, ENDPOINT_SLICES)
    return {address for each in slices for endpoint in each.endpoints or () for address in endpoint.addresses or ()}


@pytest.mark.req("K-44", "K-45", "K-46", "K-62", "E-30", "K-52")
async def test_an_ingress_of_the_controllers_class_serves_and_its_address_comes_home(world, served):
    await load_balancer(world, className="nginx")
    await route(world)
    await endpoints(world, "10.1.0.1", "10.1.0.2")
    waiting = await says(world, "Programmed", "False")
    await controller_answers(world)
    await says(world, "Programmed", "True")
    assert "public" in waiting.message or waiting.reason == "Pending"
    assert [each.ip for each in (await read(world)).status.load_balancer.ingress] == [ADDRESS]
    (ingress,) = await made(world, INGRESSES)
    assert ingress.spec.ingress_class_name == "public"
    assert ingress.annotation("example.com/tier") == "edge"
    path = ingress.spec.rules[0].http.paths[0]
    assert (ingress.spec.rules[0].host, path.path, path.path_type) == ("shop.example.com", "/", "Prefix")
    (service,) = await made(world, SERVICES)
    assert path.backend.service.name == service.metadata.name == service_name(KEY, "shop/web:80")
    assert service.spec.type == "ClusterIP"
    slices = await made(world, ENDPOINT_SLICES)
    assert {each.label(LABEL_SERVICE_NAME) for each in slices} == {service.metadata.name}
    assert await addresses(world) == {"10.1.0.1", "10.1.0.2"}


@pytest.mark.req("K-43", "W-13", "W-18")
async def test_changes_follow_and_nothing_is_left(world, served):
    await load_balancer(world, className="nginx")
    await route(world)
    await route(world, "shop.api", path="/api", service="shop/api")
    await endpoints(world, "10.1.0.1")
    await endpoints(world, "10.1.0.5", service="shop/api")
    await world.until(lambda: addresses(world), what="targets")
    await endpoints(world, "10.1.0.1", "10.1.0.9")

    async def has(wanted):
        return await addresses(world) == wanted

    await world.until(lambda: has({"10.1.0.1", "10.1.0.9", "10.1.0.5"}))
    await world.user.delete(LOAD_BALANCER_ROUTES, NAMESPACE, "shop.api")
    await world.until(lambda: has({"10.1.0.1", "10.1.0.9"}))

    async def only_web():
        return {each.metadata.name for each in await made(world, SERVICES)} == {service_name(KEY, "shop/web:80")}

    await world.until(only_web, what="the Service of the backend that is gone goes")
    await world.user.delete(HTTP_LOAD_BALANCERS, NAMESPACE, "shop.gw")

    async def nothing():
        return not [*await made(world, INGRESSES), *await made(world, SERVICES), *await made(world, ENDPOINT_SLICES)]

    await world.until(nothing, what="all that was made goes")


@pytest.mark.req("K-44", "W-11")
async def test_what_an_ingress_cannot_say_is_named_and_the_rest_is_served(world, served):
    await load_balancer(world, className="nginx", more=[{"name": "mail", "port": 25, "protocol": "TCP"}])
    await route(world)
    await endpoints(world, "10.1.0.1")
    await controller_answers(world)
    await says(world, "Programmed", "True")

    async def refused():
        return [(each.kind, each.name) for each in (await read(world)).status.refused]

    assert await refused() == [("listener", "mail")]


@pytest.mark.req("K-44")
async def test_the_next_hub_takes_over_and_writes_nothing(world, served):
    await load_balancer(world, className="nginx")
    await route(world)
    await endpoints(world, "10.1.0.1")
    await controller_answers(world)
    await says(world, "Programmed", "True")
    await world.stop(served)
    before = {each.key: each.metadata.resource_version for each in await made(world, INGRESSES)}
    slices = {each.key: each.metadata.resource_version for each in await made(world, ENDPOINT_SLICES)}
    await world.start(identity="hub-1")
    await world.quiet()
    await says(world, "Programmed", "True")
    assert {each.key: each.metadata.resource_version for each in await made(world, INGRESSES)} == before
    assert {each.key: each.metadata.resource_version for each in await made(world, ENDPOINT_SLICES)} == slices


@pytest.mark.req("K-45")
async def test_a_class_without_its_controllers_class_is_refused_in_words(world, served):
    body = {"metadata": {"name": "empty"}, "spec": {"provider": "ingress"}}
    await world.user.apply(LOAD_BALANCER_CLASSES, body, manager="kubectl")
    await load_balancer(world, className="empty")
    await route(world)

    async def named():
        conditions = (await read(world)).status.conditions or ()
        return any("parameters.controllerClass" in each.message for each in conditions)

    await world.until(named, what="the missing parameter is named")


async def test_nothing_is_planned_for_certificates_that_the_reader_cannot_read(world, served, monkeypatch):
    chain, key = self_signed("shop.example.com")
    await secret(world, chain, key)
    listener = {"name": "https", "port": 443, "protocol": "HTTPS", "certificates": ["cert"]}
    certificates = [{"name": "cert", "digest": pair_digest(chain, key)}]
    await load_balancer(world, className="nginx", more=[listener], certificates=certificates)
    await route(world)
    await endpoints(world, "10.1.0.1")
    await controller_answers(world)
    await says(world, "Programmed", "True")
    got = world.user.get

    async def get(resource, namespace, name):
        if resource is SECRETS:
            raise Forbidden("Cannot get secrets cert")
        return await got(resource, namespace, name)

    monkeypatch.setattr(world.user, "get", get)
    (previewed,) = await preview(world.user, KEY)
    plan = plan_of(previewed)
    assert (plan.rows, plan.unread) == ([], "certificate cert: Cannot get secrets cert")
