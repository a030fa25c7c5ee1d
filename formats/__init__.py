"""Record formats whose schemas are kept in a schema registry; for sources and sinks alike."""

from formats.avro import Avro
from formats.errors import NotInFormat, RegistryUnavailable, SchemaRefused
from formats.json_schema import JsonSchema
from formats.protobuf import Protobuf
from formats.serde import Decoder, Encoder, Field, RegistryFormat

__all__ = [
    "Avro",
    "Decoder",
    "Encoder",
    "Field",
    "JsonSchema",
    "NotInFormat",
    "Protobuf",
    "RegistryFormat",
    "RegistryUnavailable",
    "SchemaRefused",
]
