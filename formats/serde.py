"""What the registry formats have in common: subjects, the wire format, and whose fault an error is."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

from checkpoint.options import flag
from formats.errors import NotInFormat, SchemaRefused
from formats.registry import Registry, require, unknown, unknown_schema

Field = Literal["key", "value"]
Subject = Literal["topic", "record", "topic_record"]
Decoder = Callable[[bytes, str], Any]
"""Takes the bytes and the topic that they come from."""
Encoder = Callable[[Any, str], bytes]
"""Takes the value and the topic that it goes to."""

_UNKNOWN_FOR_S: Final = 10.0
"""How long a schema that the registry doesn't know is not asked for again; every record may name it."""


class RegistryFormat(ABC):
    """A definition; made on the driver, sent to the subtasks, where clients are made from it.

    The wire format is Confluent's: a zero byte, the schema's id in four bytes, and the content.
    """

    name: str
    modules: tuple[str, ...]
    """What has to be installed beside confluent-kafka."""

    def __init__(
        self,
        registry: str | Mapping[str, Any],
        subject: Subject | Callable[[str, Field, str | None], str],
        register: bool,
        config: Mapping[str, Any] | None,
    ) -> None:
        require(self.name, *self.modules)
        self.registry = Registry.of(registry)
        if subject not in ("topic", "record", "topic_record") and not callable(subject):
            raise ValueError(
                'subject must be "topic", "record", "topic_record", or a function of topic, field and the record\'s '
                f"name; not {subject!r}"
            )
        flag(register, "register")
        self.subject = subject
        self.register = register
        if config is not None and not isinstance(config, Mapping):
            raise ValueError(f"config must be a dict of settings, not {config!r}")
        self.config = dict(config or {})
        for option in self.config:
            if option.startswith("subject.name.strategy") or option == "auto.register.schemas":
                raise ValueError(f"config may not set {option!r}: it is the option subject or register")

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"{self.name}(registry={self.registry.url!r})"

    # -- source -------------------------------------------------------------------------------------------------

    def check_source(self, topic: str | None, field: Field) -> None:
        """Check on the driver that the registry answers; `topic` is one of the source's, if they are known.

        Raises:
            RegistryUnavailable: it doesn't.
            SchemaRefused: the given schema is no schema.
            ValueError: `config` has a setting that the deserializer doesn't take.
        """
        self._check_schema()
        with self.registry.client() as client:
            self._check_config("deserializer", lambda: self._deserializer(client, field))
            self._check_answers(client, topic, field)

    def decoder(self, field: Field) -> Decoder:
        """For one thread.

        Raises (the function):
            NotInFormat: the bytes aren't in the wire format, the registry has no such schema, or they don't fit it.
            RegistryUnavailable: the registry had to be asked and didn't answer.
        """
        registry = self.registry
        decode, context = self._deserializer(registry.client(), field), _contexts(field)
        unknown_ids: dict[bytes, float] = {}

        def decoder(data: bytes, topic: str) -> Any:
            if data[:1] != b"\0" or len(data) < 5:
                raise NotInFormat(
                    "it doesn't begin with a zero byte and the id of a schema, as a registry's serializer would write"
                )
            if unknown_ids and unknown_ids.get(data[1:5], 0.0) > time.monotonic():
                raise NotInFormat(_no_schema(data, registry))
            try:
                return decode(data, context(topic))
            except Exception as error:
                # Damaged content makes the readers raise nearly anything.
                if (trouble := registry.trouble(error)) is not None:
                    raise trouble from error
                if unknown_schema(error):
                    unknown_ids[data[1:5]] = time.monotonic() + _UNKNOWN_FOR_S
                    raise NotInFormat(_no_schema(data, registry)) from error
                raise NotInFormat(f"schema {_id(data)}: {type(error).__name__}: {error}") from error

        return decoder

    # -- sink ---------------------------------------------------------------------------------------------------

    def check_sink(self, topic: str | None, field: Field) -> None:
        """Check on the driver that the sink will find or be able to register its schema; changes nothing there.

        `topic`: where the sink writes; `None` if each record decides.

        Raises:
            RegistryUnavailable: the registry doesn't answer.
            SchemaRefused: it doesn't have the schema, or won't take it beside the subject's others.
            ValueError: options that don't go together, or a setting in `config` that the serializer doesn't take.
        """
        self._check_schema()
        schema = self._schema()
        with self.registry.client() as client:
            if schema is not None:
                self._check_config("serializer", lambda: self._serializer(client, "", field))
            if topic is None:
                self._check_answers(client, None, field)
                return
            subject = self.subject_of(topic, field, self._record_name())
            if schema is None:
                self._check_config("serializer", lambda: self._serializer(client, subject, field))
            elif self.register:
                self._check_compatible(client, subject, schema)
            else:
                self._check_registered(client, subject, schema)

    def encoder(self, field: Field) -> Encoder:
        """For one thread.

        Raises (the function):
            NotInFormat: the value doesn't fit the schema.
            SchemaRefused: the registry doesn't take the schema for the topic's subject.
            RegistryUnavailable: the registry had to be asked and didn't answer.
        """
        registry, client, context = self.registry, self.registry.client(), _contexts(field)
        serializers: dict[str, Callable[[Any, Any], bytes]] = {}

        def encoder(value: Any, topic: str) -> bytes:
            serialize = serializers.get(topic)
            if serialize is None:
                subject = self.subject_of(topic, field, self._record_name())
                serialize = serializers[topic] = self._serializer(client, subject, field)
            try:
                return serialize(value, context(topic))
            except (NotInFormat, SchemaRefused):
                raise
            except Exception as error:
                if (trouble := registry.trouble(error)) is not None:
                    raise trouble from error
                if getattr(error, "http_status_code", None) is not None:
                    subject = self.subject_of(topic, field, self._record_name())
                    raise SchemaRefused(self._refusal(subject, error)) from error
                raise NotInFormat(f"it doesn't fit the schema: {type(error).__name__}: {error}") from error

        return encoder

    # -- checks -------------------------------------------------------------------------------------------------

    def _check_config(self, taker: str, make: Callable[[], object]) -> None:
        try:
            make()
        except SchemaRefused:
            raise
        except (ValueError, TypeError) as error:
            raise ValueError(f"config of {self.name} is not what confluent-kafka's {taker} takes: {error}") from error

    def _check_answers(self, client: Any, topic: str | None, field: Field) -> None:
        try:
            self.registry.ask(lambda: client.get_latest_version(f"{topic or 'weir'}-{field}"))
        except Exception as error:
            if not unknown(error):  # no schema yet, or another subject
                raise

    # -- schemas ------------------------------------------------------------------------------------------------

    def subject_of(self, topic: str, field: Field, record_name: str | None) -> str:
        """
        Raises:
            ValueError: the subject is named by the record, whose name the schema doesn't tell.
        """
        if callable(self.subject):
            return self.subject(topic, field, record_name)
        if self.subject == "topic":
            return f"{topic}-{field}"
        if record_name is None:
            raise ValueError(f"subject={self.subject!r} needs a schema with a name")
        return record_name if self.subject == "record" else f"{topic}-{record_name}"

    def _newest(self, client: Any, subject: str) -> Any:
        """The newest schema of `subject`, as the registry has it."""
        try:
            return self.registry.ask(lambda: client.get_latest_version(subject)).schema
        except Exception as error:
            if unknown(error):
                raise SchemaRefused(
                    f"the schema registry at {self.registry.url} has no subject {subject!r}, whose newest schema the "
                    "sink is to write with. Register one, or give the format a schema"
                ) from error
            raise

    def _check_compatible(self, client: Any, subject: str, schema: Any) -> None:
        try:
            fits = self.registry.ask(lambda: client.test_compatibility(subject, schema))
        except Exception as error:
            if unknown(error):
                return  # the first of its subject
            if getattr(error, "http_status_code", None) is None:
                raise
            raise SchemaRefused(self._refusal(subject, error)) from error
        if not fits:
            raise SchemaRefused(self._refusal(subject, "it is not compatible with the versions that are there"))

    def _check_registered(self, client: Any, subject: str, schema: Any) -> None:
        try:
            self.registry.ask(lambda: client.lookup_schema(subject, schema))
        except Exception as error:
            if getattr(error, "http_status_code", None) is None:
                raise
            raise SchemaRefused(self._refusal(subject, error)) from error

    def _refusal(self, subject: str, why: object) -> str:
        advice = (
            "Change the schema so that it is compatible, or the subject's compatibility"
            if self.register
            else "Register the schema, or let the sink do so with register=True"
        )
        return f"the schema registry at {self.registry.url} refuses the schema for subject {subject!r}: {why}. {advice}"

    def _strategy(self, field: Field, writes: bool) -> Callable[..., str | None]:
        """As confluent-kafka wants it."""

        def strategy(ctx: Any, record_name: str | None) -> str | None:
            if self.subject != "topic" and record_name is None and not writes:
                return None  # a deserializer asks again once it has the writer's schema
            return self.subject_of(ctx.topic, field, record_name or self._record_name())

        return strategy

    def _serializer_config(self, field: Field) -> dict[str, Any]:
        return {
            **self.config,
            "auto.register.schemas": self.register,
            "subject.name.strategy": self._strategy(field, True),
        }

    def _deserializer_config(self, field: Field) -> dict[str, Any]:
        return {**self.config, "subject.name.strategy": self._strategy(field, False)}

    @abstractmethod
    def _check_schema(self) -> None:
        """
        Raises:
            SchemaRefused: the given schema is no schema.
        """

    @abstractmethod
    def _schema(self) -> Any:
        """What the sink writes with; `None` = the newest of the subject."""

    @abstractmethod
    def _record_name(self) -> str | None: ...

    @abstractmethod
    def _deserializer(self, client: Any, field: Field) -> Callable[[bytes, Any], Any]:
        """Returns what msgpack can carry."""

    @abstractmethod
    def _serializer(self, client: Any, subject: str, field: Field) -> Callable[[Any, Any], bytes]: ...


def _contexts(field: Field) -> Callable[[str], Any]:
    from confluent_kafka.serialization import MessageField, SerializationContext

    name = MessageField.KEY if field == "key" else MessageField.VALUE
    known: dict[str, Any] = {}

    def context(topic: str) -> Any:
        found = known.get(topic)
        if found is None:
            found = known[topic] = SerializationContext(topic, name)
        return found

    return context


def _id(data: bytes) -> int:
    return int.from_bytes(data[1:5], "big")


def _no_schema(data: bytes, registry: Registry) -> str:
    return f"the schema registry at {registry.url} has no schema {_id(data)}"
