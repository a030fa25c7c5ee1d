"""Avro, JSON Schema and Protobuf with a schema registry: both ways, and whose fault an error is."""

from __future__ import annotations

import enum
import pickle
import sys
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import pydantic
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from checkpoint.codec import decode, encode
from formats import NotInFormat, RegistryFormat, RegistryUnavailable, SchemaRefused
from pipeline.testing import SchemaRegistry
from sources import Avro, JsonSchema, Protobuf
from sources.kafka.formats import typed_decoder

ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [{"name": "user", "type": "string"}, {"name": "amount", "type": "double"}],
}
WITH_NOTE = {**ORDER, "fields": [*ORDER["fields"], {"name": "note", "type": "string", "default": "-"}]}
WITH_REQUIRED = {**ORDER, "fields": [*ORDER["fields"], {"name": "must", "type": "string"}]}
LOGICAL = {
    "type": "record",
    "name": "All",
    "fields": [
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "clock", "type": {"type": "int", "logicalType": "time-millis"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-millis"}},
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
        {
            "name": "some",
            "type": ["null", {"type": "array", "items": {"type": "int", "logicalType": "date"}}],
            "default": None,
        },
        {
            "name": "prices",
            "type": {
                "type": "map",
                "values": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}],
            },
        },
    ],
}
AT = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
OBJECTS = {
    "price": Decimal("-12.50"),
    "day": date(2026, 1, 2),
    "clock": time(3, 4, 5, 678000),
    "at": AT,
    "local": datetime(2026, 1, 2, 3, 4, 5),
    "id": UUID(int=7),
    "some": [date(1969, 12, 31)],
    "prices": {"a": Decimal("1.00"), "b": None},
}
PERSON = {
    "title": "Person",
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name"],
}


