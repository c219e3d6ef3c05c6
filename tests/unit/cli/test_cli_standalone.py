"""What a hub of one machine prints once it is ready."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlead.cli.processes import _next_steps


@pytest.mark.parametrize(("metrics", "page"), [("", False), ("127.0.0.1:9090", True)])
def test_the_page_is_named_where_there_is_one(capsys: pytest.CaptureFixture[str], metrics: str, page: bool) -> None:
    _next_steps(Path("hub/kubeconfig"), metrics=metrics)
    said = capsys.readouterr()
    assert said.out == "hub/kubeconfig\n"
    assert said.err.splitlines()[-1 - page] == "and to see how it is:  fairlead status --kubeconfig hub/kubeconfig"
    assert ("or in a browser:  http://127.0.0.1:9090" in said.err) is page


@pytest.mark.parametrize(
    ("metrics", "url"),
    [
        ("0.0.0.0:9090", "http://127.0.0.1:9090  (from elsewhere: port 9090 of any address of this machine)"),
        ("[::]:9090", "http://[::1]:9090  (from elsewhere: port 9090 of any address of this machine)"),
        ("[2001:db8::1]:9090", "http://[2001:db8::1]:9090"),
        ("192.0.2.1:9090", "http://192.0.2.1:9090"),
    ],
)
def test_the_page_is_named_by_an_address_that_can_be_opened(
    capsys: pytest.CaptureFixture[str], metrics: str, url: str
) -> None:
    _next_steps(Path("hub/kubeconfig"), metrics=metrics)
    assert capsys.readouterr().err.endswith(f"or in a browser:  {url}\n")


@pytest.mark.parametrize("machines", ["", "192.0.2.1:7443"])
def test_the_next_step_for_machines_is_named_where_they_may_join(
    capsys: pytest.CaptureFixture[str], machines: str
) -> None:
    _next_steps(Path("hub/kubeconfig"), machines=machines)
    assert ("fairlead proxy token --kubeconfig hub/kubeconfig" in capsys.readouterr().err) is bool(machines)
