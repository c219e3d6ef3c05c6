"""Exec plugins: a program signs in for a kubeconfig user (kubeconfig ``exec``).

In: the user's ``exec`` entry, its command already an absolute path or a name in $PATH. Out: a token or a client
certificate, and when it expires. Never: asks the program for longer than ``_PLUGIN_S``, or repeats its stderr in a
sentence that others can read.
Source: https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from typing import Any

import msgspec

from fairlead.api.json_text import decode
from fairlead.errors import BadConfiguration, Unreachable

_PLUGIN_S = 60.0


class PluginStatus(msgspec.Struct, rename="camel"):
    """The answer of a plugin: a token, or a certificate with its key (PEM); times are RFC 3339."""

    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: str | None = None


class _ExecCredential(msgspec.Struct, rename="camel"):
    api_version: str
    kind: str
    status: PluginStatus


async def run_plugin(plugin: Mapping[str, Any], *, source: str) -> PluginStatus:
    """Run the program and return its answer; ``source`` names kubeconfig and user in errors.

    Raises:
        BadConfiguration: it cannot be run.
        Unreachable: it failed, or answered with something else.
    """
    command = str(plugin["command"])
    subject = f'{source[:1].upper()}{source[1:]}: the sign-in plugin "{command}"'
    try:
        async with asyncio.timeout(_PLUGIN_S):
            code, output, errors = await _run(command, plugin)
    except FileNotFoundError as error:
        hint = str(plugin.get("installHint") or "Install it, or correct the kubeconfig.")
        raise BadConfiguration(f"{subject} (exec.command) is not installed. {hint}") from error
    except PermissionError as error:
        raise BadConfiguration(f"{subject} (exec.command) is not executable.") from error
    except TimeoutError as error:
        raise Unreachable(
            f"{subject} did not finish within {_PLUGIN_S:g} s. Does it wait for input? Run it once by hand."
        ) from error
    except OSError as error:
        raise _failed(subject, str(error)) from error
    if code:
        # Its stderr is the operator's to see; the sentence may end up in an object that others can read.
        raise _failed(subject, f"exit code {code}: {errors.decode('utf-8', 'replace')}")
    try:
        answer = decode(output, _ExecCredential)
    except msgspec.DecodeError as error:
        raise _failed(subject, str(error)) from error
    if answer.api_version != plugin["apiVersion"]:
        raise _failed(subject, f"it answers in {answer.api_version}, and not in {plugin['apiVersion']}")
    status = answer.status
    if not status.token and not (status.client_certificate_data and status.client_key_data):
        raise Unreachable(f"{subject} returned neither a token nor a certificate with its key.")
    return status


async def _run(command: str, plugin: Mapping[str, Any]) -> tuple[int, bytes, bytes]:
    """Return exit code, stdout and stderr; the program is killed when the caller is cancelled."""
    info = {"apiVersion": plugin["apiVersion"], "kind": "ExecCredential", "spec": {"interactive": sys.stdout.isatty()}}
    environ = {
        **os.environ,
        **{str(variable["name"]): str(variable["value"]) for variable in plugin.get("env") or ()},
        "KUBERNETES_EXEC_INFO": msgspec.json.encode(info).decode(),
    }
    process = await asyncio.create_subprocess_exec(
        command,
        *(str(argument) for argument in plugin.get("args") or ()),
        env=environ,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        output, errors = await process.communicate()
    except asyncio.CancelledError:
        process.kill()
        await process.wait()
        raise
    return process.returncode or 0, output, errors


def _failed(subject: str, detail: str) -> Unreachable:
    return Unreachable(f"{subject} failed. Run it by hand to see why.", detail=" ".join(detail.split())[:500])