def message_type(*more: str) -> type:
    """As protoc would generate it: scalars, an optional one, a nested message, an enum, a list and a map."""
    f = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="trip.proto", package="shop", syntax="proto3")
    color = file.enum_type.add(name="Color")
    for number, name in enumerate(("RED", "BLUE")):
        color.value.add(name=name, number=number)
    trip = file.message_type.add(name="Trip")
    stop = trip.nested_type.add(name="Stop")
    stop.field.add(name="city", number=1, type=f.TYPE_STRING, label=f.LABEL_OPTIONAL)
    entry = trip.nested_type.add(name="SeatsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=f.TYPE_STRING, label=f.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=f.TYPE_INT32, label=f.LABEL_OPTIONAL)
    trip.field.add(name="id", number=1, type=f.TYPE_INT64, label=f.LABEL_OPTIONAL)
    trip.field.add(name="raw", number=2, type=f.TYPE_BYTES, label=f.LABEL_OPTIONAL)
    trip.oneof_decl.add(name="_rank")
    trip.field.add(
        name="rank", number=3, type=f.TYPE_INT32, label=f.LABEL_OPTIONAL, oneof_index=0, proto3_optional=True
    )
    trip.field.add(name="first", number=4, type=f.TYPE_MESSAGE, type_name=".shop.Trip.Stop", label=f.LABEL_OPTIONAL)
    trip.field.add(name="stops", number=5, type=f.TYPE_MESSAGE, type_name=".shop.Trip.Stop", label=f.LABEL_REPEATED)
    trip.field.add(name="color", number=6, type=f.TYPE_ENUM, type_name=".shop.Color", label=f.LABEL_OPTIONAL)
    trip.field.add(
        name="seats", number=7, type=f.TYPE_MESSAGE, type_name=".shop.Trip.SeatsEntry", label=f.LABEL_REPEATED
    )
    for number, name in enumerate(more, 8):
        trip.field.add(name=name, number=number, type=f.TYPE_STRING, label=f.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found: type = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Trip"))
    return found


TRIP = {
    "id": 2**62,
    "raw": b"\x00\xff",
    "rank": None,
    "first": None,
    "stops": [{"city": "Rom"}, {"city": ""}],
    "color": "BLUE",
    "seats": {"a": 1},
}


def of_kind(kind: str, url: str, **options: Any) -> tuple[RegistryFormat, dict[str, Any]]:
    """A format and a value of it."""
    if kind == "avro":
        return Avro(url, ORDER, **options), {"user": "ann", "amount": 1.5}
    if kind == "json":
        return JsonSchema(url, PERSON, **options), {"name": "ann", "age": 7}
    return Protobuf(url, message_type(), **options), TRIP


KINDS = ("avro", "json", "protobuf")


@pytest.mark.parametrize("kind", KINDS)
def test_values_come_back_as_they_went_in_the_registrys_wire_format(registry: SchemaRegistry, kind: str) -> None:
    one, value = of_kind(kind, registry.url)
    one = pickle.loads(pickle.dumps(one))  # as it reaches a subtask
    data = one.encoder("value")(value, "orders")
    assert data[:5] == b"\x00\x00\x00\x00\x01"
    assert one.decoder("value")(data, "orders") == value
    assert decode(encode(value)) == value
    assert len(registry.schemas("orders-value")) == 1


class Level(enum.Enum):
    HIGH = "high"


class Born(pydantic.BaseModel):
    name: str
    age: int
    day: date
    level: Level
    paid: Decimal
    tags: tuple[str, ...] = ()


def test_a_model_is_made_of_what_json_has_where_the_schema_is_json(registry: SchemaRegistry) -> None:
    """Of Python's values it would take no text for a date."""
    one = JsonSchema(registry.url, {"type": "object"})
    value = {"name": "ann", "age": 7, "day": "2020-02-29", "level": "high", "paid": "1.50", "tags": ["a"]}
    decoder = typed_decoder(one, Born)
    made = decoder(one.encoder("value")(value, "people"), "people")
    expected = Born(name="ann", age=7, day=date(2020, 2, 29), level=Level.HIGH, paid=Decimal("1.50"), tags=("a",))
    assert made == expected
    with pytest.raises(NotInFormat, match=r"should be a valid integer .* at `\$\.age`"):
        decoder(one.encoder("value")({**value, "age": "7"}, "people"), "people")


@pytest.mark.parametrize("kind", KINDS)
def test_the_registry_is_asked_once_not_for_every_record(registry: SchemaRegistry, kind: str) -> None:
    one, value = of_kind(kind, registry.url)
    encoder, decoder = one.encoder("value"), one.decoder("value")
    decoder(encoder(value, "orders"), "orders")
    asked = len(registry.requests)
    for _ in range(20):
        decoder(encoder(value, "orders"), "orders")
    assert len(registry.requests) == asked


# -- whose fault ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("data", "match"),
    [
        (b"", "zero byte"),
        (b'{"user": "ann"}', "zero byte"),
        (b"\x01\x00\x00\x00\x01\x00", "zero byte"),
        (b"\x00\x00\x00", "zero byte"),
        (b"\x00\x00\x00\x03\xe7\x02a", "has no schema 999"),
        (b"\x00\x00\x00\x00\x01\xff\xff\xff", "schema 1: "),
    ],
)
def test_bytes_that_are_not_of_the_format_are_a_bad_record(
    registry: SchemaRegistry, kind: str, data: bytes, match: str
) -> None:
    one, value = of_kind(kind, registry.url)
    one.encoder("value")(value, "orders")
    decoder = one.decoder("value")
    with pytest.raises(NotInFormat, match=match):
        decoder(data, "orders")


def test_a_schema_that_the_registry_does_not_know_is_not_asked_for_with_every_record(registry: SchemaRegistry) -> None:
    decoder = Avro(registry.url).decoder("value")
    for _ in range(50):
        with pytest.raises(NotInFormat, match="has no schema 7"):
            decoder(b"\x00\x00\x00\x00\x07abc", "orders")
    assert len(registry.requests) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_registry_that_is_not_there_says_nothing_about_the_record(registry: SchemaRegistry, kind: str) -> None:
    settings = {"url": registry.url, "max.retries": 0, "timeout": 5}
    one, value = of_kind(kind, settings)  # type: ignore[arg-type]
    data = one.encoder("value")(value, "orders")
    decoder, encoder = one.decoder("value"), one.encoder("value")
    registry.stop()
    for broken in (lambda: decoder(data, "orders"), lambda: encoder(value, "orders")):
        with pytest.raises(RegistryUnavailable, match=r"127\.0\.0\.1:\d+ doesn't answer"):
            broken()


@pytest.mark.parametrize("status", [401, 403, 404, 429, 500, 503])
def test_a_registry_that_refuses_says_nothing_about_the_record(registry: SchemaRegistry, status: int) -> None:
    one, value = of_kind("avro", {"url": registry.url, "max.retries": 0})  # type: ignore[arg-type]
    data = one.encoder("value")(value, "orders")
    decoder, encoder = one.decoder("value"), one.encoder("value")
    registry.fail_with = status
    for broken in (
        lambda: decoder(data, "orders"),
        lambda: encoder(value, "orders"),
        lambda: one.check_source("t", "value"),
    ):
        with pytest.raises(RegistryUnavailable, match="refuses"):
            broken()
    registry.fail_with = None
    assert decoder(data, "orders") == value  # nothing of it sticks


def test_a_short_failure_of_the_registry_is_sat_out(registry: SchemaRegistry) -> None:
    one, value = of_kind("avro", {"url": f"http://127.0.0.1:1,{registry.url}", "max.retries": 0})  # type: ignore[arg-type]
    assert one.decoder("value")(one.encoder("value")(value, "orders"), "orders") == value


def test_credentials_are_sent_and_never_shown() -> None:
    with SchemaRegistry(user="job", password="s3cret") as registry:
        good, value = of_kind("avro", {"url": registry.url, "basic.auth.user.info": "job:s3cret"})  # type: ignore[arg-type]
        assert good.decoder("value")(good.encoder("value")(value, "t"), "t") == value
        in_url = Avro(registry.url.replace("//", "//job:wrong@"))
        with pytest.raises(RegistryUnavailable, match=r"401.*credentials") as refused:
            in_url.check_source("t", "value")
        assert "wrong" not in f"{refused.value} {in_url!r}"
        assert "s3cret" not in repr(good)


@pytest.mark.parametrize("registry_value", ["localhost:8081", {"basic.auth.user.info": "a:b"}, None, {"url": 5}])
def test_what_is_no_registry_is_refused(registry_value: Any) -> None:
    with pytest.raises(ValueError, match="registry must be a URL"):
        Avro(registry_value)


def test_settings_that_the_client_does_not_know_are_refused_at_the_start(registry: SchemaRegistry) -> None:
    with pytest.raises(ValueError, match=r"Unrecognized properties: colour"):
        Avro({"url": registry.url, "colour": "red"}).check_source("t", "value")


@pytest.mark.parametrize("kind", KINDS)
def test_settings_that_the_serializers_do_not_know_are_refused_at_the_start(
    registry: SchemaRegistry, kind: str
) -> None:
    one, _ = of_kind(kind, registry.url, config={"colour": "red"})
    says = f"config of {one} is not what confluent-kafka's %s takes: Unrecognized properties: colour"
    for topic in ("orders", None):
        with pytest.raises(ValueError, match=says % "serializer"):
            one.check_sink(topic, "value")
    if kind != "protobuf":  # whose deserializer takes anything
        with pytest.raises(ValueError, match=says % "deserializer"):
            one.check_source("orders", "value")


def test_settings_of_a_sink_that_takes_the_newest_schema_are_checked_once_it_is_there(registry: SchemaRegistry) -> None:
    one = Avro(registry.url, config={"colour": "red"})
    with pytest.raises(SchemaRefused, match="has no subject 'orders-value'"):
        one.check_sink("orders", "value")
    registry.register("orders-value", ORDER)
    with pytest.raises(ValueError, match="Unrecognized properties: colour"):
        one.check_sink("orders", "value")


def test_settings_of_a_serializer_only_are_a_sinks(registry: SchemaRegistry) -> None:
    one = Avro(registry.url, ORDER, config={"normalize.schemas": True})
    one.check_sink("orders", "value")
    one.check_sink(None, "value")
    with pytest.raises(ValueError, match=r"normalize\.schemas"):
        one.check_source("orders", "value")


@pytest.mark.parametrize(
    ("kind", "package"), [("avro", "fastavro"), ("json", "jsonschema"), ("protobuf", "google.protobuf")]
)
def test_a_package_that_is_missing_is_named_with_the_extra_that_brings_it(
    monkeypatch: pytest.MonkeyPatch, kind: str, package: str
) -> None:
    made = message_type()
    monkeypatch.setitem(sys.modules, package, None)  # as if it weren't installed
    with pytest.raises(ImportError, match=rf"{package}.*weir-streams\[registry\]"):
        Protobuf("http://localhost:1", made) if kind == "protobuf" else of_kind(kind, "http://localhost:1")


# -- the sink's values and schemas ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("avro", {"user": "ann"}),
        ("avro", {"user": 5, "amount": 1.0}),
        ("avro", "ann"),
        ("json", {"age": 7}),
        ("json", {"name": "ann", "age": "7"}),
        ("protobuf", {"id": "x"}),
        ("protobuf", {"colour": "BLUE"}),
        ("protobuf", {"color": "GREEN"}),
        ("protobuf", {"stops": [{"town": "Rom"}]}),
        ("protobuf", [1]),
    ],
)
def test_values_that_do_not_fit_the_schema_are_refused(registry: SchemaRegistry, kind: str, value: Any) -> None:
    one, _ = of_kind(kind, registry.url)
    with pytest.raises(NotInFormat):
        one.encoder("value")(value, "orders")


