"""Call a hook that is repeated until the driver answers Succ.

In: a driver, a hook, and what it is about. Out: a checked ``Answer``; or one ``Retry`` for an answer that the protocol
does not allow. The same request is not repeated before the time that the driver named.
Never: a second call on its own.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from fairlead.providers.webhook.client import Driver, invalid
from fairlead.providers.webhook.protocol import Answer, Body, DriverStatus, Hook, Malformed, answer_from_body, failure


async def run_task(driver: Driver, hook: Hook, body: Body, *, about: str) -> Answer:
    """Return the driver's answer, or the last one while the driver does not want to be asked the same again."""
    if (deferred := driver.retry_after.answer_to(body)) is not None:
        return deferred
    response = await driver.call(hook, body, about=about)
    with checking_answer(driver, hook, about):
        answer = answer_from_body(response)
    driver.retry_after.record(body, answer)
    if answer.status is DriverStatus.FAIL:
        driver.count_fail(hook)
    return answer


async def run_task_to_success(driver: Driver, hook: Hook, body: Body, *, about: str) -> Answer:
    """Return the answer Succ; any other one is a ``Retry`` with the driver's own message and delay."""
    answer = await run_task(driver, hook, body, about=about)
    if answer.status is not DriverStatus.SUCC:
        raise failure(driver.settings.name, hook, about, answer)
    return answer


@contextmanager
def checking_answer(driver: Driver, hook: Hook, about: str) -> Generator[None]:
    """Turn ``Malformed`` inside the context into a ``Retry`` that names the driver, the hook and what it was about."""
    try:
        yield
    except Malformed as error:
        raise invalid(f"{driver.settings.name}: {hook} for {about}", error) from error
