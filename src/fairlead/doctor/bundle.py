"""The content of a support bundle: objects, Events, pages of a hub and logs, without secrets, in one tar.gz.

In: the facts of clusters and machine, a URL, directories with logs. Out: files by name, and their archive. Never: a
file of the machine that is not a log or a page of Fairlead's own. ``unread.txt`` lists what could not be read.
"""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import aiohttp
import msgspec
import yaml

from fairlead.api.kubernetes import CRDS, EVENTS, LAST_APPLIED
from fairlead.api.meta import JSONObject
from fairlead.api.names import LABEL_MANAGED_BY, MANAGED_BY
from fairlead.doctor.facts import ApiFacts, Facts, Finding, items, mapping, meta, name_of, spec
from fairlead.doctor.gather import KindToRead, read_objects
from fairlead.kube.cluster import Cluster
from fairlead.runtime.private_file import write_private

#: Of a log the last part: enough for what has just happened, and a bundle that can be sent by mail.
LOG_BYTES = 1 << 20


def files_of(
    facts: Facts,
    findings: Sequence[Finding],
    *,
    pages: Mapping[str, str],
    logs: Mapping[str, str],
    events: Mapping[str, Sequence[JSONObject]],
    unread: Iterable[str],
) -> dict[str, str]:
    """Return the files of a bundle by name; ``pages`` are those that the hub serves, ``events`` are by side."""
    files = {"README.txt": _README, "versions.json": _json(_versions(facts)), "doctor.json": _json(findings)}
    missing = list(unread)
    for side in filter(None, (facts.hub, facts.member)):
        if side.error:
            missing.append(f"{side.name} {side.server}: {side.error}")
            continue
        missing += [f"{side.name} ({resource}) {sentence}" for resource, sentence in sorted(side.unread.items())]
        for resource, objects in sorted(side.objects.items()):
            files[f"{side.name}/{resource}.yaml"] = _yaml(
                map(_short, objects) if resource == CRDS.full_name else objects
            )
        files[f"{side.name}/events.yaml"] = _yaml(events.get(side.name, ()))
        files[f"{side.name}/rights-denied.json"] = _json(side.denied)
        files[f"{side.name}/endings.json"] = _json(side.endings)
    if facts.machine is not None:
        files["machine.json"] = _json(facts.machine)
    if facts.proxy is not None:
        files["proxy-machine.json"] = _json(facts.proxy)
    files |= {f"pages/{name}": text for name, text in pages.items()}
    files |= {f"logs/{name}": text[-LOG_BYTES:] for name, text in logs.items()}
    files["unread.txt"] = "".join(f"{line}\n" for line in missing) or "Everything that was asked for could be read.\n"
    return {name: redacted_text(text) for name, text in files.items()}


def write_bundle(path: Path, files: Mapping[str, str], *, directory: str, time_s: int) -> int:
    """Write the files as one tar.gz that only its owner may read; return its size in bytes."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, text in sorted(files.items()):
            content = text.encode()
            entry = tarfile.TarInfo(f"{directory}/{name}")
            entry.size, entry.mtime, entry.mode = len(content), time_s, 0o600
            archive.addfile(entry, io.BytesIO(content))
    write_private(path, packed.getvalue())
    return len(packed.getvalue())


def _versions(facts: Facts) -> JSONObject:
    def of(side: ApiFacts | None) -> JSONObject | None:
        return None if side is None else {"server": side.server, "version": side.version, "aheadSeconds": side.ahead_s}

    return {"fairlead": facts.version, "hub": of(facts.hub), "member": of(facts.member)}


def _short(crd: JSONObject) -> JSONObject:
    """Return a CustomResourceDefinition without its schemas, which this program's version says."""
    versions = [
        {key: version.get(key) for key in ("name", "served", "storage")} for version in items(spec(crd).get("versions"))
    ]
    return {**crd, "spec": {"versions": versions}}


def _yaml(objects: Iterable[JSONObject]) -> str:
    ordered = sorted(objects, key=lambda obj: (str(meta(obj, "namespace") or ""), name_of(obj)))
    return yaml.safe_dump_all(map(redacted_object, ordered), sort_keys=False, explicit_start=True, width=10_000)


