"""One bad route hurts no other: those that are known to be bad, and those that only Envoy finds out."""

from __future__ import annotations

import pytest

from fairlead.model.http import Filters, HeaderModifier, HeaderValue, PathMatch, RequestMatch, Route, Rule
from tests.programmed import wait_programmed
from tests.xds.http_world import HttpWorld, config, get, prefix, route, to, with_config

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="session")]

#: Envoy refuses it for its size.
BIG = RequestMatch(path=PathMatch("RegularExpression", "/big/" + "([a-z]{200}|[0-9]{300}){2,3}" * 8))


def bad(name: str) -> Route:
    return route(name, Rule(matches=(BIG,)))


async def settled(http: HttpWorld, key: object) -> list[str]:
    """Wait until the proxy has taken what is left; returns the routes that are not in it."""
    status = await wait_programmed(http.provider, key, timeout_s=60)  # type: ignore[arg-type]
    return [part.name for part in status.refused]


@pytest.mark.req("G-54", "K-41")
@pytest.mark.usefixtures("unchecked_expressions")
async def test_a_route_that_only_envoy_refuses_is_left_out_and_reported(http: HttpWorld) -> None:
    backend = await http.echo("one")
    good = [route(f"good-{number}", to("one", matches=(prefix(f"/{number}"),))) for number in range(20)]
    spec = http.spec(config(*good[:10], bad("bad-first"), *good[10:], bad("bad-second")))
    await http.provider.ensure(spec)
    from fairlead.model.change import Action
    from fairlead.model.keys import backend_key

    await http.world.change(spec, Action.REGISTER, backend.target, listener=backend_key("one"), wait=False)
    assert await settled(http, spec.key) == ["bad-first", "bad-second"]
    assert {(await get(spec, f"/{number}")).status for number in range(20)} == {200}
    changed = with_config(spec, config(*good, route("more", to("one", matches=(prefix("/more"),))), bad("bad-second")))
    await http.provider.ensure(changed)
    assert await settled(http, spec.key) == ["bad-second"]
    assert (await get(spec, "/more")).status == 200
    healed = with_config(spec, config(*good, route("bad-second", to("one", matches=(prefix("/healed"),)))))
    await http.provider.ensure(healed)
    assert await settled(http, spec.key) == []
    assert (await get(spec, "/healed")).status == 200


@pytest.mark.req("K-41")
async def test_what_envoy_would_refuse_is_known_before(http: HttpWorld) -> None:
    backend = await http.echo("one")
    wrong = (
        RequestMatch(path=PathMatch("RegularExpression", "/(")),
        RequestMatch(path=PathMatch("RegularExpression", "(a)\\1")),
    )
    host = Filters(request_headers=HeaderModifier(set=(HeaderValue("Host", "x"),)))
    routes = [route(f"bad-{number}", Rule(matches=(match,))) for number, match in enumerate(wrong)]
    nacks = sum(http.provider.counters.nacks.values())
    spec = await http.start(config(*routes, route("host", to("one", filters=host)), route("good", to("one"))), backend)
    assert (await get(spec)).status == 200
    assert await settled(http, spec.key) == ["bad-0", "bad-1", "host"]
    assert sum(http.provider.counters.nacks.values()) == nacks


@pytest.mark.usefixtures("unchecked_expressions")
async def test_a_load_balancer_of_which_every_route_is_refused_is_not_said_to_serve(http: HttpWorld) -> None:
    backend = await http.echo("one")
    wrong = RequestMatch(path=PathMatch("RegularExpression", "/("))
    spec = await http.start(config(route("known", to("one", matches=(wrong,))), bad("unknown")), backend)
    assert await settled(http, spec.key) == ["known", "unknown"]
    status = await http.provider.observe(spec.key)
    assert status is not None
    assert status.health is not None
    assert (status.health.serving, status.health.reason) == (False, "RoutesRefused")
    assert (await get(spec, "/known")).status == 404
