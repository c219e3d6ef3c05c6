"""The schemas that ship with the package."""

from podless.schema.builtin import BuiltinSchemas


def test_every_built_in_definition_compiles() -> None:
    schemas = BuiltinSchemas()
    service = schemas.node("io.k8s.api.core.v1.Service")
    ports = service.properties["spec"].properties["ports"]
    assert (ports.list_type, ports.map_keys, ports.merge_key) == ("map", ("port", "protocol"), "port")
    for name in schemas.definitions:
        assert schemas.node(name) is schemas.node(name)
