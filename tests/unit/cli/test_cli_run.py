"""How errors become exit codes and sentences."""

from __future__ import annotations

import asyncio

import pytest
import typer

from fairlead.cli import run as cli
from fairlead.errors import BadConfiguration, Bug, Forbidden, NotFound, Unauthorized, Unreachable


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (BadConfiguration("x"), 2),
        (Unauthorized("x"), 2),
        (Unreachable("x"), 3),
        (Forbidden("x"), 1),
        (NotFound("x"), 1),
        (Bug("x"), 1),
        (ValueError("x"), 1),
        (OSError(28, "No space left on device"), 1),
        (KeyboardInterrupt(), 130),
        (asyncio.CancelledError(), 130),
    ],
)
def test_each_error_has_its_exit_code(error: BaseException, code: int) -> None:
    assert cli.code_of(error) == code


def test_a_sentence_begins_and_ends_like_one() -> None:
    assert cli.sentence_of(BadConfiguration("no port is free")) == "No port is free."
    assert cli.sentence_of(BadConfiguration("http://127.0.0.1:1 is not a hub")) == "http://127.0.0.1:1 is not a hub."
    assert cli.sentence_of(BadConfiguration("--metrics: no")) == "--metrics: no."
    assert cli.sentence_of(BadConfiguration("web.yaml is not YAML")) == "web.yaml is not YAML."
    assert cli.sentence_of(BadConfiguration("shop: no such name")) == "shop: no such name."
    assert "detail: why" in cli.sentence_of(BadConfiguration("no", detail="why"), verbose=True)
    assert "why" not in cli.sentence_of(BadConfiguration("no", detail="why"))


def test_an_error_of_the_system_names_its_file() -> None:
    assert cli.sentence_of(PermissionError(13, "denied", "/some/file")) == "/some/file: Permission denied."


def test_a_mistake_of_ours_says_so_and_how_to_see_more() -> None:
    said = cli.sentence_of(KeyError("gone"))
    assert "bug in Fairlead" in said
    assert "--verbose" in said


def test_of_a_group_of_errors_ours_is_printed() -> None:
    ours = Unreachable("the API is gone")
    group = BaseExceptionGroup("tasks", [ValueError("noise"), BaseExceptionGroup("inner", [ours])])
    assert cli.first_of(group) is ours


@pytest.mark.parametrize(
    ("error", "code"), [(Unreachable("gone"), 3), (KeyboardInterrupt(), 130), (typer.Exit(1), 1), (ValueError("x"), 1)]
)
def test_an_app_ends_with_a_code_and_without_a_traceback(
    error: BaseException, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    app = typer.Typer()

    @app.command()
    def fail() -> None:
        raise error

    import sys
    from unittest.mock import patch

    with patch.object(sys, "argv", ["fairlead"]):
        assert cli.run_app(app) == code
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.req("OP-9")
@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["/usr/bin/fairlead", "status"], "fairlead"),
        (["/usr/local/bin/kubectl-fairlead", "status", "--help"], "kubectl fairlead"),
        (["kubectl-fairlead", "--show-completion"], "fairlead"),
        (["/usr/bin/kubectl_complete-fairlead"], "fairlead"),
        ([], "fairlead"),
    ],
)
def test_a_program_is_named_as_it_was_called(arguments: list[str], name: str) -> None:
    assert cli.program_name(arguments) == name


@pytest.mark.req("OP-9")
def test_as_plugin_of_kubectl_help_and_errors_name_what_is_typed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from fairlead.cli.main import app

    for arguments, code, said in (
        (("status", "--help"), 0, "Usage: kubectl fairlead status"),
        (("statsu",), 2, "Try 'kubectl fairlead -h' for help"),
        (("plan", "--kubeconfig", "/none"), 2, "kubectl fairlead: The kubeconfig /none"),
    ):
        monkeypatch.setattr("sys.argv", ["/bin/kubectl-fairlead", *arguments])
        assert cli.run_app(app) == code
        captured = capsys.readouterr()
        assert said in captured.out + captured.err