def test_an_incompatible_schema_is_refused_at_the_start_and_registered_nowhere(registry: SchemaRegistry) -> None:
    registry.register("orders-value", ORDER)
    refused = Avro(registry.url, WITH_REQUIRED)
    with pytest.raises(SchemaRefused, match="refuses the schema for subject 'orders-value': it is not compatible"):
        refused.check_sink("orders", "value")
    with pytest.raises(SchemaRefused, match=r"incompatible with an earlier schema.*409"):
        refused.encoder("value")({"user": "a", "amount": 1.0, "must": "x"}, "orders")
    Avro(registry.url, WITH_NOTE).check_sink("orders", "value")
    assert len(registry.schemas("orders-value")) == 1


def test_a_sink_that_may_not_register_finds_its_schema_or_says_so(registry: SchemaRegistry) -> None:
    one = Avro(registry.url, ORDER, register=False)
    for check in (
        lambda: one.check_sink("orders", "value"),
        lambda: one.encoder("value")({"user": "a", "amount": 1.0}, "orders"),
    ):
        with pytest.raises(SchemaRefused, match="register=True"):
            check()
    registry.register("orders-value", one.schema or "")
    one.check_sink("orders", "value")
    assert one.encoder("value")({"user": "a", "amount": 1.0}, "orders")[:5] == b"\x00\x00\x00\x00\x01"