def _json(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"


_README = """\
A support bundle of Fairlead, made by `fairlead collect`.

versions.json   of this program and of the API servers
doctor.json     what `fairlead doctor` says
hub/, member/   objects as the API servers have them, Events, rights that are denied, ends of certificates and tokens;
                hub/configmaps.yaml has the stored histories of load balancers
pages/          metrics and readiness of the hub, where --hub-url was given and it was reached
logs/           logs of this machine, where there are any
unread.txt      what could not be read, and why

Keys, tokens, passwords, Secrets' contents and credentials in URLs have been removed; names, addresses and labels of
your objects are in it. Read it before you send it on.
"""


REMOVED = "(removed)"

_SECRET_NAME = re.compile(
    r"(?i)(pass(word|wd|phrase)?|secret|token|api[-_]?key|private[-_]?key|access[-_]?key|credential|auth(orization|"
    r"entication)?|cookie|bearer|session[-_]?id|signature|client[-_]?key|kubeconfig)"
)
#: Fields of the API whose names look like those of secrets and that hold a name, a number or a switch.
_HARMLESS = frozenset(
    {
        "secretName", "secretRef", "secretKeyRef", "tokenExpirationSeconds", "automountServiceAccountToken",
        "imagePullSecrets", "sessionAffinity", "sessionAffinityConfig", "certificateRefs", "expirationSeconds",
        "sessionPersistence", "passThrough", "externalAuth", "resources", "verbs",
    }
)  # fmt: skip
#: Each begins where it can begin only once in a long word, so that no text takes longer than its length.
_IN_TEXT: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(-----END [A-Z0-9 ]*PRIVATE KEY-----|\Z)", re.DOTALL),
        REMOVED,
    ),
    (re.compile(r"\beyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*){1,4}"), REMOVED),
    (re.compile(r"(?i)\b(bearer|basic|digest|negotiate)\s+[A-Za-z0-9._~+/=-]{6,}"), rf"\1 {REMOVED}"),
    (re.compile(r"(?<=://)[^/@\s\"']+@"), f"{REMOVED}@"),
    (
        re.compile(
            r"(?i)((?<![\w-])[\w-]{0,64}?(?:pass(?:word|wd|phrase)?|secret|token|api[-_]?key|private[-_]?key|access[-_]?key|credentials?"
            r"|authorization|cookie|signature)[\w-]*[\"']?\s*[=:]\s*)(\"[^\"]*\"|'[^']*'|[^\s,;&\"'}\]]+)"
        ),
        rf"\1{REMOVED}",
    ),
    # An option of a command and its value, as words or as neighbours in a list.
    (
        re.compile(
            r"(?i)((?<![\w-])--?[\w-]{0,64}?(?:pass(?:word|wd|phrase)?|secret|token|api[-_]?key|private[-_]?key"
            r"|access[-_]?key|credentials?)(?:[\"'],)?[ \t]+)(?!--?[a-z])(\"[^\"]*\"|'[^']*'|[^\s,;&\"'}\]]+)"
        ),
        rf"\1{REMOVED}",
    ),
    # The value of a header that a directive of a proxy sets, which may be anything, whatever the header is called.
    (
        re.compile(
            r"(?i)(\b(?:(?:proxy|grpc|uwsgi|auth)_set_header|add_header|fastcgi_param|(?:set|add|replace)-header)[ \t]+"
            r"[^\s;]{1,256}[ \t]+)(\"[^\"]*\"|'[^']*'|[^;\r\n]+)"
        ),
        rf"\1{REMOVED}",
    ),
    # A header or variable by a name like those of secrets, and its value after it.
    (
        re.compile(
            r"(?i)((?<![\w$-])(?:x-|\$)[\w-]{0,64}?(?:pass(?:word|wd|phrase)?|secret|token|key|credentials?|auth|cookie"
            r"|signature)[\w-]{0,64}[ \t]+)(\"[^\"]*\"|'[^']*'|[^\s,;&\"'}\]]+)"
        ),
        rf"\1{REMOVED}",
    ),
    # Keys that encode bytes: long runs of base64 with both cases and a digit, which no name of Kubernetes is.
    (re.compile(r"(?<![A-Za-z0-9+/_=-])(?=[A-Za-z0-9+/_-]*[a-z])(?=[A-Za-z0-9+/_-]*[A-Z])(?=[A-Za-z0-9+/_-]*[0-9])"
                r"[A-Za-z0-9+/_-]{40,}={0,2}(?![A-Za-z0-9+/_=-])"), REMOVED),
)  # fmt: skip
#: An argument of a command whose value is the next one.
_OPTION = re.compile(
    r"(?i)--?[\w-]{0,64}?(pass(word|wd|phrase)?|secret|token|api[-_]?key|private[-_]?key|access[-_]?key|credentials?)"
)
#: Values of annotations are kept where Kubernetes or Fairlead says what they are; those of others may be anything, such
#: as a piece of configuration in nginx.ingress.kubernetes.io/server-snippet.
_KNOWN_ANNOTATION = re.compile(
    r"^(?!([a-z0-9.-]+\.)?ingress\.kubernetes\.io/)([a-z0-9.-]+\.)?(fairlead\.dev|kubernetes\.io|k8s\.io|openyurt\.io)/"
)
#: A whole object as it was applied, with whatever was in it.
_CONTENT = ("data", "stringData", "binaryData")


