"""Reads kubeconfig files and pods' service accounts as a ``ClusterConfig``.

In: a path (or None), a context name, the environment. Out: ``ClusterConfig``, whose ``sign_in`` keeps credentials
fresh. Never: writes a kubeconfig, runs a plugin before the first request, or guesses around a broken field.

How the credentials of a context stay fresh for months is in ``credentials.py``.
Source: https://kubernetes.io/docs/reference/config-api/kubeconfig.v1/
"""

from __future__ import annotations

import os
import shlex
import ssl
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

import msgspec
import yaml

from fairlead.api.meta import JSONMapping, JSONObject
from fairlead.errors import BadConfiguration
from fairlead.kube.config import Access, ClusterConfig, KubeconfigSignIn, Material, tls_context
from fairlead.model.in_words import host_port
from fairlead.runtime.clock import Clock, SystemClock

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_REREAD_S = 60.0
_KINDS = ("clusters", "contexts", "users")
#: The one in C needs an eighth of the time: every command reads a kubeconfig.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

Fields = JSONMapping


def load_config(
    path: str | Path | None = None,
    *,
    context: str = "",
    environ: Mapping[str, str] | None = None,
    home: Path | None = None,
    service_account: Path = SERVICE_ACCOUNT,
    clock: Clock | None = None,
) -> ClusterConfig:
    """Return where the cluster is and how to sign in.

    Raises:
        BadConfiguration: nothing found, or something in it is missing or wrong.
    """
    environ = os.environ if environ is None else environ
    clock = clock or SystemClock()
    if path is not None:
        return _from_files([Path(path).expanduser()], "the path given", context, environ, clock)
    if environ.get("KUBECONFIG"):
        paths = [Path(part).expanduser() for part in environ["KUBECONFIG"].split(os.pathsep) if part]
        return _from_files(paths, "$KUBECONFIG", context, environ, clock)
    default = (home or Path.home()) / ".kube" / "config"
    if default.exists():
        return _from_files([default], "the default path", context, environ, clock)
    if environ.get("KUBERNETES_SERVICE_HOST"):
        if context:
            raise BadConfiguration(
                f'Context "{context}" was asked for, but there is no kubeconfig, only the service account of this pod.'
                " Name a kubeconfig, or leave the context out."
            )
        return _in_cluster(environ, service_account, clock)
    raise BadConfiguration(
        f"No kubeconfig: $KUBECONFIG is not set, {default} does not exist, and this process does not run in a pod."
        " Name one with --kubeconfig, or set $KUBECONFIG."
    )


def _from_files(
    paths: list[Path], asked_by: str, context: str, environ: Mapping[str, str], clock: Clock
) -> ClusterConfig:
    # As kubectl: of several files some may be missing, a single one may not.
    present = [path for path in paths if path.exists()]
    if not present:
        missing = os.pathsep.join(str(path) for path in paths)
        soon = "" if paths[0].name != "kubeconfig" else " A hub that was started just now writes it within seconds."
        raise BadConfiguration(f"The kubeconfig {missing} ({asked_by}) does not exist. Correct the path.{soon}")
    kubeconfig = Kubeconfig.read(present)
    chosen = kubeconfig.choose(context)
    # Everything that can be checked without the server is checked now, not at the first request.
    sign_in = KubeconfigSignIn(lambda: Kubeconfig.read(present).choose(context).material(), clock=clock)
    server = chosen.server()

    def trusted() -> ssl.SSLContext:
        now = Kubeconfig.read(present).choose(context).material()
        return tls_context(authority=now.authority, insecure=now.insecure, source=now.source)

    return ClusterConfig(
        server=server,
        trusted=trusted,
        sign_in=sign_in,
        inline_token=sign_in,
        namespace=str(chosen.context.get("namespace") or "default"),
        user=chosen.user_name,
        source=chosen.source,
        flags=chosen.flags,
        tls_server_name=str(chosen.cluster.get("tls-server-name") or ""),
        proxy=chosen.proxy(server, environ),
    )


