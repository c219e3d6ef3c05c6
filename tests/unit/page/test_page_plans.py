"""The plan on the page: what is held first, why, and with which command; nothing that may be a credential."""

from __future__ import annotations

import base64

import msgspec
import pytest

from fairlead.hub.inspect.preview import Previewed, planned
from fairlead.model.desired import DesiredLoadBalancer
from fairlead.model.http import Certificate, L7Config, Route, Rule
from fairlead.page.tables import MOST_ROWS, plan_item
from fairlead.sync.plan import LoadBalancerState, Plan, Registered
from fairlead.testing.builders import HTTP, desired, lb_key, target
from tests.fleet_objects import condition, load_balancer

KEY = lb_key()


def plan(wanted: DesiredLoadBalancer, done: DesiredLoadBalancer | None = None, *, paused: tuple[str, ...] = ()):
    recorded = {} if done is None else {at: {key: Registered(each) for key, each in targets.items()}
                                        for at, targets in done.targets.items()}  # fmt: skip
    side = LoadBalancerState(desired=wanted, recorded_spec=done.spec if done is not None else None, recorded=recorded)
    return planned(Previewed(key=KEY, provider="haproxy", paused=paused, plan=Plan(KEY)), side, now_s=0.0)


@pytest.mark.req("OP-10")
def test_no_change_gives_no_item() -> None:
    same = desired((target("1"),))
    assert plan_item(KEY, None, [plan(same, same)]) is None


@pytest.mark.req("OP-10")
def test_held_changes_are_listed_first_with_their_end() -> None:
    done = desired((target("1"), target("2")))
    item = plan_item(KEY, None, [plan(desired((target("3"),), paused=True), done, paused=("LoadBalancerClass/edge",)),
                                 plan(desired((target("1"), target("2"), target("3"))), done)])  # fmt: skip
    assert item is not None
    assert [(row.action, row.what, row.held_by) for row in item.rows] == [
        ("Register", f"{HTTP} 10.0.0.3:8080", "Paused"),
        ("Deregister", f"{HTTP} 10.0.0.1:8080", "Paused"),
        ("Deregister", f"{HTTP} 10.0.0.2:8080", "Paused"),
        ("Register", f"{HTTP} 10.0.0.3:8080", ""),
    ]
    assert (item.held, item.more, item.state, item.provider) == (3, 0, "NeedsAttention", "haproxy")
    assert item.rows[0].message.endswith("fairlead resume LoadBalancerClass/edge")
    assert item.title == f"{KEY.namespace}/{KEY.name}"
    assert item.command == f"fairlead plan tcplb/{KEY.name} -n {KEY.namespace}"


def test_pending_work_reports_the_problem_of_its_load_balancer() -> None:
    refused = load_balancer(condition("Programmed", "False", "Unreachable", "the driver does not answer"))
    item = plan_item(KEY, refused, [plan(desired((target("1"),)))])
    assert item is not None
    assert (item.title, item.state, item.held) == ("east/default/web", "Serving", 0)
    assert "the driver does not answer" in item.problems[0]


def test_parameters_of_targets_are_left_out_and_many_rows_are_counted() -> None:
    many = (target("1", port) for port in range(1, MOST_ROWS + 3))
    wanted = desired(msgspec.structs.replace(each, parameters=(("token", "secret"),)) for each in many)
    item = plan_item(KEY, None, [plan(wanted)])
    assert item is not None
    assert len(item.rows) == MOST_ROWS
    # The load balancer itself is a row too.
    assert item.more == 3
    assert "secret" not in repr(item)


@pytest.mark.req("OP-10")
def test_no_key_of_a_certificate_is_shown() -> None:
    certificate = Certificate("shop-tls", "sha256:abc", b"the chain", b"the private key")
    l7 = L7Config((), (Route("ingress.shop.web", "HTTP", (), (Rule(),)),), certificates={"shop-tls": certificate})
    wanted = desired()
    wanted = msgspec.structs.replace(wanted, spec=msgspec.structs.replace(wanted.spec, l7=l7))
    item = plan_item(KEY, None, [plan(wanted)])
    assert item is not None
    shown = {name: now for name, _, now in item.rows[0].fields}
    assert (shown["certificates.shop-tls"], shown["routes.ingress.shop.web"]) == ("sha256:abc", "rules: 1")
    secret = base64.b64encode(certificate.key).decode()
    assert secret not in repr(item)
    assert "private" not in repr(item)