def test_without_a_schema_a_sink_writes_with_the_newest_of_the_subject(registry: SchemaRegistry) -> None:
    newest = Avro(registry.url)
    with pytest.raises(SchemaRefused, match="has no subject 'orders-value'"):
        newest.check_sink("orders", "value")
    registry.register("orders-value", ORDER)
    registry.register("orders-value", WITH_NOTE)
    newest.check_sink("orders", "value")
    data = newest.encoder("value")({"user": "a", "amount": 1.0, "note": "n"}, "orders")
    assert data[:5] == b"\x00\x00\x00\x00\x02"
    assert newest.decoder("value")(data, "orders")["note"] == "n"


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        ("topic", "orders-key"),
        ("record", "shop.Order"),
        ("topic_record", "orders-shop.Order"),
        (lambda topic, field, name: f"{field}/{topic}/{name}", "key/orders/shop.Order"),
    ],
)
def test_the_subject_is_named_as_asked_for(registry: SchemaRegistry, subject: Any, expected: str) -> None:
    one, value = of_kind("avro", registry.url, subject=subject)
    one.check_sink("orders", "key")
    data = one.encoder("key")(value, "orders")
    assert len(registry.schemas(expected)) == 1
    assert one.decoder("key")(data, "orders") == value


def test_each_topic_has_its_subject(registry: SchemaRegistry) -> None:
    one, value = of_kind("avro", registry.url)
    encoder = one.encoder("value")
    assert encoder(value, "a") == encoder(value, "b") == encoder(value, "a")
    assert [len(registry.schemas(f"{topic}-value")) for topic in "ab"] == [1, 1]


