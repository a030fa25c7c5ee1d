"""Record formats whose schemas are kept in a schema registry; for sources and sinks alike."""

from .avro import Avro
from .errors import NotInFormat, RegistryUnavailable, SchemaRefused
from .json_schema import JsonSchema
from .protobuf import Protobuf
from .serde import Decoder, Encoder, Field, RegistryFormat

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
