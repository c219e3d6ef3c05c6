"""Help without the names of Python's types: a flag takes no value, and an argument's placeholder says what it takes.

In: the parameters of a command. Out: the same, as ``--help`` is to show them. Never: what a parameter accepts.
"""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand, TyperGroup


class PlainCommand(TyperCommand):
    """A command whose help names no types, and breaks its lines where the terminal ends."""

    def __init__(self, *args: Any, **fields: Any) -> None:
        super().__init__(*args, **fields)
        self.help = flowing(self.help or "")

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, without their types."""
        return without_types(super().get_params(ctx))


class PlainGroup(TyperGroup):
    """A group of commands whose help names no types."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, without their types."""
        return without_types(super().get_params(ctx))


def flowing(text: str) -> str:
    """Return ``text`` with one line for each paragraph: where a docstring breaks its lines says nothing."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


def without_types(params: list[Any]) -> list[Any]:
    """Return ``params``; flags and arguments show nothing in the column of types, and defaults are in the text."""
    for param in params:
        if param.param_type_name == "argument":
            # Typer asks the parameter itself, and has no setting for it.
            vars(param)["display_type_rich"] = _nothing
            if param.required:
                vars(param)["_usage_display_name"] = lambda name=param.metavar: name
        elif param.is_flag:
            param.metavar = ""
        else:
            # A range would take its width from the texts of all options; the error for another number names it.
            vars(param)["_get_number_range_help_str"] = str
            if param.show_default and param.help and param.default not in (None, ""):
                # Typer gives the default a line of its own.
                default = getattr(param.default, "value", param.default)
                param.help = f"{param.help.rstrip('.')}; default: {default}."
                param.show_default = False
    return params


def _nothing(ctx: Any) -> None:
    """Take the place of Typer's method; there is nothing to show."""
