"""The class of an error is its retry class, and it carries two strings and a word."""

from __future__ import annotations

import re

import pytest

from fairlead import errors


def every(kind=errors.FairleadError):
    yield kind
    for each in kind.__subclasses__():
        yield from every(each)


OURS = [each for each in every() if each.__module__ == "fairlead.errors"]


@pytest.mark.parametrize("kind", OURS, ids=lambda kind: kind.__name__)
def test_every_error_has_one_retry_class_and_a_reason_fit_for_a_condition(kind):
    classes = [each for each in (errors.Retry, errors.Wait, errors.Terminal, errors.Bug) if issubclass(kind, each)]
    assert len(classes) == (0 if kind is errors.FairleadError else 1)
    assert re.fullmatch(r"[A-Z][A-Za-z]+", kind("x").reason)
    assert kind.__doc__


def test_a_sentence_for_the_user_and_a_detail_for_the_operator():
    error = errors.Terminal("spec.ports: is empty", detail="HTTP 422", reason="Invalid")
    assert (error.sentence, error.detail, error.reason) == ("spec.ports: is empty", "HTTP 422", "Invalid")
    assert str(error) == "spec.ports: is empty (HTTP 422)"
    assert str(errors.Terminal("just so")) == "just so"


def test_a_retry_may_name_the_least_time_to_wait():
    assert errors.Throttled("busy", after_s=7.0).after_s == 7.0
    assert errors.Unreachable("gone").after_s is None
