"""Protobuf with a schema registry."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any

from checkpoint.options import flag, named_options
from formats.serde import Field, RegistryFormat, Subject


@named_options
class Protobuf(RegistryFormat):
    """Records are dicts with the names of the message's fields (see `protobuf_values`).

    Args:
        registry: as of `Avro`.
        subject: as of `Avro`; the record's name is the message's full name.
        register: as of `Avro`.
        config: as of `Avro`.
        message_type: a generated class. Its descriptor travels to the workers, the module that it is from need not.

        round_floats: whether a sink writes to fields of type float what they hold only rounded, such as 0.1.

    Raises:
        ValueError: an option has a value that it can't have.
        ImportError: the extra `registry` isn't installed.
    """

    name = "Protobuf"
    modules = ("google.protobuf", "confluent_kafka.schema_registry.protobuf")

    def __init__(
        self,
        registry: str | Mapping[str, Any],
        message_type: type,
        subject: Subject | Callable[[str, Field, str | None], str] = "topic",
        register: bool = True,
        config: Mapping[str, Any] | None = None,
        round_floats: bool = False,
    ) -> None:
        super().__init__(registry, subject, register, config)
        flag(round_floats, "round_floats")
        self.round_floats = round_floats
        descriptor = getattr(message_type, "DESCRIPTOR", None)
        if descriptor is None or not hasattr(descriptor, "full_name"):
            raise ValueError(f"message_type must be a class that protoc has generated, not {message_type!r}")
        self.message = str(descriptor.full_name)
        self.files = _files(descriptor.file)
        """A serialised `FileDescriptorSet`, every file behind those that it imports."""

    def message_class(self) -> Any:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

        pool = descriptor_pool.DescriptorPool()
        for file in descriptor_pb2.FileDescriptorSet.FromString(self.files).file:
            pool.Add(file)
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(self.message))

    def check_sink(self, topic: str | None, field: Field) -> None:
        imports = self.message_class().DESCRIPTOR.file.dependencies
        if all(file.name.startswith("google/protobuf/") for file in imports):
            super().check_sink(topic, field)
        else:
            # What it imports is registered first and referred to by version, so there is nothing to compare yet.
            super().check_sink(None, field)

    def _check_schema(self) -> None:
        return  # protoc has

    def _schema(self) -> Any:
        from confluent_kafka.schema_registry import Schema

        file = self.message_class().DESCRIPTOR.file
        return Schema(base64.b64encode(file.serialized_pb).decode(), "PROTOBUF")

    def _record_name(self) -> str | None:
        return self.message

    def _deserializer(self, client: Any, field: Field) -> Callable[[bytes, Any], Any]:
        from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer

        from formats.protobuf_values import to_plain

        deserialize = ProtobufDeserializer(self.message_class(), self._deserializer_config(field), client)
        return lambda data, context: to_plain(deserialize(data, context))

    def _serializer(self, client: Any, subject: str, field: Field) -> Callable[[Any, Any], bytes]:
        from confluent_kafka.schema_registry.protobuf import ProtobufSerializer

        from formats.protobuf_values import from_plain

        kind = self.message_class()
        serialize = ProtobufSerializer(kind, client, self._serializer_config(field))
        return lambda value, context: serialize(from_plain(kind(), value, self.round_floats), context)


def _files(file: Any) -> bytes:
    from google.protobuf import descriptor_pb2

    found: dict[str, Any] = {}

    def add(one: Any) -> None:
        if one.name in found:
            return
        for dependency in one.dependencies:
            add(dependency)
        found[one.name] = one

    add(file)
    files = descriptor_pb2.FileDescriptorSet()
    for one in found.values():
        one.CopyToProto(files.file.add())
    return bytes(files.SerializeToString())
