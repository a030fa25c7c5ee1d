"""What driver and subtasks say to each other arrives as it was said, or is an error that names what is wrong."""

from __future__ import annotations

import inspect
from array import array
from dataclasses import fields
from enum import StrEnum
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from messages import example_of

from checkpoint.codec import decode, encode
from checkpoint.committables import Committable, SinkState
from checkpoint.elements import EdgeName
from checkpoint.in_flight.edges import EdgeShape
from checkpoint.in_flight.runs import Origin
from checkpoint.storage.handles import FileHandle, StateFile
from checkpoint.storage.metadata import OperatorSnapshot, SubtaskSnapshot
from pipeline.runtime import protocol
from pipeline.runtime.deployment import Restored, RestoredInFlight
from pipeline.runtime.message_connection import ProtocolError, from_wire, to_wire
from pipeline.runtime.protocol import TO_DRIVER, TO_SUBTASK, Direction
from pipeline.runtime.versions import versions

CLASSES: dict[str, tuple[type[Any], Direction[Any]]] = {
    name: (cls, direction) for direction in (TO_SUBTASK, TO_DRIVER) for name, cls in direction.classes.items()
}
both = pytest.mark.parametrize(("cls", "direction"), CLASSES.values(), ids=CLASSES)

small = st.integers(-(2**31), 2**31)
texts = st.text(max_size=5)
values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | small | st.floats(allow_nan=False) | texts | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)
st.register_type_strategy(int, small)
st.register_type_strategy(float, st.floats(allow_nan=False))
assigned = st.lists(st.integers(0, 2**15 - 1), max_size=3).map(lambda rows: array("h", rows))
handles = st.from_type(FileHandle)
listed = st.builds(StateFile, handles) | st.builds(
    StateFile,
    handles,
    st.builds(range, small, small),
    small,
    small,
    st.dictionaries(texts, small, max_size=2).map(lambda over: tuple(over.items())),
)
named = st.dictionaries(texts, values, max_size=3)
committables = st.builds(Committable, payload=values)
sinks = st.builds(
    SinkState,
    pending=st.dictionaries(small, st.lists(committables, max_size=2), max_size=2),
    committers=st.dictionaries(small, values, max_size=2),
)
by_step = st.dictionaries(texts, st.lists(values, max_size=2), max_size=2)
st.register_type_strategy(OperatorSnapshot, st.builds(OperatorSnapshot, state=named))
st.register_type_strategy(SubtaskSnapshot, st.builds(SubtaskSnapshot, operators=...))
st.register_type_strategy(
    Restored,
    st.builds(
        Restored,
        operators=by_step,
        sources=by_step,
        event_time=by_step,
        watermarks=by_step,
        sinks=st.dictionaries(texts, sinks, max_size=2),
        keyed_state=st.dictionaries(texts, st.lists(listed, max_size=2), max_size=2),
        lists=st.just({"list": {"union": {"names": [[2, b"packed"]]}}}),
        broadcast=st.dictionaries(texts, st.just({"rules": {b"k": b"v"}}), max_size=2),
        in_flight=st.builds(
            RestoredInFlight,
            edges=st.dictionaries(st.from_type(EdgeName), st.from_type(EdgeShape), max_size=2),
            files=st.lists(st.tuples(small, handles), max_size=2),
            assigned=st.dictionaries(st.from_type(Origin), assigned, max_size=2),
        ),
    ),
)
FREE = {"statistics": named, "metrics": named}
"""Fields that may hold any value."""


def messages_of(cls: type[Any]) -> st.SearchStrategy[Any]:
    return st.builds(cls, **{field.name: FREE.get(field.name, ...) for field in fields(cls)})


def said(message: Any, direction: Direction[Any]) -> Any:
    """What arrives."""
    return from_wire(decode(encode(to_wire(message))), direction)


@both
@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.data())
def test_each_message_arrives_as_it_was_said(cls: type[Any], direction: Direction[Any], data: st.DataObject) -> None:
    message = data.draw(messages_of(cls))
    assert said(message, direction) == message


@pytest.fixture(params=CLASSES.values(), ids=CLASSES)
def example(request: pytest.FixtureRequest) -> tuple[dict[str, Any], Direction[Any]]:
    """One message of each kind, as it travels."""
    cls, direction = request.param
    return to_wire(example_of(cls)), direction