# -- evolution --------------------------------------------------------------------------------------------------------


def test_a_reader_gets_records_of_all_versions_in_its_own_schema(registry: SchemaRegistry) -> None:
    old = Avro(registry.url, ORDER).encoder("value")({"user": "a", "amount": 1.0}, "orders")
    new = Avro(registry.url, WITH_NOTE).encoder("value")({"user": "b", "amount": 2.0, "note": "n"}, "orders")
    as_written, old_reader, new_reader = (
        Avro(registry.url, schema).decoder("value") for schema in (None, ORDER, WITH_NOTE)
    )
    assert [set(as_written(data, "orders")) for data in (old, new)] == [{"user", "amount"}, {"user", "amount", "note"}]
    assert [set(old_reader(data, "orders")) for data in (old, new)] == [{"user", "amount"}] * 2
    assert [new_reader(data, "orders")["note"] for data in (old, new)] == ["-", "n"]
    impossible = Avro(registry.url, WITH_REQUIRED).decoder("value")
    with pytest.raises(NotInFormat, match=r"schema 1: .*must"):
        impossible(old, "orders")


def test_a_protobuf_reader_leaves_out_fields_that_it_does_not_know(registry: SchemaRegistry) -> None:
    newer = Protobuf(registry.url, message_type("extra"))
    data = newer.encoder("value")({"id": 1, "extra": "x"}, "trips")
    assert newer.decoder("value")(data, "trips")["extra"] == "x"
    assert Protobuf(registry.url, message_type()).decoder("value")(data, "trips") == {
        **dict.fromkeys(TRIP),
        "id": 1,
        "raw": b"",
        "stops": [],
        "color": "RED",
        "seats": {},
    }


# -- values between steps ---------------------------------------------------------------------------------------------


def test_avros_logical_types_arrive_as_they_were_written_and_travel(registry: SchemaRegistry) -> None:
    one = Avro(registry.url, LOGICAL)
    before = repr(OBJECTS)
    data = one.encoder("value")(OBJECTS, "all")
    found = one.decoder("value")(data, "all")
    assert found == OBJECTS
    assert {name: type(item) for name, item in found.items()} == {name: type(item) for name, item in OBJECTS.items()}
    assert decode(encode(found)) == OBJECTS
    assert repr(OBJECTS) == before  # a record may be written elsewhere, too
    for name, text in (("price", "1.23"), ("day", "2026-01-02"), ("clock", "03:04:05"), ("id", str(UUID(int=7)))):
        with pytest.raises(NotInFormat, match=f"'{name}'"):
            one.encoder("value")({**OBJECTS, name: text}, "all")


def test_a_record_that_contains_itself_comes_through(registry: SchemaRegistry) -> None:
    schema = {
        "type": "record",
        "name": "Node",
        "fields": [
            {"name": "day", "type": {"type": "int", "logicalType": "date"}},
            {"name": "next", "type": ["null", "Node"], "default": None},
        ],
    }
    one = Avro(registry.url, schema)
    value = {"day": date(2026, 1, 2), "next": {"day": date(2026, 1, 3), "next": None}}
    assert one.decoder("value")(one.encoder("value")(value, "t"), "t") == value


def test_text_in_a_union_that_takes_text_stays_text(registry: SchemaRegistry) -> None:
    schema = {
        "type": "record",
        "name": "Either",
        "fields": [{"name": "x", "type": ["string", {"type": "int", "logicalType": "date"}]}],
    }
    one = Avro(registry.url, schema)
    for value in ("2026-01-02", "text", date(2026, 1, 2)):
        assert one.decoder("value")(one.encoder("value")({"x": value}, "t"), "t") == {"x": value}
