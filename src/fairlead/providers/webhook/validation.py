"""Hooks that are called once, without a retry: validation of an object, and the pods that stay.

In: what a user wrote. Out: nothing, or ``Terminal`` with the driver's message. A driver that cannot be reached is a
``Retry``: the caller decides what that means (a refusal, or its ``failurePolicy``).
Never: a call about something that did not change, and never a dry-run call to a driver that does not accept these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fairlead.errors import Retry, Terminal
from fairlead.model.desired import FrontendSpec
from fairlead.model.keys import LoadBalancerKey
from fairlead.providers.webhook.drivers import Drivers
from fairlead.providers.webhook.protocol import Body, Hook, kept_from_body, message_of, verdict_from_body
from fairlead.providers.webhook.settings import DriverSettings, lb_spec, settings_from_parameters
from fairlead.providers.webhook.state import DriverLoadBalancer
from fairlead.providers.webhook.tasks import checking_answer


class ValidationHooks:
    """The hooks that are not retried."""

    def __init__(self, *, drivers: Drivers, known: Mapping[LoadBalancerKey, DriverLoadBalancer], dry_run: bool) -> None:
        self._drivers = drivers
        self._known = known
        self._dry_run = dry_run

    async def validate(self, spec: FrontendSpec, *, old: FrontendSpec | None = None) -> None:
        """Raise ``Terminal`` when the driver refuses the load balancer, or its new attributes."""
        body: Body = {
            "lbSpec": lb_spec(spec.parameters),
            "operation": "Create" if old is None else "Update",
            "attributes": spec.attributes,
        }
        if old is not None:
            body["oldAttributes"] = old.attributes
        await self._require_consent(Hook.VALIDATE_LOAD_BALANCER, body, spec)

    async def validate_backends(
        self,
        spec: FrontendSpec,
        *,
        backend_type: str,
        parameters: Mapping[str, str],
        old_parameters: Mapping[str, str] | None = None,
    ) -> None:
        """Raise ``Terminal`` when the driver refuses backends with these parameters."""
        known = self._known.get(spec.key)
        body: Body = {
            "backendType": backend_type,
            "lbInfo": known.info if known else lb_spec(spec.parameters),
            "operation": "Create" if old_parameters is None else "Update",
            "parameters": parameters,
        }
        if old_parameters is not None:
            body["oldParameters"] = old_parameters
        await self._require_consent(Hook.VALIDATE_BACKEND, body, spec)

    async def judge_pods(
        self, parameters: Mapping[str, str], pods: Sequence[Mapping[str, object]]
    ) -> frozenset[tuple[str, str]]:
        """Return (namespace, name) of the pods that keep their place though they are not ready.

        Raises:
            Retry: it could not be called, or said ``succ: false``; ``failurePolicy`` decides.
        """
        settings = settings_from_parameters(parameters)
        if not pods:
            return frozenset()
        if self._skips(settings):
            raise Retry(f"dry run: {settings.name} does not accept dry-run calls", reason="DryRun")
        hook, about = Hook.JUDGE_POD_DEREGISTER, f"{len(pods)} pods that are not ready"
        driver = self._drivers.get(settings)
        response = await driver.call(hook, {"dryRun": self._dry_run, "notReadyPods": list(pods)}, about=about)
        with checking_answer(driver, hook, about):
            if refusal := verdict_from_body(response):
                raise Retry(f"{settings.name} could not validate {about}: {refusal}", reason="DriverFail")
            return kept_from_body(response)

    async def healthy(self, parameters: Mapping[str, str]) -> None:
        """Return when the driver says that it is healthy; ``Retry`` says what is wrong."""
        settings = settings_from_parameters(parameters)
        response = await self._drivers.get(settings).call(Hook.HEALTHZ, {}, about="itself")
        if response.get("healthy") is not True:
            message = message_of(response)
            raise Retry(
                f"{settings.name} says that it is not healthy{': ' + message if message else ''}; its own log says why",
                reason="DriverUnhealthy",
            )

    async def _require_consent(self, hook: Hook, body: Body, spec: FrontendSpec) -> None:
        settings = settings_from_parameters(spec.parameters)
        if self._skips(settings):
            return
        about, driver = str(spec.key), self._drivers.get(settings)
        response = await driver.call(hook, {"dryRun": self._dry_run, **body}, about=about)
        with checking_answer(driver, hook, about):
            refusal = verdict_from_body(response)
        if refusal:
            raise Terminal(f"{settings.name} refuses {about}: {refusal}", reason="RefusedByDriver")

    def _skips(self, settings: DriverSettings) -> bool:
        return self._dry_run and not settings.accept_dry_run
