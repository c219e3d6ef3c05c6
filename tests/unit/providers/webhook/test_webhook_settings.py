"""Parameters of a class: every mistake names the parameter."""

from __future__ import annotations

import pytest

from fairlead.errors import BadConfiguration
from fairlead.providers.webhook.protocol import Hook
from fairlead.providers.webhook.settings import lb_spec, settings_from_parameters

URL = "https://driver.example:8443/prefix"


@pytest.mark.req("L-25")
def test_each_hook_has_its_own_timeout() -> None:
    settings = settings_from_parameters({"url": URL, "timeout.ensureBackend": "60s", "timeout": "500ms"})
    assert settings.timeout_of(Hook.ENSURE_BACKEND) == 60
    assert settings.timeout_of(Hook.DEREGISTER_BACKEND) == 0.5
    assert settings_from_parameters({"url": URL}).timeout_of(Hook.JUDGE_POD_DEREGISTER) == 10
    assert (
        settings_from_parameters({"url": URL, "timeout.judgePodDeregister": "2s"}).timeout_of(Hook.JUDGE_POD_DEREGISTER)
        == 2
    )


@pytest.mark.req("L-25")
@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({}, "url is missing"),
        ({"url": "ftp://x"}, "http or https"),
        ({"url": "https://"}, "http or https"),
        ({"url": "https://x y/"}, "http or https"),
        ({"url": "https://[::1"}, "http or https"),
        ({"url": "https://x:0/"}, "http or https"),
        ({"url": "https://x:99999/"}, "http or https"),
        ({"url": "https://user:geheim@x/"}, "must not contain a user"),
        ({"url": "https://x/?token=geheim"}, "must not contain a user"),
        ({"url": URL, "timeout": "0s"}, "at most 60"),
        ({"url": URL, "timeout": "61s"}, "at most 60"),
        ({"url": URL, "timeout": "soon"}, "not a duration"),
        ({"url": URL, "timeout.ensureBackends": "1s"}, "not the name of a hook"),
        ({"url": URL, "parallel": "0"}, "1 to 64"),
        ({"url": URL, "parallel": "65"}, "1 to 64"),
        ({"url": URL, "parallel": "²"}, "1 to 64"),
        ({"url": URL, "credentials": "../../etc"}, "folder"),
        ({"url": URL, "credentials": "a..b"}, "folder"),
        ({"url": URL, "credentials": "/etc"}, "folder"),
    ],
)
def test_mistakes_in_a_class_name_the_parameter(parameters: dict[str, str], message: str) -> None:
    with pytest.raises(BadConfiguration, match=message) as caught:
        settings_from_parameters(parameters)
    assert "geheim" not in str(caught.value)


def test_the_driver_gets_only_what_is_its_business() -> None:
    everything = {"url": URL, "timeout": "1s", "timeout.healthz": "1s", "parallel": "1", "verify": "true", "lbID": "x"}
    assert lb_spec(everything) == {"lbID": "x"}


def test_a_scheme_in_capital_letters_is_the_same_scheme() -> None:
    settings = settings_from_parameters({"url": "HTTPS://driver.example/Prefix/"})
    assert settings.url == "https://driver.example/Prefix", "or its own certificates would not be used"
