"""The formats of a Kafka source's keys and values: checked, named, and made into functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

from formats import Decoder, Field, JsonSchema, RegistryFormat, value_type
from formats.json_values import loads, loads_all
from sources.kafka.arrow_json import ArrowJson

Format = Literal["bytes", "str", "json"] | RegistryFormat | ArrowJson

PLAIN: Final[dict[Any, Callable[[bytes], Any]]] = {"bytes": bytes, "str": bytes.decode, "json": loads}
"""Those that need no topic. Their functions raise ValueError on bad content."""


def whole_batches(kind: object, into: Any = None) -> Callable[[Sequence[bytes]], list[Any]] | None:
    """The decoder of a format that needs no topic. It raises ValueError or TypeError for what it can't decode.

    `into`: what values are turned into; `None` = they stay what they are.
    """
    if into is not None:
        if kind != "json":
            return None
        return value_type.from_json_all(into)
    if kind == "json":
        return loads_all
    plain = PLAIN.get(kind) if isinstance(kind, str) else None
    return None if plain is None else lambda raw: list(map(plain, raw))


def check(option: str, value: object) -> None:
    """
    Raises:
        ValueError: `value` is no format of a key or a value.
    """
    if isinstance(value, RegistryFormat) or (isinstance(value, str) and value in PLAIN):
        return
    if isinstance(value, ArrowJson):
        if option == "value_format":
            return
        raise ValueError(f'{option} can\'t be ArrowJson, which is for values; use "json"')
    raise ValueError(
        f"{option} must be one of {', '.join(PLAIN)}, or a format such as Avro(…), JsonSchema(…), Protobuf(…)"
        f"{' or ArrowJson(…)' if option == 'value_format' else ''}; not {value!r}"
    )


def check_value_type(into: Any, kind: Format) -> None:
    """
    Raises:
        ValueError: values can't be turned into that, or not those of the format.
    """
    if into is None:
        return
    if kind != "json" and not isinstance(kind, RegistryFormat):
        raise ValueError(f'value_type needs value_format="json", Avro(…), JsonSchema(…) or Protobuf(…), not {kind!r}')
    value_type.check(into)


def typed_decoder(kind: Format, into: Any) -> Decoder:
    """Like `decoder`, for values that are turned into `into`."""
    if kind == "json":
        make = value_type.from_json(into)
        return lambda content, topic: make(content)
    plain, of_json = decoder(kind, "value"), isinstance(kind, JsonSchema)
    convert = value_type.from_json_value(into) if of_json else value_type.from_value(into)
    return lambda content, topic: convert(plain(content, topic))


def decoder(kind: Format, field: Field) -> Decoder:
    """
    Raises (the function):
        ValueError: the bytes are not of the format.
        RegistryUnavailable: the schema registry had to be asked and didn't answer.
    """
    if isinstance(kind, RegistryFormat):
        return kind.decoder(field)
    plain = PLAIN[kind]
    return lambda content, topic: plain(content)
