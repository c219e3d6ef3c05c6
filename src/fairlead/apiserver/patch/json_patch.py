"""Apply a JSON patch (RFC 6902) with the status codes of a Kubernetes API server.

In: a document and a list of operations. Out: the changed document (the input is consumed). A test that fails, or a path
that does not exist, is 422; an operation that makes no sense is 400. The ``jsonpatch`` package comes with the extra
``standalone``; without it JSON patches are refused. Its own messages are never passed on: they quote the document,
which the client may not be allowed to read.
"""

from __future__ import annotations

import importlib
from typing import Any, cast

from fairlead.apiserver.failure import ApiFailure, bad_request
from fairlead.apiserver.objects import Obj

MAX_OPERATIONS = 10_000
_ALSO_NEEDS = {"add": "value", "replace": "value", "test": "value", "move": "from", "copy": "from"}


def json_patch(document: Any, patch: Any) -> Any:
    """Apply ``patch`` in order and return the result."""
    try:
        library = importlib.import_module("jsonpatch")
    except ImportError as error:  # pragma: no cover - the extra is not installed
        raise bad_request("JSON patches need the optional extra: pip install 'fairlead[standalone]'") from error
    if not isinstance(patch, list):
        raise bad_request("error decoding patch: json: a JSON patch is a list of operations")
    operations = cast("list[Any]", patch)
    if len(operations) > MAX_OPERATIONS:
        message = f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {len(operations)}"
        raise ApiFailure(413, "RequestEntityTooLarge", message)
    for operation in operations:
        if not isinstance(operation, dict):
            raise bad_request("error decoding patch: json: an operation is an object")
        document = _apply(library, document, cast("Obj", operation))
    return document


def _apply(library: Any, document: Any, operation: Obj) -> Any:
    name, path = operation.get("op"), operation.get("path")
    needed = _ALSO_NEEDS.get(str(name), "path")
    if needed not in operation:
        raise bad_request(f"error decoding patch: operation {name!r} has no {needed}")
    try:
        step = library.JsonPatch.operations[str(name)](operation)
    except (KeyError, library.InvalidJsonPatch, library.JsonPointerException) as error:
        raise bad_request(f"error decoding patch: {name!r} at {path!r} is not an operation") from error
    if name == "test" and operation["value"] is None and library.JsonPointer(path).resolve(document, None) is None:
        return document  # Kubernetes reads what is missing as null
    try:
        return step.apply(document)
    except (library.JsonPatchException, library.JsonPointerException) as error:
        why = f"testing path {path} failed" if name == "test" else f"operation {name!r} at {path!r} does not apply"
        message = f"the server rejected our request due to an error in our request: {why}"
        raise ApiFailure(422, "Invalid", message) from error
