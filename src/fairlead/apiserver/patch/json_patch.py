"""What does a JSON patch make of a document? RFC 6902.

In: a document and a list of operations. Out: the changed document (the input is consumed). A test that fails, or a path
that does not exist, is 422, as on a Kubernetes API server; an operation that makes no sense is 400.
"""

from __future__ import annotations

from typing import Any, cast

from fairlead.apiserver.failure import ApiFailure, bad_request
from fairlead.apiserver.objects import Obj, clone

MAX_OPERATIONS = 10_000


def json_patch(document: Any, patch: Any) -> Any:
    """Apply ``patch`` in order and return the result."""
    if not isinstance(patch, list):
        raise bad_request("error decoding patch: json: a JSON patch is a list of operations")
    operations = cast("list[Any]", patch)
    if len(operations) > MAX_OPERATIONS:
        message = f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {len(operations)}"
        raise ApiFailure(413, "RequestEntityTooLarge", message)
    for operation in operations:
        if not isinstance(operation, dict):
            raise bad_request("error decoding patch: json: an operation is an object")
        document = _apply(document, cast("Obj", operation))
    return document


def _apply(document: Any, operation: Obj) -> Any:
    name, path = operation.get("op"), _steps(operation.get("path"))
    if name in {"add", "replace", "test"} and "value" not in operation:
        raise bad_request(f"error decoding patch: operation {name!r} has no value")
    match name:
        case "add":
            return _add(document, path, clone(operation["value"]))
        case "remove":
            return _remove(document, path)
        case "replace":
            _get(document, path)
            return _put(document, path, clone(operation["value"]))
        case "move":
            source = _steps(operation.get("from"))
            value = _get(document, source)
            return _add(_remove(document, source), path, value)
        case "copy":
            return _add(document, path, clone(_get(document, _steps(operation.get("from")))))
        case "test":
            if _get_or_none(document, path) != operation["value"]:
                raise _refused(f"testing path {operation.get('path')} failed")
            return document
        case _:
            raise bad_request(f"error decoding patch: unexpected kind: {name}")


def _refused(why: str) -> ApiFailure:
    return ApiFailure(422, "Invalid", f"the server rejected our request due to an error in our request: {why}")


def _steps(pointer: Any) -> list[str]:
    if not isinstance(pointer, str) or (pointer and not pointer.startswith("/")):
        raise bad_request(f"error decoding patch: {pointer!r} is not a JSON pointer")
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]


def _index(values: list[Any], step: str, *, end: int) -> int:
    if not step.removeprefix("-").isdigit():
        raise _refused(f"{step!r} is not an index")
    index = int(step)
    if not 0 <= index < end:
        raise _refused(f"index {step} is out of bounds of a list of {len(values)}")
    return index


def _get(document: Any, path: list[str]) -> Any:
    for step in path:
        if isinstance(document, dict) and step in document:
            document = cast("Obj", document)[step]
        elif isinstance(document, list):
            values = cast("list[Any]", document)
            document = values[_index(values, step, end=len(values))]
        else:
            raise _refused(f"the path /{'/'.join(path)} does not exist")
    return document


def _get_or_none(document: Any, path: list[str]) -> Any:
    try:
        return _get(document, path)
    except ApiFailure:
        return None


def _put(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    parent = _get(document, path[:-1])
    if isinstance(parent, list):
        values = cast("list[Any]", parent)
        values[_index(values, path[-1], end=len(values))] = value
    else:
        parent[path[-1]] = value
    return document


def _add(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    parent, last = _get(document, path[:-1]), path[-1]
    if isinstance(parent, list):
        values = cast("list[Any]", parent)
        values.insert(len(values) if last == "-" else _index(values, last, end=len(values) + 1), value)
    elif isinstance(parent, dict):
        parent[last] = value
    else:
        raise _refused(f"the path /{'/'.join(path[:-1])} is not a container")
    return document


def _remove(document: Any, path: list[str]) -> Any:
    _get(document, path)
    if not path:
        return None
    parent = _get(document, path[:-1])
    if isinstance(parent, list):
        values = cast("list[Any]", parent)
        del values[_index(values, path[-1], end=len(values))]
    else:
        del parent[path[-1]]
    return document
