"""When a provider is asked about a load balancer and its groups, and what its answers make of the view."""

from __future__ import annotations

import msgspec
import pytest
from hub_parts import intent_context

from fairlead.api.loadbalancer import LoadBalancer
from fairlead.api.meta import JSONObject
from fairlead.errors import Retry, Terminal
from fairlead.hub.providers.runner import ProviderRunner
from fairlead.hub.validation import ProviderValidation, ValidationCache, as_recorded_verdicts
from fairlead.model.condition import ConditionReason
from fairlead.providers.memory import MemoryProvider
from fairlead.translate.loadbalancer import decide_loadbalancer, frontend_of
from fairlead.translate.view import GroupView
from tests.unit.translate.translate_builders import CAPABLE, KEY, class_, group, lb, pod, view

STATIC: JSONObject = {"static": ["10.0.0.1:80"]}


class Driver(MemoryProvider):
    """Answers validation with what the test has set; ``asked`` lists the requests."""

    def __init__(self):
        super().__init__()
        self.asked = []
        self.answer = None

    async def validate(self, spec, *, old=None):
        self.asked.append(("validate", spec, old))
        if self.answer is not None:
            raise self.answer

    async def validate_backends(self, spec, *, backend_type, parameters, old_parameters=None):
        self.asked.append(("validate_backends", backend_type, dict(parameters), old_parameters))
        if self.answer is not None:
            raise self.answer


class Bench:
    def __init__(self, driver):
        context = intent_context(pool=None, capabilities={"p": CAPABLE})
        self.driver = driver
        self.woken = []
        self.providers = context.providers
        self.providers.served["p"] = ProviderRunner(provider=driver, clock=context.clock, report=lambda _report: None)
        self.cache = ValidationCache(clock=context.clock, leading=lambda: True, wake=self.woken.extend)
        self.validation = ProviderValidation(inventory=context.inventory, providers=self.providers, cache=self.cache)

    async def answered(self):
        """Have every request answered."""
        while len(self.cache.queue):
            key = await self.cache.queue.get()
            await self.cache.ask(key)
            self.cache.queue.done(key)


@pytest.fixture
async def bench():
    return Bench(Driver())


def verdict_of(viewed):
    return None if viewed.verdict is None else (viewed.verdict.status, viewed.verdict.reason)


async def test_a_new_load_balancer_is_pending_until_its_provider_has_answered(bench):
    first = bench.validation.validated(view())
    assert (first.pending, first.verdict.reason) == (True, ConditionReason.PENDING)
    await bench.answered()
    assert bench.woken == [KEY]
    second = bench.validation.validated(view())
    assert (second.pending, second.verdict) == (False, None)
    ((method, spec, old),) = bench.driver.asked
    assert (method, spec.key, old) == ("validate", KEY, None)


async def test_how_backends_are_checked_is_not_the_providers_to_judge(bench):
    checked = class_(healthCheck={"interval": "1s"})
    assert frontend_of(view(load_balancer_class=checked)).health_check is not None
    bench.validation.validated(view(load_balancer_class=checked))
    await bench.answered()
    other = class_(healthCheck={"interval": "9s"})
    assert not bench.validation.validated(view(load_balancer_class=other)).pending


@pytest.mark.parametrize(
    ("error", "reason", "message"),
    [
        (Terminal("no more listeners"), ConditionReason.REFUSED_BY_PROVIDER, "no more listeners"),
        (
            Retry("connection refused"),
            ConditionReason.PROVIDER_FAILED,
            "not accepted yet, the provider cannot be asked: connection refused",
        ),
    ],
)
async def test_a_refusal_and_a_failure_are_distinguished(bench, error, reason, message):
    bench.driver.answer = error
    bench.validation.validated(view())
    await bench.answered()
    answered = bench.validation.validated(view())
    assert (answered.verdict.status, answered.verdict.reason, answered.verdict.message) == (False, reason, message)


async def test_accepted_objects_are_not_validated_again(bench):
    same = bench.validation.validated(view(living=True, accepted=frontend_of(view())))
    assert (same.verdict, same.pending) == (None, False)
    assert len(bench.cache.queue) == 0


async def test_a_change_of_what_was_accepted_is_asked_about_with_the_old_spec(bench):
    before = frontend_of(view())
    changed = view(lb(listeners=[{"port": 81}]), living=True, accepted=before)
    assert bench.validation.validated(changed).pending
    await bench.answered()
    ((_, spec, old),) = bench.driver.asked
    assert ([listener.port for listener in spec.listeners], old) == ([81], before)


@pytest.mark.parametrize(
    ("parameters", "of_class", "asked"),
    [({}, {"socket": "/run/b"}, False), ({}, {"timeout.connect": "9s"}, False), ({"size": "large"}, {}, True)],
)
async def test_what_the_class_sets_is_not_part_of_what_a_user_is_to_have_accepted(bench, parameters, of_class, asked):
    accepted = frontend_of(view(load_balancer_class=class_({"socket": "/run/a"})))
    changed = view(lb(parameters=parameters), class_(of_class), living=True, accepted=accepted)
    assert bench.validation.validated(changed).pending is asked


async def test_a_load_balancer_that_is_refused_anyway_is_not_asked_about(bench):
    refused = view(conflict="shop/older", groups=[GroupView(group(**STATIC))])
    other = decide_loadbalancer(refused, validated=bench.validation.validated).view
    assert (other.verdict, other.pending) == (None, False)
    assert len(bench.cache.queue) == 0


async def test_a_provider_without_validation_accepts_everything():
    bench = Bench(MemoryProvider())
    plain = bench.validation.validated(view(groups=[GroupView(group(**STATIC))]))
    assert (plain.verdict, plain.groups[0].verdict, plain.pending) == (None, None, False)