class Kubeconfig:
    """The merged content of one or more kubeconfig files; the first file to define a name wins, as with kubectl."""

    def __init__(
        self, merged: Mapping[str, Mapping[str, tuple[Fields, Path]]], current: str, paths: Sequence[Path]
    ) -> None:
        self._merged = merged  # by kind and name: the entry, and the file that relative paths in it start from
        self._current = current
        self._paths = paths
        self._where = os.pathsep.join(str(path) for path in paths)

    @classmethod
    def read(cls, paths: list[Path]) -> Kubeconfig:
        """Read and merge.

        Raises:
            BadConfiguration: a file cannot be read or is not a kubeconfig.
        """
        merged: dict[str, dict[str, tuple[Fields, Path]]] = {kind: {} for kind in _KINDS}
        current = ""
        for path in paths:
            content = _read(path)
            current = current or str(content.get("current-context") or "")
            for kind, entries in merged.items():
                for entry in content.get(kind) or ():
                    entries.setdefault(str(entry["name"]), (entry, path.absolute()))
        return cls(merged, current, paths)

    def choose(self, context: str) -> ContextEntries:
        """Follow a context (empty: the current one) to its cluster and user.

        Raises:
            BadConfiguration: a name leads nowhere.
        """
        name = context or self._current
        contexts = self._names("contexts")
        if not name:
            raise BadConfiguration(
                f"The kubeconfig {self._where} has no current-context. Choose one of: {contexts}"
                " (`kubectl config use-context NAME`)."
            )
        entry = self._entry("contexts", name)
        if not entry:
            raise BadConfiguration(f'The kubeconfig {self._where} has no context "{name}". It has: {contexts}.')
        chosen = cast("Fields", entry[0].get("context") or {})
        source = f'kubeconfig {entry[1]}, context "{name}"'
        cluster = self._entry("clusters", str(chosen.get("cluster") or ""))
        if not cluster:
            raise BadConfiguration(
                f'{_cap(source)}: its cluster "{chosen.get("cluster") or ""}" is not defined.'
                f" The file has: {self._names('clusters')}."
            )
        user_name = str(chosen.get("user") or "")
        user = self._entry("users", user_name) if user_name else None
        if user_name and not user:
            raise BadConfiguration(
                f'{_cap(source)}: its user "{user_name}" is not defined. The file has: {self._names("users")}.'
            )
        return ContextEntries(
            source=source,
            flags=f"--kubeconfig {shlex.quote(str(entry[1].absolute()))} --context {shlex.quote(name)}",
            context=chosen,
            cluster=cast("Fields", cluster[0].get("cluster") or {}),
            cluster_dir=cluster[1].parent,
            user=cast("Fields", user[0].get("user") or {}) if user else {},
            user_dir=user[1].parent if user else cluster[1].parent,
            user_name=user_name,
            files=self._paths,
        )

    def _entry(self, kind: str, name: str) -> tuple[Fields, Path] | None:
        return self._merged[kind].get(name)

    def _names(self, kind: str) -> str:
        return ", ".join(sorted(self._merged[kind])) or "none"


class ContextEntries:
    """One context with its cluster and user, each with the directory of the file that it came from."""

    def __init__(
        self,
        *,
        source: str,
        flags: str,
        context: Fields,
        cluster: Fields,
        cluster_dir: Path,
        user: Fields,
        user_dir: Path,
        user_name: str,
        files: Sequence[Path],
    ) -> None:
        self.source = source
        self.flags = flags
        self.context = context
        self.cluster = cluster
        self.user_name = user_name
        self._cluster_dir = cluster_dir
        self._user = user
        self._user_dir = user_dir
        self._files = files
        self.material()  # reports what is missing now

    def server(self) -> str:
        """Return the server's URL."""
        server = str(self.cluster.get("server") or "")
        url = urlsplit(server)
        if url.scheme not in {"http", "https"} or not url.hostname:
            raise BadConfiguration(
                f'{_cap(self.source)}: the cluster\'s server "{server}" is not a URL. Write it as https://host:6443.'
            )
        return server.rstrip("/")

    def proxy(self, server: str, environ: Mapping[str, str]) -> str:
        """Return the proxy: proxy-url, else $HTTPS_PROXY unless $NO_PROXY exempts the host."""
        proxy = str(self.cluster.get("proxy-url") or "")
        if not proxy:
            url = urlsplit(server)
            names = (f"{url.scheme}_proxy", f"{url.scheme}_proxy".upper())
            proxy = next((environ[name] for name in names if environ.get(name)), "")
            exempt = {"no": environ.get("no_proxy") or environ.get("NO_PROXY") or ""}
            # The standard library knows the rules of no_proxy, but takes the list only by this door.
            if proxy and urllib.request.proxy_bypass_environment(url.netloc, exempt):  # pyright: ignore[reportAttributeAccessIssue]
                proxy = ""
        if proxy and urlsplit(proxy).scheme not in {"http", "https"}:
            raise BadConfiguration(
                f"{_cap(self.source)}: proxy-url has scheme {urlsplit(proxy).scheme or 'none'}; only http and https"
                " proxies are supported."
            )
        return proxy

    def material(self) -> Material:
        """Return what sign-in needs, read from the files that the entries name.

        Raises:
            BadConfiguration: a file or a field is missing or wrong.
        """
        return Material.read(
            source=self.source,
            cluster=self.cluster,
            cluster_dir=self._cluster_dir,
            user=self._user,
            user_dir=self._user_dir,
            user_name=self.user_name,
            files=self._files,
        )


