"""An HTTPLoadBalancer with routes: address, backends, certificates, and what happens when item of them is bad."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hub_http_world import KEY, NAMESPACE, at_cloud, condition, endpoints, load_balancer, read, route, says, secret

from fairlead.api.httploadbalancer import HTTP_LOAD_BALANCERS, LOAD_BALANCER_ROUTES
from fairlead.api.kubernetes import SECRETS
from fairlead.api.names import LABEL_ORIGIN_NAMESPACE, LABEL_SUBTENANT
from fairlead.api.tenant import TENANTS
from fairlead.api.times import wire_time
from fairlead.cli.changes import plan_of
from fairlead.cli.explain import explained
from fairlead.errors import Forbidden, Unreachable
from fairlead.hub.inspect.preview import preview
from fairlead.model.keys import backend_key
from fairlead.translate.certificates import pair_digest
from fairlead_demo.worlds.certificates import self_signed


@pytest.mark.req("K-41", "K-42")
async def test_listeners_routes_and_backends_become_one_load_balancer(world, hub):
    await load_balancer(world)
    await route(world)
    await endpoints(world, "10.1.0.1", "10.1.0.2")
    await says(world, "Programmed", "True")

    async def counted():
        obj = await read(world)
        return obj if (obj.status.routes, obj.status.targets) == (1, "2/2") else None

    obj = await world.until(counted, what="the status counts the route and the targets")
    assert obj.status.address in world.cloud.load_balancers[KEY].spec.address
    assert [(item.port, item.protocol) for item in obj.status.load_balancer.ingress[0].ports] == [(80, "TCP")]
    assert at_cloud(world) == {"shop/web:80 10.1.0.1:8080", "shop/web:80 10.1.0.2:8080"}
    config = world.cloud.load_balancers[KEY].spec.l7
    assert [item.name for item in config.routes] == ["shop.web"]
    assert config.routes[0].attachments[0].hostnames == ("shop.example.com",)


@pytest.mark.req("K-42", "E-24")
async def test_a_changed_route_and_a_changed_endpoint_follow(world, hub):
    await load_balancer(world)
    await route(world)
    await endpoints(world, "10.1.0.1")
    await says(world, "Programmed", "True")
    await route(world, path="/cart")
    await world.until(
        lambda: world.cloud.load_balancers[KEY].spec.l7.routes[0].rules[0].matches[0].path.value == "/cart"
    )
    await endpoints(world, "10.1.0.1", "10.1.0.9")
    await world.until(lambda: "shop/web:80 10.1.0.9:8080" in at_cloud(world))
    await route(world, "shop.api", service="shop/api")
    await endpoints(world, "10.1.0.5", service="shop/api")
    await world.until(lambda: "shop/api:80 10.1.0.5:8080" in at_cloud(world))
    await world.user.delete(LOAD_BALANCER_ROUTES, NAMESPACE, "shop.api")
    await world.until(lambda: len(world.cloud.load_balancers[KEY].spec.l7.routes) == 1)
    await world.until(lambda: "shop/api:80 10.1.0.5:8080" not in at_cloud(world))


@pytest.mark.req("G-43")
async def test_a_certificate_is_read_once_for_each_version_and_the_last_good_one_stays(world, hub):
    chain, key = self_signed("shop.example.com")
    listener = {"name": "https", "port": 443, "protocol": "HTTPS", "certificates": ["cert"]}
    certificates = [{"name": "cert", "digest": pair_digest(chain, key)}]
    await load_balancer(world, more=[listener], certificates=certificates)
    refused = await says(world, "ResolvedRefs", "False")
    assert "cert" in refused.message
    await secret(world, chain, key)
    await world.until(lambda: KEY in world.cloud.load_balancers)
    await world.until(lambda: "cert" in world.cloud.load_balancers[KEY].spec.l7.certificates)
    assert world.cloud.load_balancers[KEY].spec.l7.certificates["cert"].key == key
    # Another version is named, and the Secret is broken: what was good is served on, and the condition names it.
    await secret(world, b"no certificate", key)
    await load_balancer(world, more=[listener], certificates=[{"name": "cert", "digest": "other"}])

    async def condition_found():
        item = await condition(world, "ResolvedRefs")
        return item is not None and "PEM" in item.message

    await world.until(condition_found)
    assert world.cloud.load_balancers[KEY].spec.l7.certificates["cert"].chain == chain
    everything = str((await read(world)).status) + str(world.cloud.load_balancers[KEY].spec)
    assert key.decode().splitlines()[1] not in everything


@pytest.mark.req("KI-10")
async def test_listeners_that_clash_are_refused_and_what_was_accepted_is_served_on(world, hub):
    await load_balancer(world)
    await route(world)
    await endpoints(world, "10.1.0.1")
    await says(world, "Programmed", "True")
    await load_balancer(world, more=[{"name": "raw", "port": 80, "protocol": "TCP"}])
    accepted = await says(world, "Accepted", "False")
    assert (accepted.reason, "80" in accepted.message) == ("PortConflict", True)
    assert at_cloud(world) == {"shop/web:80 10.1.0.1:8080"}
    await load_balancer(world)
    await says(world, "Accepted", "True")


@pytest.mark.req("K-41")
async def test_a_deleted_load_balancer_gives_back_everything(world, hub):
    await load_balancer(world)
    await route(world)
    await endpoints(world, "10.1.0.1")
    await says(world, "Programmed", "True")
    await world.user.delete(HTTP_LOAD_BALANCERS, NAMESPACE, "shop.gw")
    await world.until(lambda: KEY not in world.cloud.load_balancers)
    assert backend_key("shop/web:80") not in {listener for listener, _ in world.cloud.members(KEY)}


async def test_the_number_of_routes_follows_also_when_nothing_else_changes(world, hub):
    await load_balancer(world)
    await route(world)
    await endpoints(world, "10.1.0.1")
    await says(world, "Programmed", "True")

    async def routes_are(count):
        return (await read(world)).status.routes == count

    await world.until(lambda: routes_are(1))
    await route(world, "shop.other")
    await world.until(lambda: routes_are(2))
    await world.user.delete(LOAD_BALANCER_ROUTES, NAMESPACE, "shop.other")
    await world.until(lambda: routes_are(1))


async def test_a_route_whose_service_does_not_exist_is_not_called_well(world, hub):
    await load_balancer(world)
    await route(world)
    await endpoints(world, "10.1.0.1")
    await says(world, "ResolvedRefs", "True")
    spec: dict[str, Any] = {
        "loadBalancer": "shop.gw",
        "attachments": [{"listener": "http", "hostnames": ["miss.example.com"]}],
        "rules": [{"matches": [{"path": {"value": "/"}}], "backends": [{"backend": ""}]}],
        "origin": {"kind": "Ingress", "namespace": "shop", "name": "missing"},
    }
    body = {"metadata": {"name": "missing", "namespace": NAMESPACE}, "spec": spec}
    await world.user.apply(LOAD_BALANCER_ROUTES, body, manager="agent")
    refs = await says(world, "ResolvedRefs", "False")
    assert (refs.reason, "Ingress shop/missing" in refs.message) == ("BackendNotFound", True)
    assert "answered 500" in refs.message
    assert (await condition(world, "Programmed")).status == "True"
    spec["rules"][0]["backends"][0]["weight"] = 0
    await world.user.apply(LOAD_BALANCER_ROUTES, body, manager="agent")
    await says(world, "ResolvedRefs", "True")


@pytest.mark.req("X-1")
async def test_a_load_balancer_whose_routes_have_no_backend_is_ready(world, hub):
    """The Ingresses of a class may all be gone, and a Gateway may have no routes, or only redirects."""
    await load_balancer(world)
    await says(world, "Programmed", "True")
    await says(world, "Ready", "True")
    assert (await condition(world, "Serving")).reason == "NotChecked"


async def test_a_certificate_that_is_served_is_not_called_missing_by_explain(world, hub):
    chain, key = self_signed("shop.example.com")
    await secret(world, chain, key)
    listener = {"name": "https", "port": 443, "protocol": "HTTPS", "certificates": ["cert"]}
    await load_balancer(world, more=[listener], certificates=[{"name": "cert", "digest": pair_digest(chain, key)}])
    await route(world)
    await endpoints(world, "10.1.0.1")
    await says(world, "ResolvedRefs", "True")
    (previewed,) = await preview(world.user, KEY)
    rows = {row.type: row for row in explained(previewed, now=datetime.now(UTC), leading=True).conditions}
    assert (rows["ResolvedRefs"].status, rows["ResolvedRefs"].message) == ("True", "")


@pytest.mark.parametrize("error", [Forbidden("Cannot get secrets cert"), Unreachable("does not answer")])
async def test_a_certificate_that_the_reader_cannot_read_is_not_called_unresolved(world, hub, monkeypatch, error):
    chain, key = self_signed("shop.example.com")
    await secret(world, chain, key)
    listener = {"name": "https", "port": 443, "protocol": "HTTPS", "certificates": ["cert"]}
    await load_balancer(world, more=[listener], certificates=[{"name": "cert", "digest": pair_digest(chain, key)}])
    await route(world)
    await endpoints(world, "10.1.0.1")
    await says(world, "ResolvedRefs", "True")
    got = world.user.get

    async def get(resource, namespace, name):
        if resource is SECRETS:
            raise error
        return await got(resource, namespace, name)

    monkeypatch.setattr(world.user, "get", get)
    (previewed,) = await preview(world.user, KEY)
    row = explained(previewed, now=datetime.now(UTC), leading=True)
    assert {each.type: each.status for each in row.conditions}["ResolvedRefs"] == "True"
    assert f"certificate cert: {error.sentence}" in " ".join(row.notes)
    assert plan_of(previewed).rows == []


async def test_a_certificate_being_read_causes_no_warning(world, hub):
    chain, key = self_signed("shop.example.com")
    await load_balancer(world)
    await route(world)
    await endpoints(world, "10.1.0.1")
    await says(world, "ResolvedRefs", "True")
    await secret(world, chain, key)
    listener = {"name": "https", "port": 443, "protocol": "HTTPS", "certificates": ["cert"]}
    await load_balancer(world, more=[listener], certificates=[{"name": "cert", "digest": pair_digest(chain, key)}])
    await world.until(lambda: "cert" in world.cloud.load_balancers[KEY].spec.l7.certificates)
    await says(world, "ResolvedRefs", "True")
    assert [reason for kind, reason in await world.events("shop.gw", NAMESPACE) if kind == "Warning"] == []


@pytest.mark.req("F-22")
async def test_maintenance_is_shown_and_ends_by_itself(world, hub):
    await load_balancer(world)
    await route(world)
    await says(world, "Programmed", "True")
    until = wire_time(world.clock.now() + timedelta(seconds=600))

    async def annotate(text: str | None) -> None:
        patch = {"metadata": {"annotations": {"fairlead.dev/maintenance": text}}}
        await world.user.merge_patch(HTTP_LOAD_BALANCERS, *KEY[1:], patch, manager="kubectl")

    def hosts() -> list[str]:
        return [entry.host for entry in world.cloud.load_balancers[KEY].spec.l7.maintenance]

    async def shown() -> list[tuple[str, str]]:
        return [(entry.host, entry.until) for entry in (await read(world)).status.maintenance]

    await annotate(json.dumps([{"host": "shop.example.com", "until": until}]))
    await world.until(lambda: hosts() == ["shop.example.com"])

    async def is_shown() -> bool:
        return await shown() == [("shop.example.com", until)]

    await world.until(is_shown)
    # What cannot be read changes nothing, and is named.
    await annotate(json.dumps([{"host": "other.example.com"}]))

    async def named() -> bool:
        return any("until" in part.reason for part in (await read(world)).status.refused)

    await world.until(named)
    assert hosts() == ["shop.example.com"]
    await annotate(json.dumps([{"until": until}]))
    await world.until(lambda: hosts() == [""])
    await world.clock.advance(601)
    await world.until(lambda: hosts() == [])

    async def is_over() -> bool:
        return await shown() == []

    await world.until(is_over)


@pytest.mark.req("F-33")
async def test_routes_above_the_limit_of_a_sub_tenant_wait(world, hub):
    await world.tenant("east", subtenants=[{"name": "shop", "maxRoutes": 2}])
    await load_balancer(world)
    await endpoints(world, "10.1.0.1")

    async def counted() -> dict[str, tuple[int, int]] | None:
        used = (await world.user.get(TENANTS, "", "east")).status.used
        entries = used.subtenants if used is not None else None
        return None if entries is None else {entry.name: (entry.routes, entry.routes_served) for entry in entries}

    async def counts(**expected: tuple[int, int]) -> bool:
        return await counted() == expected

    async def refuses(*names: str) -> bool:
        refused = (await read(world)).status.refused
        over = [part.name for part in refused if "allows sub-tenant payments" in part.reason]
        return over == list(names)

    payments = {LABEL_ORIGIN_NAMESPACE: "cart", LABEL_SUBTENANT: "payments"}
    await world.until(lambda: counts(shop=(0, 0)), what="the limits are counted")
    for name in ("cart.a", "cart.b"):
        await route(world, name, path=f"/{name}", labels=payments)
    for name in ("shop.a", "shop.b", "shop.c"):
        await route(world, name, path=f"/{name}", labels={LABEL_ORIGIN_NAMESPACE: "shop"})
    await world.until(lambda: counts(payments=(2, 2), shop=(3, 2)), what="the third route of a new sub-tenant waits")
    await world.user.delete(LOAD_BALANCER_ROUTES, NAMESPACE, "shop.c")
    await world.user.delete(LOAD_BALANCER_ROUTES, NAMESPACE, "shop.b")
    await world.tenant("east", subtenants=[{"name": "*", "maxRoutes": 1}])
    await route(world, "cart.c", path="/cart.c", labels=payments)
    await world.until(lambda: refuses("cart.c"), what="the new route waits for the new limit, and served ones stay")
    await world.until(lambda: counts(payments=(3, 2), shop=(1, 1)), what="the status counts both")
    await world.tenant("east", subtenants=[{"name": "payments", "maxRoutes": 3}, {"name": "*", "maxRoutes": 1}])
    await world.until(refuses, what="the higher limit admits it")
    served = world.cloud.load_balancers[KEY].spec.l7.routes
    await world.until(lambda: len(world.cloud.load_balancers[KEY].spec.l7.routes) == 4, what=f"of {served}")
    await world.until(lambda: counts(payments=(3, 3), shop=(1, 1)))
    await world.stop(hub)
    await world.tenant("east", subtenants=[{"name": "*", "maxRoutes": 1}])
    await world.start()
    await world.quiet()
    assert await refuses(), "a hub that has just started keeps what is served"


@pytest.mark.req("F-31")
async def test_routes_above_the_limit_wait_and_served_ones_stay(world, hub):
    await world.tenant("east")
    await load_balancer(world)
    await endpoints(world, "10.1.0.1")
    for name in ("shop.a", "shop.b", "shop.c"):
        await route(world, name, path=f"/{name}")

    def served() -> list[str]:
        at_provider = world.cloud.load_balancers.get(KEY)
        return sorted(item.name for item in at_provider.spec.l7.routes) if at_provider is not None else []

    async def counts(routes: int, *refused: str) -> bool:
        status = (await read(world)).status
        parts = [part.name for part in status.refused if "QuotaExceeded: spec.maxRoutes" in part.reason]
        return (status.routes, parts) == (routes, list(refused))

    await world.until(lambda: counts(3), what="three routes are served")
    # A limit below what is served takes nothing away.
    await world.tenant("east", maxRoutes=2)
    await route(world, "shop.d", path="/d")
    await world.until(lambda: counts(3, "shop.d"), what="the new route is refused by name")
    assert served() == ["shop.a", "shop.b", "shop.c"]
    await world.tenant("east", maxRoutes=4)
    await world.until(lambda: counts(4), what="the higher limit admits it")
    await world.until(lambda: served() == ["shop.a", "shop.b", "shop.c", "shop.d"])
    await route(world, "shop.e", path="/e")
    await world.until(lambda: counts(4, "shop.e"), what="the fifth is refused")
    await world.user.delete(LOAD_BALANCER_ROUTES, NAMESPACE, "shop.a")
    await world.until(lambda: counts(4), what="it takes the place of a deleted one")
    await world.until(lambda: served() == ["shop.b", "shop.c", "shop.d", "shop.e"])
    await world.tenant("east", maxRoutes=2)
    await route(world, "shop.f", path="/f")
    await world.until(lambda: counts(4, "shop.f"), what="the new route waits")
    await world.user.delete(LOAD_BALANCER_ROUTES, NAMESPACE, "shop.b")
    await world.until(lambda: counts(3, "shop.f"), what="above the limit, a deleted route is not replaced")
    assert served() == ["shop.c", "shop.d", "shop.e"]
