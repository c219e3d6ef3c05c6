"""How does a load balancer come to be at its driver, change, and go?

    not known                    createLoadBalancer: Succ makes it known; Fail leaves nothing
    perhaps created              createLoadBalancer again, with the same recordID (an answer was lost, or Running)
    created                      ensureLoadBalancer
    deleted while perhaps there  deleteLoadBalancer with lbSpec for lbInfo: nothing leaks for want of an answer

In: specs. Out: calls, and what is known afterwards. Never: remembers anything of a dry run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec
import structlog

from fairlead.errors import Retry, Terminal
from fairlead.model.desired import FrontendSpec
from fairlead.model.keys import LoadBalancerKey
from fairlead.model.observed import Ensured
from fairlead.providers.webhook.backends import task
from fairlead.providers.webhook.client import Driver, DriverDown, invalid
from fairlead.providers.webhook.protocol import Answer, Body, Hook, Malformed, Status, failure, task_body
from fairlead.providers.webhook.settings import lb_spec, settings_from_parameters
from fairlead.providers.webhook.state import KnownLoadBalancer, Memory

_MOST_GONE = 4096

log = structlog.get_logger(__name__)


class Frontends:
    """The load balancers that this process knows; ``known`` and ``gone`` may be read by others."""

    def __init__(self, *, memory: Memory, dry_run: bool, changed: Callable[[LoadBalancerKey], None]) -> None:
        self.known: dict[LoadBalancerKey, KnownLoadBalancer] = {}
        self.gone: dict[LoadBalancerKey, None] = {}
        self._memory = memory
        self._dry_run = dry_run
        self._changed = changed

    def recall(self, spec: FrontendSpec, info: Mapping[str, str]) -> None:
        """Take back one of an earlier process; without ``info`` nobody knows whether it was created."""
        try:
            settings = settings_from_parameters(spec.parameters)
        except Terminal as error:
            # One bad object must not keep the others from being taken back; this one waits for a good ensure.
            log.warning("not taken back", load_balancer=str(spec.key), why=error.sentence)
            return
        self.known[spec.key] = KnownLoadBalancer(spec, settings, info or lb_spec(spec.parameters), created=bool(info))

    async def create(self, driver: Driver, spec: FrontendSpec) -> Ensured:
        """Have it created; ``Retry`` while the driver says anything but Succ."""
        hook = Hook.CREATE_LOAD_BALANCER
        wanted = lb_spec(spec.parameters)
        body = task_body(hook, _subject(spec), dry_run=self._dry_run, lbSpec=wanted, attributes=spec.attributes)
        perhaps = KnownLoadBalancer(spec, driver.settings, wanted)
        try:
            answer = await task(driver, hook, body, about=str(spec.key))
        except DriverDown:
            # Nobody heard it.
            raise
        except BaseException:
            # Also when we are cancelled: the driver may have gone on.
            self._remember(perhaps)
            raise
        if answer.status is Status.RUNNING:
            self._remember(perhaps)
        self._must_be_succ(driver, hook, spec, answer)
        info, addresses = _read(driver, hook, spec, answer)
        info = info or wanted
        self._remember(msgspec.structs.replace(perhaps, info=info, created=True, whole=True))
        self.gone.pop(spec.key, None)
        self._changed(spec.key)
        return Ensured(addresses, answer.message, info=None if self._dry_run else info)

    async def update(self, driver: Driver, spec: FrontendSpec, known: KnownLoadBalancer) -> Ensured:
        """Have its attributes brought up to date."""
        hook = Hook.ENSURE_LOAD_BALANCER
        body = task_body(hook, _subject(spec), dry_run=self._dry_run, lbInfo=known.info, attributes=spec.attributes)
        answer = await task(driver, hook, body, about=str(spec.key))
        self._must_be_succ(driver, hook, spec, answer)
        _, addresses = _read(driver, hook, spec, answer)
        self._remember(msgspec.structs.replace(known, spec=spec, settings=driver.settings))
        return Ensured(addresses, answer.message, info=known.info)

    async def delete(self, driver: Driver, known: KnownLoadBalancer) -> None:
        """Have it deleted, unless somebody else made it and keeps it."""
        spec = known.spec
        if not spec.existing:
            hook = Hook.DELETE_LOAD_BALANCER
            body: Body = {"lbInfo": known.info, "attributes": spec.attributes}
            body = task_body(hook, _subject(spec), dry_run=self._dry_run, **body)
            answer = await task(driver, hook, body, about=str(spec.key))
            self._must_be_succ(driver, hook, spec, answer)
        if not self._dry_run:
            self.let_go(spec.key)

    def let_go(self, key: LoadBalancerKey) -> None:
        """Know nothing of it any more: the next of that name is created, whatever this one was."""
        self.known.pop(key, None)
        self._memory.forget_all(key)
        self.gone[key] = None
        while len(self.gone) > _MOST_GONE:
            del self.gone[next(iter(self.gone))]
        self._changed(key)

    def _remember(self, known: KnownLoadBalancer) -> None:
        if not self._dry_run:
            self.known[known.spec.key] = known

    @staticmethod
    def _must_be_succ(driver: Driver, hook: Hook, spec: FrontendSpec, answer: Answer) -> None:
        if answer.status is not Status.SUCC:
            raise failure(driver.settings.name, hook, str(spec.key), answer)


def _read(driver: Driver, hook: Hook, spec: FrontendSpec, answer: Answer) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return lbInfo and (an extension of ours) addresses of the load balancer."""
    try:
        addresses = answer.texts("addresses") or ((spec.address,) if spec.address else ())
        return answer.strings("lbInfo"), addresses
    except Malformed as error:
        malformed: Retry = invalid(f"{driver.settings.name}: {hook} for {spec.key}", error)
        raise malformed from error


def _subject(spec: FrontendSpec) -> str:
    return spec.owner.uid or str(spec.key)