@pytest.mark.parametrize(
    ("spec", "kind"),
    [
        (STATIC, "Static"),
        ({"pods": {"ports": [{"port": 80}], "byName": ["a"]}}, "Pod"),
        ({"service": {"name": "web", "port": {"port": 80}}}, "Service"),
    ],
)
async def test_a_group_is_asked_about_once_its_load_balancer_is_accepted(bench, spec, kind):
    of_group = GroupView(group(parameters={"weight": "2"}, **spec))
    bench.validation.validated(view())
    await bench.answered()
    bench.driver.asked.clear()
    waiting = bench.validation.validated(view(groups=[of_group]))
    assert (waiting.verdict, waiting.pending, waiting.groups[0].verdict.reason) == (None, True, ConditionReason.PENDING)
    await bench.answered()
    assert bench.driver.asked == [("validate_backends", kind, {"weight": "2"}, None)]
    assert bench.validation.validated(view(groups=[of_group])).groups[0].verdict is None


async def test_a_group_waits_for_the_verdict_on_a_new_load_balancer(bench):
    bench.validation.validated(view(groups=[GroupView(group(**STATIC))]))
    await bench.answered()
    assert [method for method, *_ in bench.driver.asked] == ["validate"]


async def test_a_group_of_a_served_load_balancer_is_always_validated(bench):
    bench.driver.answer = Terminal("no")
    living = view(
        lb(listeners=[{"port": 81}]), groups=[GroupView(group(**STATIC))], living=True, accepted=frontend_of(view())
    )
    bench.validation.validated(living)
    await bench.answered()
    assert sorted(method for method, *_ in bench.driver.asked) == ["validate", "validate_backends"]
    refused = bench.validation.validated(living).groups[0]
    assert verdict_of(refused) == (False, ConditionReason.REFUSED_BY_PROVIDER)


@pytest.mark.parametrize(
    "of_group",
    [
        GroupView(group(**STATIC), out_of_scope=True),
        GroupView(group(parameters={"weight": "heavy"}, **STATIC)),
        GroupView(group(parameters={"weight": "2"}, **STATIC), accepted={"weight": "2"}),
    ],
    ids=["out of scope", "invalid", "accepted with these parameters"],
)
async def test_a_group_that_needs_no_answer_is_not_asked_about(bench, of_group):
    bench.validation.validated(view())
    await bench.answered()
    bench.driver.asked.clear()
    assert not bench.validation.validated(view(groups=[of_group])).pending
    await bench.answered()
    assert bench.driver.asked == []


async def test_changed_parameters_of_a_group_are_asked_about_with_the_old_ones(bench):
    bench.validation.validated(view())
    await bench.answered()
    changed = GroupView(group(parameters={"weight": "3"}, **STATIC), accepted={"weight": "2"})
    assert bench.validation.validated(view(groups=[changed])).pending
    await bench.answered()
    assert bench.driver.asked[-1] == ("validate_backends", "Static", {"weight": "3"}, {"weight": "2"})


async def test_only_the_policy_webhook_asks_which_pods_stay(bench):
    pods = (pod("web-1", "10.0.0.1", ready=False),)
    selects: JSONObject = {"pods": {"ports": [{"port": 80}], "byName": ["web-1"]}}
    kept = frozenset({("shop", "web-1")})
    webhook = {"deregisterPolicy": "Webhook", "deregisterWebhook": {"className": "edge"}}
    plain = GroupView(group(**selects), pods=pods, kept=kept, out_of_scope=True)
    asked = GroupView(group("hooked", **selects, **webhook), pods=pods, kept=kept, out_of_scope=True)
    first, second = bench.validation.validated(view(groups=[plain, asked])).groups
    assert (first.kept, first.retention_error) == (kept, "")
    assert "there is no LoadBalancerClass 'edge'" in second.retention_error


async def test_deleted_objects_are_no_longer_read(bench):
    bench.validation.validated(view())
    bench.validation.forget(KEY)
    await bench.answered()
    assert bench.driver.asked == []


def with_condition(obj, *, generation, status="False", reason="RefusedByProvider", type_="Accepted"):
    condition = {
        "type": type_,
        "status": status,
        "reason": reason,
        "message": "no",
        "observedGeneration": generation,
        "lastTransitionTime": "2030-01-01T00:00:00Z",
    }
    changed = msgspec.to_builtins(obj) | {"status": {"conditions": [condition]}}
    return msgspec.convert(changed, type=type(obj))


@pytest.mark.parametrize(
    ("condition", "reason"),
    [
        ({"generation": 2}, ConditionReason.REFUSED_BY_PROVIDER),
        ({"generation": 2, "reason": "ProviderFailed"}, ConditionReason.PROVIDER_FAILED),
        ({"generation": 1}, None),
        ({"generation": 2, "status": "True"}, None),
        ({"generation": 2, "reason": "Pending"}, None),
        ({"generation": 2, "type_": "Programmed"}, None),
    ],
)
def test_recorded_verdicts_are_read_from_the_conditions_of_this_generation(condition, reason):
    recorded = as_recorded_verdicts(view(with_condition(lb(), **condition)))
    assert isinstance(recorded.load_balancer, LoadBalancer)
    assert (recorded.verdict.reason if recorded.verdict else None) == reason


def test_the_recorded_verdict_counts_until_parameters_are_accepted():
    refused = with_condition(group(parameters={"weight": "2"}, **STATIC), generation=0)
    (new,) = as_recorded_verdicts(view(groups=[GroupView(refused)])).groups
    assert verdict_of(new) == (False, ConditionReason.REFUSED_BY_PROVIDER)
    (served,) = as_recorded_verdicts(view(groups=[GroupView(refused, accepted={"weight": "2"})])).groups
    assert served.verdict is None