def redacted_object(obj: JSONObject) -> JSONObject:
    """Return an object without secrets and without managedFields.

    Kept of data (Secret, ConfigMap) are only the names of its keys, unless it is a ConfigMap of Fairlead's own; kept of
    annotations of others are only their names.
    """
    metadata = {key: value for key, value in mapping(obj.get("metadata")).items() if key != "managedFields"}
    own = obj.get("kind") == "ConfigMap" and mapping(metadata.get("labels")).get(LABEL_MANAGED_BY) == MANAGED_BY
    kept = {key: value for key, value in obj.items() if key not in _CONTENT or own}
    for field in _CONTENT:
        if not own and obj.get(field):
            kept[field] = dict.fromkeys(mapping(obj[field]), REMOVED)
    if metadata.get("annotations"):
        annotations = mapping(metadata["annotations"])
        metadata["annotations"] = {key: _annotation(key, value) for key, value in annotations.items()}
    return cast("JSONObject", _value({**kept, "metadata": metadata}))


def _annotation(key: str, value: Any) -> Any:
    return value if _KNOWN_ANNOTATION.match(key) and key != LAST_APPLIED else REMOVED


def redacted_text(text: str) -> str:
    """Return text without what looks like a key, a token, a password, or credentials in a URL."""
    for pattern, instead in _IN_TEXT:
        text = pattern.sub(instead, text)
    return text


def _value(value: Any, name: str = "") -> Any:
    match value:
        case dict():
            # A mapping; one with a ``name`` and a ``value`` is a variable of an environment, or a header.
            obj = cast("JSONObject", value)
            match obj:
                case {"name": str(), "value": str()}:
                    obj = {**obj, "value": REMOVED}
                case _:
                    pass
            return {key: _value(value, key) for key, value in obj.items()}
        case list():
            # The text behind an option such as --token is removed.
            elements = cast("list[Any]", value)
            of_option, kept = False, list[Any]()
            for element in elements:
                is_text = isinstance(element, str)
                kept.append(REMOVED if of_option and is_text else _value(element, name))
                of_option = is_text and _OPTION.fullmatch(element) is not None
            return kept
        case _ if name not in _HARMLESS and _SECRET_NAME.search(name) and value not in (None, "", True, False):
            return REMOVED
        case str():
            return redacted_text(value)
        case _:
            return value


#: What a hub serves for people and programs.
PAGES = ("/metrics", "/readyz", "/livez")
_TIMEOUT_S = 10.0
#: The logs that processes of Fairlead write into a data directory, and what its documentation calls others.
_OURS = re.compile(r"(?:[-\w.]+-)?(?:fairlead|standalone|run|hub|agent|regions|capi|apiserver|envoy)(?:-\w+)?\.log")


class Texts(msgspec.Struct):
    """Texts by name, and why others are missing."""

    texts: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    unread: list[str] = msgspec.field(default_factory=list[str])


async def read_events(cluster: Cluster) -> list[JSONObject]:
    """Return the Events of Fairlead's components; none where they may not be read, which the objects' read says too."""
    objects, _ = await read_objects(cluster, (KindToRead(EVENTS),))
    return [event for event in objects.get(EVENTS.full_name, []) if "fairlead" in _component(event)]


def _component(event: JSONObject) -> str:
    return f"{event.get('reportingComponent') or ''} {mapping(event.get('source')).get('component') or ''}"


async def read_pages(hub_url: str) -> Texts:
    """Return the pages of a running hub."""
    read = Texts()
    timeout = aiohttp.ClientTimeout(total=_TIMEOUT_S)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        for page in PAGES:
            url = f"{hub_url.rstrip('/')}{page}"
            try:
                async with session.get(url) as answer:
                    read.texts[f"{page.lstrip('/')}.txt"] = await answer.text()
            except (aiohttp.ClientError, aiohttp.InvalidURL, TimeoutError, UnicodeDecodeError) as error:
                read.unread.append(f"{url}: {error or type(error).__name__}")
    return read


def logs_below(data_dir: Path | None) -> list[Path]:
    """Return where the logs of a hub's data directory are; ``standalone``, and several Envoys, have theirs deeper."""
    if data_dir is None:
        return []
    return [data_dir, *sorted(file for file in data_dir.rglob("envoy.log") if file.parent != data_dir)]


def read_logs(paths: Iterable[Path], *, last_bytes: int) -> Texts:
    """Return the ends of log files, and of those in a directory whose names are of Fairlead's own processes.

    What else is a log in a directory may be another program's: it is named, and not read.
    """
    read = Texts()
    for path in paths:
        files = sorted(path.glob("*.log")) if path.is_dir() else [path]
        others = [file for file in files if path.is_dir() and not _OURS.fullmatch(file.name)]
        read.unread += [
            f"{file}: not known to be a log of Fairlead; to have it in the file: --log {file}" for file in others
        ]
        for file in files:
            if file in others:
                continue
            name = "-".join(file.absolute().parts[1:])
            try:
                with file.open("rb") as log:
                    log.seek(max(0, file.stat().st_size - last_bytes))
                    read.texts[name] = log.read(last_bytes).decode(errors="replace")
            except OSError as error:
                read.unread.append(f"{file}: {error.strerror}")
    return read
