"""Creates, changes and deletes load balancers at their drivers.

    not known                    createLoadBalancer: Succ makes it known; Fail leaves nothing
    perhaps created              createLoadBalancer again, with the same recordID (an answer was lost, or Running)
    created                      ensureLoadBalancer
    deleted while perhaps there  deleteLoadBalancer with lbSpec for lbInfo: nothing leaks for want of an answer

In: specs. Out: calls, and what is known afterwards (``states``). Never: stores anything of a dry run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec
import structlog

from fairlead.errors import Terminal
from fairlead.model.contract import RestoredBackend
from fairlead.model.desired import FrontendSpec
from fairlead.model.keys import LoadBalancerKey
from fairlead.model.observed import Ensured
from fairlead.providers.load_balancer_states import LoadBalancerStates
from fairlead.providers.webhook.client import Driver, DriverDown, checking_answer, run_task, run_task_to_success
from fairlead.providers.webhook.protocol import Answer, DriverStatus, Hook, failure, task_body
from fairlead.providers.webhook.settings import lb_spec, readable_settings, settings_from_parameters
from fairlead.providers.webhook.state import BackendCache, DriverLoadBalancer

log = structlog.get_logger(__name__)


class LoadBalancerHooks:
    """The hooks about load balancers; other parts of the provider read ``states``."""

    def __init__(self, *, cache: BackendCache, dry_run: bool, changed: Callable[[LoadBalancerKey], None]) -> None:
        self.states: LoadBalancerStates[DriverLoadBalancer] = LoadBalancerStates()
        self._cache = cache
        self._dry_run = dry_run
        self._changed = changed

    def restore(self, spec: FrontendSpec, info: Mapping[str, str]) -> None:
        """Restore a load balancer of an earlier process; without ``info`` it may or may not have been created."""
        try:
            settings = settings_from_parameters(spec.parameters)
        except Terminal as error:
            # Its class has changed for the worse; what was made before can be removed with what is right in it.
            log.warning("its parameters cannot be read", load_balancer=str(spec.key), why=error.sentence)
            settings = readable_settings(spec.parameters)
        if settings is None:
            if not info:
                # The URL of a driver never changes: none was ever called.
                self.states.release(spec.key)
            return
        restored = DriverLoadBalancer(spec, settings, info or lb_spec(spec.parameters), created=bool(info))
        self.states.put(spec.key, restored)

    def restore_backends(self, key: LoadBalancerKey, backends: Sequence[RestoredBackend]) -> None:
        """Restore what is on record of its backends, all of them at first, and later what comes to be there."""
        known = self.states.get(key)
        if known is None:
            return
        self._cache.restore(key, backends)
        self.states.put(key, msgspec.structs.replace(known, complete=True))

    async def create(self, driver: Driver, spec: FrontendSpec) -> Ensured:
        """Call createLoadBalancer; ``Retry`` when the driver answers anything but Succ."""
        hook, about = Hook.CREATE_LOAD_BALANCER, str(spec.key)
        wanted = lb_spec(spec.parameters)
        content = {"attributes": spec.attributes, **_families(driver, spec)}
        body = task_body(hook, _subject(spec), dry_run=self._dry_run, lbSpec=wanted, **content)
        perhaps = DriverLoadBalancer(spec, driver.settings, wanted)
        try:
            answer = await run_task(driver, hook, body, about=about)
        except DriverDown:
            # The call never arrived.
            raise
        except BaseException:
            # Also when we are cancelled: the driver may have gone on.
            self._store(perhaps)
            raise
        if answer.status is DriverStatus.RUNNING:
            self._store(perhaps)
        if answer.status is not DriverStatus.SUCC:
            raise failure(driver.settings.name, hook, about, answer)
        info, addresses = _info_and_addresses(driver, hook, spec, answer)
        info = info or wanted
        self._store(msgspec.structs.replace(perhaps, info=info, created=True, complete=True))
        self._changed(spec.key)
        return Ensured(addresses, answer.message, info=None if self._dry_run else info)

    async def update(self, driver: Driver, spec: FrontendSpec, known: DriverLoadBalancer) -> Ensured:
        """Call ensureLoadBalancer with the attributes of ``spec``, and its families."""
        hook = Hook.ENSURE_LOAD_BALANCER
        content = {"attributes": spec.attributes, **_families(driver, spec)}
        body = task_body(hook, _subject(spec), dry_run=self._dry_run, lbInfo=known.info, **content)
        answer = await run_task_to_success(driver, hook, body, about=str(spec.key))
        _, addresses = _info_and_addresses(driver, hook, spec, answer)
        self._store(msgspec.structs.replace(known, spec=spec, settings=driver.settings))
        return Ensured(addresses, answer.message, info=known.info)

    async def delete(self, driver: Driver, known: DriverLoadBalancer) -> None:
        """Call deleteLoadBalancer, unless the load balancer existed before us, and release it."""
        spec = known.spec
        if not spec.existing:
            hook = Hook.DELETE_LOAD_BALANCER
            body = task_body(hook, _subject(spec), dry_run=self._dry_run, lbInfo=known.info, attributes=spec.attributes)
            await run_task_to_success(driver, hook, body, about=str(spec.key))
        if not self._dry_run:
            self.release(spec.key)

    def release(self, key: LoadBalancerKey) -> None:
        """Drop all that is known of it: the next load balancer of that name is created, whatever this one was."""
        self.states.release(key)
        self._cache.forget_all(key)
        self._changed(key)

    def _store(self, known: DriverLoadBalancer) -> None:
        if not self._dry_run:
            self.states.put(known.spec.key, known)


def _families(driver: Driver, spec: FrontendSpec) -> dict[str, object]:
    """Return of which families addresses are wanted, for a driver that reads it; nothing where none is named."""
    if not (driver.settings.families and spec.families.families):
        return {}
    policy = "RequireDualStack" if spec.families.all_required else "PreferDualStack"
    policy = policy if len(spec.families.families) > 1 else "SingleStack"
    return {"ipFamilies": list(spec.families.families), "ipFamilyPolicy": policy}


def _info_and_addresses(
    driver: Driver, hook: Hook, spec: FrontendSpec, answer: Answer
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return lbInfo and (an extension of ours) the addresses of the load balancer."""
    with checking_answer(driver, hook, str(spec.key)):
        addresses = answer.texts("addresses") or spec.addresses
        return answer.strings("lbInfo"), addresses


def _subject(spec: FrontendSpec) -> str:
    return spec.owner.uid or str(spec.key)