def test_each_field_that_is_missing_is_named(example: tuple[dict[str, Any], Direction[Any]]) -> None:
    wire, direction = example
    for name in wire.keys() - {"type"}:
        cut = {key: value for key, value in wire.items() if key != name}
        with pytest.raises(
            ProtocolError, match=f"the message '{wire['type']}' can't be read: field '{name}' is missing"
        ):
            from_wire(cut, direction)


def test_a_field_that_this_version_has_not_is_named(example: tuple[dict[str, Any], Direction[Any]]) -> None:
    wire, direction = example
    with pytest.raises(ProtocolError, match=f"the message '{wire['type']}' can't be read: field 'news' is unknown"):
        from_wire({**wire, "news": 1}, direction)


def test_each_field_of_another_type_is_named(example: tuple[dict[str, Any], Direction[Any]]) -> None:
    wire, direction = example
    for name in wire.keys() - {"type"}:
        with pytest.raises(
            ProtocolError, match=rf"'{wire['type']}' can't be read: field '{name}\b.*' (should be|can't)"
        ):
            from_wire({**wire, name: {1.5}}, direction)


@pytest.mark.parametrize(
    ("nested", "path"),
    [
        ({"keyed_state": {"totals": [["a", 1, "c", "surplus"]]}}, "deployment.restore.keyed_state"),
        ({"keyed_state": {1: []}}, "deployment.restore.keyed_state"),
        ({"in_flight": {"edges": []}}, "deployment.restore.in_flight"),
        ({"broadcast": {"step": {"rules": {"k": b"v"}}}}, "deployment.restore.broadcast"),
        ({"sinks": {"out": {}}}, "deployment.restore.sinks"),
    ],
)
def test_a_field_deep_inside_is_named_by_the_way_to_it(nested: dict[str, Any], path: str) -> None:
    wire = to_wire(example_of(protocol.Deploy))
    wire["deployment"]["restore"].update(nested)
    with pytest.raises(ProtocolError, match=f"field '{path}'"):
        from_wire(wire, TO_SUBTASK)


def test_a_number_is_no_bool_and_a_bool_no_number() -> None:
    wire = to_wire(protocol.Declined(1, "no", True))
    with pytest.raises(ProtocolError, match="'asynchronous' should be bool and is int"):
        from_wire({**wire, "asynchronous": 1}, TO_DRIVER)
    with pytest.raises(ProtocolError, match="'checkpoint_id' should be int and is bool"):
        from_wire({**wire, "checkpoint_id": True}, TO_DRIVER)


@both
def test_a_message_is_unknown_to_its_own_sender(cls: type[Any], direction: Direction[Any]) -> None:
    other = TO_DRIVER if direction is TO_SUBTASK else TO_SUBTASK
    with pytest.raises(ProtocolError, match=f"the message '{cls.__name__}' is unknown"):
        from_wire(to_wire(example_of(cls)), other)


def test_an_error_tells_the_versions_of_both_sides() -> None:
    mine = versions()
    theirs = {"Python": "3.9", "Weir": "99"}
    here, there = (f"Python {one['Python']} and Weir {one['Weir']}" for one in (mine, theirs))
    with pytest.raises(ProtocolError, match=rf"this side has {here}, the other one {there}"):
        from_wire({"type": "News"}, TO_DRIVER, theirs)
    with pytest.raises(ProtocolError, match=rf"this side has {here}, the other one {there}"):
        from_wire({"type": "Hello", "versions": theirs}, TO_DRIVER)
    with pytest.raises(ProtocolError, match=rf"this side has {here}; the other one has not told"):
        from_wire({"type": "News"}, TO_DRIVER)


def test_every_class_of_the_module_travels() -> None:
    """One that is in neither direction could never be received."""
    parts = {protocol.BarrierOptions, protocol.Direction}
    defined = {
        cls
        for _, cls in inspect.getmembers(protocol, inspect.isclass)
        if cls.__module__ == protocol.__name__ and not issubclass(cls, Exception | StrEnum)
    }
    assert defined - parts == {cls for cls, _ in CLASSES.values()}


def test_what_a_message_does_not_say_does_not_hold() -> None:
    """Most subtasks have no sinks, most barriers are ordinary, and most attempts are followed by another one."""
    assert protocol.Running() == protocol.Running(highest_checkpoint=0, restored_epochs={})
    assert protocol.BarrierOptions() == protocol.BarrierOptions(target=None, stop=False)
    assert not protocol.Cancel().job_over
    assert protocol.SnapshotTaken(1) == protocol.SnapshotTaken(1, span=None, busy=False)
