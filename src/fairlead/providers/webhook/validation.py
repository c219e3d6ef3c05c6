"""What are drivers asked once, without a retry: may this be, and which pods stay?

In: what a user wrote. Out: nothing, or ``Terminal`` with the driver's own words. A driver that cannot be asked is a
``Retry``: the caller decides what that means (a refusal, or its ``failurePolicy``).
Never: a call about something that did not change, and never a call to a driver that did not agree to dry runs in one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fairlead.errors import Retry, Terminal
from fairlead.model.desired import FrontendSpec
from fairlead.model.keys import LoadBalancerKey
from fairlead.providers.webhook.client import invalid
from fairlead.providers.webhook.drivers import Drivers
from fairlead.providers.webhook.protocol import Body, Hook, Malformed, kept_from_body, message_of, verdict_from_body
from fairlead.providers.webhook.settings import DriverSettings, lb_spec, settings_from_parameters
from fairlead.providers.webhook.state import KnownLoadBalancer


class Asks:
    """The hooks that are not retried."""

    def __init__(self, *, drivers: Drivers, known: Mapping[LoadBalancerKey, KnownLoadBalancer], dry_run: bool) -> None:
        self._drivers = drivers
        self._known = known
        self._dry_run = dry_run

    async def validate(self, spec: FrontendSpec, *, old: FrontendSpec | None = None) -> None:
        """Raise ``Terminal`` when the driver refuses the load balancer, or its new attributes."""
        settings = settings_from_parameters(spec.parameters)
        body: Body = {
            "lbSpec": lb_spec(spec.parameters),
            "operation": "Create" if old is None else "Update",
            "attributes": spec.attributes,
        }
        if old is not None:
            body["oldAttributes"] = old.attributes
        await self._verdict(settings, Hook.VALIDATE_LOAD_BALANCER, body, str(spec.key))

    async def validate_backends(
        self,
        spec: FrontendSpec,
        *,
        backend_type: str,
        parameters: Mapping[str, str],
        old_parameters: Mapping[str, str] | None = None,
    ) -> None:
        """Raise ``Terminal`` when the driver refuses backends with these parameters."""
        settings = settings_from_parameters(spec.parameters)
        known = self._known.get(spec.key)
        body: Body = {
            "backendType": backend_type,
            "lbInfo": known.info if known else lb_spec(spec.parameters),
            "operation": "Create" if old_parameters is None else "Update",
            "parameters": parameters,
        }
        if old_parameters is not None:
            body["oldParameters"] = old_parameters
        await self._verdict(settings, Hook.VALIDATE_BACKEND, body, str(spec.key))

    async def judge_pods(
        self, parameters: Mapping[str, str], pods: Sequence[Mapping[str, object]]
    ) -> frozenset[tuple[str, str]]:
        """Return (namespace, name) of the pods that keep their place though they are not ready.

        Raises:
            Retry: it could not be asked, or said ``succ: false``; ``failurePolicy`` decides.
        """
        settings = settings_from_parameters(parameters)
        if not pods:
            return frozenset()
        if self._skips(settings):
            raise Retry(f"dry run: {settings.name} does not accept dry-run calls", reason="DryRun")
        hook = Hook.JUDGE_POD_DEREGISTER
        about = f"{len(pods)} pods that are not ready"
        found = await self._drivers.get(settings).call(
            hook, {"dryRun": self._dry_run, "notReadyPods": list(pods)}, about=about
        )
        try:
            if refused := verdict_from_body(found):
                raise Retry(f"{settings.name} could not judge {about}: {refused}", reason="DriverFail")
            return kept_from_body(found)
        except Malformed as error:
            raise invalid(f"{settings.name}: {hook} for {about}", error) from error

    async def healthy(self, parameters: Mapping[str, str]) -> None:
        """Return when the driver says that it is healthy; ``Retry`` says what is wrong."""
        settings = settings_from_parameters(parameters)
        found = await self._drivers.get(settings).call(Hook.HEALTHZ, {}, about="itself")
        if found.get("healthy") is not True:
            words = message_of(found)
            raise Retry(
                f"{settings.name} says that it is not healthy{': ' + words if words else ''}; its own log says why",
                reason="DriverUnhealthy",
            )

    async def _verdict(self, settings: DriverSettings, hook: Hook, body: Body, about: str) -> None:
        if self._skips(settings):
            return
        found = await self._drivers.get(settings).call(hook, {"dryRun": self._dry_run, **body}, about=about)
        try:
            refused = verdict_from_body(found)
        except Malformed as error:
            raise invalid(f"{settings.name}: {hook} for {about}", error) from error
        if refused:
            raise Terminal(f"{settings.name} refuses {about}: {refused}", reason="RefusedByDriver")

    def _skips(self, settings: DriverSettings) -> bool:
        return self._dry_run and not settings.accept_dry_run