class _NamedEntry(msgspec.Struct):
    """What every cluster, context and user of a kubeconfig has."""

    name: str


def _read(path: Path) -> Fields:
    """Return the content of one file, whose clusters, contexts and users are lists of named entries."""
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), Loader=_LOADER)  # noqa: S506 - it is a safe one
    except yaml.MarkedYAMLError as error:
        where = f" at line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise BadConfiguration(
            f"The kubeconfig {path} is not valid YAML{where} ({error.problem}). Correct it there."
        ) from error
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise BadConfiguration(f"The kubeconfig {path} cannot be read: {_first_line(error)}.") from error
    if not isinstance(content, dict):
        raise BadConfiguration(f"The file {path} is not a kubeconfig: it is empty or not a YAML mapping.")
    fields = cast("JSONObject", content)
    for kind in _KINDS:
        try:
            msgspec.convert(fields.get(kind) or [], list[_NamedEntry])
        except msgspec.ValidationError:
            raise BadConfiguration(
                f'The kubeconfig {path}: "{kind}" must be a list whose entries have a name.'
            ) from None
    return fields


def _in_cluster(environ: Mapping[str, str], service_account: Path, clock: Clock) -> ClusterConfig:
    host = environ["KUBERNETES_SERVICE_HOST"]
    port = environ.get("KUBERNETES_SERVICE_PORT") or "443"
    token, authority = service_account / "token", service_account / "ca.crt"
    for path in (token, authority):
        if not path.is_file():
            raise BadConfiguration(
                f"This pod has no service account token: {path} does not exist."
                " Set automountServiceAccountToken: true and a serviceAccountName, or name a kubeconfig."
            )
    namespace = service_account / "namespace"
    return ClusterConfig(
        server=f"https://{host_port(host, port)}",
        sign_in=ServiceAccountSignIn(token, authority, clock=clock),
        namespace=namespace.read_text(encoding="utf-8").strip() if namespace.is_file() else "default",
        user="the service account of this pod",
        source="the service account of this pod",
        trusted=lambda: tls_context(authority=authority.read_bytes(), source="the service account of this pod"),
    )


class ServiceAccountSignIn:
    """Sign in as this pod; the kubelet rotates the token, so it is read again every minute and after a 401."""

    def __init__(self, token: Path, authority: Path, *, clock: Clock) -> None:
        self._token = token
        self._authority = authority
        self._clock = clock
        self._access: Access | None = None
        self._read_s = 0.0
        self._seen: tuple[str, str] = ("", "")
        self._ssl: ssl.SSLContext | None = None

    async def __call__(self, refused: Access | None) -> Access:
        """Return the current access."""
        now_s = self._clock.monotonic()
        fresh = self._access is not None and now_s - self._read_s < _REREAD_S
        if self._access and fresh and refused is not self._access:
            return self._access
        self._read_s = now_s
        try:
            seen = (self._token.read_text(encoding="utf-8").strip(), self._authority.read_text(encoding="utf-8"))
        except OSError as error:
            if self._access:
                return self._access  # the old one may still be good, and the server will say if it is not
            raise BadConfiguration(f"The service account token {self._token} cannot be read: {error}.") from error
        if self._access is None or seen != self._seen:
            if self._ssl is None or seen[1] != self._seen[1]:
                self._ssl = tls_context(authority=seen[1].encode(), source="the service account of this pod")
            self._seen = seen
            self._access = Access(headers={"Authorization": f"Bearer {seen[0]}"}, ssl=self._ssl)
        return self._access


def _first_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300].rstrip(".")


def _cap(text: str) -> str:
    return text[:1].upper() + text[1:]
