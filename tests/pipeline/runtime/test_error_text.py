"""What is said of an exception, whatever it holds: always something, encodable and of bounded length."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from py4j.protocol import Py4JJavaError, Py4JNetworkError

from checkpoint.codec import DecodingError, decode, encode
from pipeline.operators import Operator
from pipeline.runtime import error_text
from pipeline.runtime.liveness import LIMITS
from pipeline.runtime.message_connection import MessageConnection
from pipeline.runtime.protocol import TO_DRIVER, TO_SUBTASK, Failed, ToDriver, ToSubtask
from pipeline.runtime.subtask.driver_link import DriverLink
from pipeline.runtime.subtask.mailbox import Mailbox
from pipeline.runtime.subtask.task_metrics import TaskMetrics
from pipeline.runtime.wire import ControlConnection
from pipeline.testing import OperatorHarness


class StrRaises(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


class StrExits(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)

    __repr__ = __str__


class StrIsNone(Exception):
    def __str__(self) -> str:
        return None  # type: ignore[return-value]


class NotesRaise(Exception):
    @property
    def __notes__(self) -> Any:
        raise KeyError("no notes")


class Unhashable(Exception):
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("not comparable")


class NotPicklable(Exception):
    def __init__(self) -> None:
        super().__init__("holds a socket")
        self.held = socket.socket()
        self.held.close()

    def __reduce__(self) -> Any:
        raise TypeError("not picklable")


class AttributesRaise(Exception):
    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)


class NameRaises(type):
    @property
    def __name__(cls) -> str:
        raise ValueError("no name")


class ClassWithoutAName(Exception, metaclass=NameRaises):
    pass


def from_an_odd_file() -> BaseException:
    try:
        exec(compile("raise ArithmeticError(5)", "odd\ud800", "exec"))
    except ArithmeticError as error:
        return error
    raise AssertionError


def with_notes() -> BaseException:
    error = ValueError("bad")
    error.add_note("in row 5")
    error.add_note("\udcff")
    return error


def in_a_cycle() -> BaseException:
    one, other = ValueError("one"), KeyError("other")
    one.__cause__, other.__cause__ = other, one
    one.__context__ = one.__cause__
    return one


def deep_causes() -> BaseException:
    error: BaseException = ValueError("the first")
    for i in range(5_000):
        after = ValueError(f"number {i}")
        after.__cause__ = error
        error = after
    return error


def too_deep() -> BaseException:
    def down(n: int) -> int:
        return 1 + down(n + 1)

    try:
        down(0)
    except RecursionError as error:
        return error
    raise AssertionError


def java_error() -> BaseException:
    """An error of a Java side that is gone: its text is there, and asked for when it is too late."""

    def ask(command: str) -> str:
        raise Py4JNetworkError("no answer")

    gone = SimpleNamespace(_target_id="o1", _gateway_client=SimpleNamespace(send_command=ask))
    return Py4JJavaError("x", gone)


EVIL: dict[str, Callable[[], BaseException]] = {
    "surrogate": lambda: ValueError("\ud800 alone"),
    "surrogate in a key": lambda: KeyError("\udfff"),
    "str raises": lambda: StrRaises("x"),
    "str exits": lambda: StrExits("x"),
    "str is None": lambda: StrIsNone("x"),
    "huge": lambda: ValueError("x" * 100_000_000),
    "huge key": lambda: KeyError("\udc80" * 1_000_000),
    "many lines": lambda: ValueError("line\n" * 1_000_000),
    "not picklable": NotPicklable,
    "unhashable": lambda: Unhashable("x"),
    "attributes raise": lambda: AttributesRaise("x"),
    "notes": with_notes,
    "notes raise": lambda: NotesRaise("x"),
    "cycle": in_a_cycle,
    "deep causes": deep_causes,
    "group": lambda: ExceptionGroup(
        "several\udc80", [ValueError("\udc80"), StrRaises(), ExceptionGroup("in", [OSError()])]
    ),
    "made at runtime": lambda: type("Made", (ArithmeticError,), {"__module__": 5})("x"),
    "no text": lambda: ValueError(),
    "args that are no text": lambda: ValueError(b"\xff", object(), {1: "\ud800"}),
    "system exit": lambda: SystemExit(3),
    "system exit with text": lambda: SystemExit("\udc80"),
    "interrupt": KeyboardInterrupt,
    "generator exit": GeneratorExit,
    "stop iteration": lambda: StopIteration("\udc80"),
    "unicode error": lambda: UnicodeDecodeError("utf-8", b"\xff", 0, 1, "\udc80"),
    "syntax error": lambda: SyntaxError("bad", ("\udc80.py", 1, 1, "x = \udc80", 1, 2)),
    "os error": lambda: FileNotFoundError(2, "none", "\udc80"),
    "recursion": too_deep,
    "java": java_error,
    "class without a name": lambda: ClassWithoutAName("x"),
    "odd file": from_an_odd_file,
}


def raised(error: BaseException) -> BaseException:
    def users_function() -> None:
        raise error

    try:
        users_function()
    except BaseException as caught:
        return caught
    raise AssertionError


@pytest.mark.parametrize("make", EVIL.values(), ids=EVIL.keys())
def test_the_driver_learns_of_any_exception(make: Callable[[], BaseException]) -> None:
    error = raised(make())
    a, b = socket.socketpair()
    link = DriverLink(
        MessageConnection(ControlConnection(a), TO_SUBTASK), Mailbox(), TaskMetrics(), "in partition 0", LIMITS
    )
    driver = MessageConnection[ToSubtask, ToDriver](ControlConnection(b), TO_DRIVER)
    link.failed(error)
    told = driver.receive(0.0)
    link.close()
    driver.close()
    assert isinstance(told, Failed)
    name = str(vars(type)["__name__"].__get__(type(error))).encode("utf-8", "backslashreplace").decode()
    assert told.message.startswith(name)
    assert "users_function" in told.traceback
    assert len(told.message) + len(told.traceback) < 60_000


@given(
    st.text(st.characters(blacklist_categories=[])),
    st.lists(st.text(st.characters(blacklist_categories=[])), max_size=3),
)
def test_whatever_text_it_holds_can_be_sent_and_printed(text: str, notes: list[str]) -> None:
    error = raised(ValueError(text))
    for note in notes:
        error.add_note(note)
    told = error_text.summary(error), error_text.trace(error)
    assert decode(encode(list(told))) == list(told)
    assert all(one.encode() for one in told)
    if text.isprintable() and text:
        assert told[0].startswith(f"ValueError: {text}")


def test_a_text_is_there_once_and_the_frames_are_the_users() -> None:
    class Fails(Operator):
        def process(self, value: Any, ctx: Any) -> Any:
            raise ValueError("the text of it")
            yield

    with pytest.raises(ValueError, match="the text of it") as caught:
        OperatorHarness(Fails()).process(1)
    trace = error_text.trace(caught.value)
    assert "the text of it" not in trace.replace('raise ValueError("the text of it")', "")
    assert 'raise ValueError("the text of it")' in trace
    assert f"{Path(error_text.__file__).parent}/" not in trace
    assert trace.count("Traceback") == 1


def test_weirs_own_errors_keep_their_frames() -> None:
    error: BaseException | None = None

    def run() -> None:
        nonlocal error
        try:
            decode(b"\xc1")
        except DecodingError as caught:
            error = caught.with_traceback(caught.__traceback__.tb_next if caught.__traceback__ else None)

    run()
    assert error is not None
    assert "checkpoint/codec/decoding.py" in error_text.trace(error)


def test_causes_are_told_with_their_text() -> None:
    try:
        try:
            raise KeyError("the cause")
        except KeyError as cause:
            raise ValueError("the effect") from cause
    except ValueError as error:
        trace = error_text.trace(error)
    assert "KeyError: 'the cause'" in trace
    assert "direct cause" in trace


@pytest.mark.parametrize("explicit", [True, False])
def test_a_trace_does_not_end_in_front_of_an_error_that_was_never_raised(explicit: bool) -> None:
    """Such as that of a request of `map_async`, which only names its cause."""
    error = RuntimeError("the request failed")
    try:
        raise ValueError("no such station")
    except ValueError as cause:
        if explicit:
            error.__cause__ = cause
        else:
            error.__context__ = cause
    lines = error_text.trace(error).splitlines()
    assert lines[-1] == "ValueError: no such station"
    assert not any("another exception occurred" in line or "direct cause" in line for line in lines)


def test_what_others_have_made_is_whole_up_to_the_length_of_a_message_and_a_trace() -> None:
    assert error_text.clean("x" * 50_000) == "x" * 50_000
    told = error_text.clean("a" * 30_000 + "b" * 30_000)
    assert told == f"{'a' * 25_000} … (60,000 characters in all) … {'b' * 25_000}"
