"""The OpenAPI v2 document as protobuf."""

from types import SimpleNamespace
from typing import Any

from podless.http.handler import v2_protobuf


def test_the_document_names_the_patch_operation_of_each_kind() -> None:
    kind: Any = SimpleNamespace(
        group="apps", version="v1", kind="Deployment", plural="deployments", namespaced=True, prefix="/apis/apps/v1"
    )
    head = b"\n\x032.0\x12\x0e\n\x08Fairlead\x12\x02v1"
    path = b"/apis/apps/v1/namespaces/{namespace}/deployments/{name}"
    document = v2_protobuf([kind])
    assert document.startswith(head + b"B")  # field 8: paths
    assert document.endswith(b"J\x00")  # field 9: definitions, empty
    assert path in document
    assert document.count(b'\x12\x05query"\x0ffieldValidation2\x06string') == 1
    assert v2_protobuf([]) == head + b"B\x00J\x00"
