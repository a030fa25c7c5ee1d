"""Avro with a schema registry."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from checkpoint.options import flag, named_options
from formats.avro_strict import checker
from formats.avro_values import Name, namer, plain
from formats.errors import NotInFormat, SchemaRefused
from formats.json_text import JsonTextFormat
from formats.serde import Field, Subject

_FRAME: Final = 5
"""Bytes in front of the content."""


@named_options
class Avro(JsonTextFormat):
    """Records are dicts (or whatever else the schema describes).

    Logical types arrive as Python's objects (Decimal, date, time, datetime, UUID), and a sink takes these. It refuses
    what would not be read back equal.

    Records of a union that has several of them, or a map beside, arrive with their full name as `"-type"`, and a sink
    writes them as what that says. Without, it takes the one branch that fits, and refuses a record that fits several.

    Args:
        registry: its URL, or a dict of settings of `confluent_kafka.schema_registry.SchemaRegistryClient` (`url`,
            `basic.auth.user.info`, `ssl.ca.location` …).
        schema: JSON, as text or as Python objects. At a source the reader's schema, to which records are resolved;
            `None` = each as it was written. At a sink the schema to write; `None` = the newest of the subject.
        subject: where the schema of a topic is registered: `"topic"` (`<topic>-value`, `<topic>-key`), `"record"` (the
            record's full name), `"topic_record"` (`<topic>-<full name>`), or a function of topic, field ("key" or
            "value") and full name.
        register: whether a sink registers its schema where the subject doesn't have it.
        config: further settings of confluent-kafka's serializer or deserializer (`normalize.schemas` …).
        round_floats: whether a sink writes to `float` what it holds only rounded, such as 0.1.

    Raises:
        ValueError: an option has a value that it can't have.
        ImportError: the extra `registry` isn't installed.
    """

    name = "Avro"
    schema_type = "AVRO"
    modules = ("fastavro", "confluent_kafka.schema_registry.avro")

    def __init__(
        self,
        registry: str | Mapping[str, Any],
        schema: str | Mapping[str, Any] | Sequence[Any] | None = None,
        subject: Subject | Callable[[str, Field, str | None], str] = "topic",
        register: bool = True,
        config: Mapping[str, Any] | None = None,
        round_floats: bool = False,
    ) -> None:
        text = json.dumps(schema) if isinstance(schema, list | tuple) else schema  # of a union
        super().__init__(registry, text, subject, register, config)  # type: ignore[arg-type]  # which it checks
        flag(round_floats, "round_floats")
        self.round_floats = round_floats

    def _check_schema(self) -> None:
        if self.schema is None:
            return
        from fastavro.schema import parse_schema

        try:
            parse_schema(json.loads(self.schema))
        except Exception as error:  # fastavro raises whatever it stumbles over
            raise SchemaRefused(f"the Avro schema is not valid: {type(error).__name__}: {error}") from error

    def _record_name(self) -> str | None:
        parsed = self._parsed
        if not isinstance(parsed, dict) or "name" not in parsed:
            return None
        name, namespace = parsed["name"], parsed.get("namespace")
        return f"{namespace}.{name}" if namespace and "." not in name else str(name)

    def _deserializer(self, client: Any, field: Field) -> Callable[[bytes, Any], Any]:
        from confluent_kafka.schema_registry.avro import AvroDeserializer

        config = self._deserializer_config(field)
        deserialize = AvroDeserializer(client, self.schema, return_record_name=True, conf=config)
        by_id: dict[bytes, Name | None] = {}
        """What puts names into records, by the id of the writer's schema."""
        of_reader = None if self.schema is None else namer(self._parsed)

        def decode(data: bytes, context: Any) -> Any:
            value = deserialize(data, context)
            name = of_reader
            if self.schema is None:
                id = data[1:5]
                if id not in by_id:
                    by_id[id] = namer(json.loads(client.get_schema(int.from_bytes(id, "big")).schema_str))
                name = by_id[id]
            return plain(value if name is None else name(value))

        return decode

    def _serializer(self, client: Any, subject: str, field: Field) -> Callable[[Any, Any], bytes]:
        from confluent_kafka.schema_registry.avro import AvroSerializer

        schema, config = self._schema_to_write(client, subject, field)
        serialize: Callable[[Any, Any], bytes] = AvroSerializer(client, schema, conf=config)
        check = checker(json.loads(schema.schema_str), self.round_floats)

        def encode(value: Any, context: Any) -> bytes:
            data = serialize(check(value, "value"), context)
            if len(data) <= _FRAME:
                raise NotInFormat("value has no bytes in Avro, which readers take for a damaged message")
            return data

        return encode
