"""Apply a JSON patch (RFC 6902) or merge patch (RFC 7386) with the status codes of a Kubernetes API server.

A merge patch merges mappings, removes fields by null, and replaces everything else. A JSON patch has operations.
In: a document and a patch. Out: the changed document (the input is consumed). A test that fails, a path that does not
exist, or a malformed operation is 422; what is not a list of operations is 400. The messages of the package
``jsonpatch`` are never passed on: they quote the document, which the client may not be allowed to read.
"""

from __future__ import annotations

import importlib
from typing import Any, cast

from podless.bounds import check_shape, too_deep
from podless.failure import ApiFailure, bad_request, too_large
from podless.objects import Obj, decode, encode

MAX_OPERATIONS = 10_000
#: The limit of kube-apiserver; it keeps repeated ``copy`` operations from growing a document exponentially.
MAX_COPIED_BYTES = 3 * 1024 * 1024
_ALSO_NEEDS = {"add": "value", "replace": "value", "test": "value", "move": "from", "copy": "from"}


def json_patch(document: Any, patch: Any) -> Any:
    """Return ``document`` after the operations of ``patch``, in order."""
    library = importlib.import_module("jsonpatch")  # without types
    if not isinstance(patch, list):
        raise bad_request("error decoding patch: json: a JSON patch is a list of operations")
    operations, copied = cast("list[Any]", patch), 0
    if len(operations) > MAX_OPERATIONS:
        message = f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {len(operations)}"
        raise ApiFailure(413, "RequestEntityTooLarge", message)
    for operation in operations:
        if not isinstance(operation, dict):
            raise bad_request("error decoding patch: json: an operation is an object")
        step = cast("Obj", operation)
        if step.get("op") == "copy":
            step, size_bytes = _as_add(library, document, step)
            copied += size_bytes
            if copied > MAX_COPIED_BYTES:
                raise too_large(MAX_COPIED_BYTES, "that the copy operations of a JSON patch may add up to")
        document = _apply(library, document, step)
    try:
        check_shape(encode(document))  # the operations together may exceed the limits
    except RecursionError as error:
        raise too_deep() from error
    return document


def _as_add(library: Any, document: Any, operation: Obj) -> tuple[Obj, int]:
    """Return the ``add`` operation that is equal to a ``copy``, and the bytes of JSON that it adds."""
    try:
        raw = encode(library.JsonPointer(operation["from"]).resolve(document))
    except (KeyError, TypeError, AttributeError, library.JsonPointerException):
        return operation, 0  # an invalid path: refused with the message for all operations
    except RecursionError as error:
        raise too_deep() from error
    return {"op": "add", "path": operation.get("path"), "value": decode(raw)}, len(raw)


def _apply(library: Any, document: Any, operation: Obj) -> Any:
    name, path = operation.get("op"), operation.get("path")
    needed = _ALSO_NEEDS.get(str(name), "path")
    if needed not in operation:
        raise _rejected(f"operation {name!r} has no {needed}")
    try:
        step = library.JsonPatch.operations[str(name)](operation)
    except (KeyError, library.InvalidJsonPatch, library.JsonPointerException) as error:
        raise _rejected(f"{name!r} at {path!r} is not an operation") from error
    if name == "test" and operation["value"] is None and library.JsonPointer(path).resolve(document, None) is None:
        return document  # Kubernetes reads a missing value as null
    try:
        if name == "replace" and isinstance(step.pointer.to_last(document)[0], dict) and step.pointer.parts:
            step = library.JsonPatch.operations["add"](operation)  # Kubernetes adds a member that is not there
        return step.apply(document)
    except (library.JsonPatchException, library.JsonPointerException) as error:
        why = f"testing path {path} failed" if name == "test" else f"operation {name!r} at {path!r} does not apply"
        raise _rejected(why) from error


def _rejected(why: str) -> ApiFailure:
    return ApiFailure(422, "Invalid", f"the server rejected our request due to an error in our request: {why}")


def merge_patch(document: Any, patch: Any) -> Any:
    """Return ``document`` with ``patch`` merged in (``document`` is consumed)."""
    if not isinstance(patch, dict):
        return patch
    target: Obj = cast("Obj", document) if isinstance(document, dict) else {}
    for key, value in cast("Obj", patch).items():
        if value is None:
            target.pop(key, None)
        elif isinstance(value, dict):
            target[key] = merge_patch(target.get(key), value)
        else:
            target[key] = value
    return target
