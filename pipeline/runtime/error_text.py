"""What is said of an exception, whatever it holds: its text may be huge, impossible to encode, or raise itself."""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import pipeline

_ROOT: Final = Path(pipeline.__file__).parent.parent
_OWN: Final = tuple(f"{_ROOT / package}/" for package in ("pipeline", "sources", "sinks", "formats", "checkpoint"))
"""Where Weir's own code lies, in frames of a traceback."""
_PYTHONS: Final = sysconfig.get_path("stdlib")
_LINKS: Final = (
    "The above exception was the direct cause of the following exception:",
    "During handling of the above exception, another exception occurred:",
)
"""What Python writes between the traceback of a cause and that of what came of it."""
_MESSAGE: Final = 10_000
_TRACE: Final = 40_000
"""Characters that are kept."""
traceback_of: Final = vars(BaseException)["__traceback__"].__get__
"""What Python notes of an exception, whatever its class makes of the attribute."""
_NAME_OF: Final = vars(type)["__name__"].__get__
"""A class' name, whatever its metaclass makes of the attribute."""


def trace(error: BaseException, only_users: bool = False) -> str:
    """Where it was raised, and what from: without repeating the summary at its end, and without Weir's own frames if
    there are others. Never raises anything.

    Args:
        only_users: nothing if it hasn't come through code of the user's.
    """
    try:
        if only_users and not _is_users(error):
            return ""
        return cut(_trace(error), _TRACE)
    except BaseException as trouble:
        # Its class does what classes don't do, or a file's name what names don't; where it came from can still be told.
        frames = "".join(
            f'  File "{frame.f_code.co_filename}", line {line}, in {frame.f_code.co_name}\n'
            for frame, line in traceback.walk_tb(traceback_of(error))
        )
        return cut(_encodable(f"{frames}(the rest can't be told: {_name(trouble)})"), _TRACE)


def summary(error: BaseException) -> str:
    """The class and the message, as in `ValueError: it is 5`, and notes. Never raises anything."""
    text = message(error)
    notes = _notes(error)
    return cut("\n".join([f"{_name(error)}: {text}" if text else _name(error), *notes]), _MESSAGE)


def message(error: BaseException) -> str:
    """What `str` makes of it, encodable and of bounded length. Never raises anything."""
    try:
        text = str(error)
    except BaseException as trouble:
        return f"<str() of it raised {_name(trouble)}>"
    return cut(_encodable(text), _MESSAGE)


def clean(text: str) -> str:
    """The same, encodable and of bounded length; whoever made it may have put a user's text in it."""
    return cut(_encodable(text), _MESSAGE + _TRACE)


def first_line(text: str) -> str:
    """For a log line."""
    return text.split("\n", 1)[0]


def leave_out_own_frames(described: traceback.TracebackException) -> None:
    """Leave out Weir's frames, of its causes, too, where there are others. Where there are none, it is Weir's own
    error, or one of a library that it calls."""
    for one in _all(described, set()):
        one.stack[:] = _others(one.stack) or one.stack


def cut(text: str, most: int) -> str:
    """The beginning and the end of a long text."""
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]} … ({len(text):,} characters in all) … {text[-half:]}"


def _encodable(text: str) -> str:
    """With lone surrogates written as escapes."""
    return text.encode("utf-8", "backslashreplace").decode()


def _name(error: BaseException) -> str:
    return _encodable(_NAME_OF(type(error)))


def _notes(error: BaseException) -> list[str]:
    try:
        notes = getattr(error, "__notes__", None)
        if notes is None:
            return []
        return [cut(_encodable(str(note)), _MESSAGE) for note in ([notes] if isinstance(notes, str) else notes)]
    except BaseException as trouble:
        return [f"<its notes raised {_name(trouble)}>"]


def _trace(error: BaseException) -> str:
    described = traceback.TracebackException.from_exception(error)
    leave_out_own_frames(described)
    # Line by line, since any of them may be long; the last ones are the summary again.
    lines = [cut(_encodable(line), _MESSAGE) for line in described.format()]
    repeated = [cut(_encodable(line), _MESSAGE) for line in described.format_exception_only()]
    if repeated and lines[-len(repeated) :] == repeated:
        del lines[-len(repeated) :]
    if lines and lines[-1].strip() in _LINKS:  # to an exception that was never raised, which has no frames
        del lines[-1]
    return "".join(lines).rstrip("\n")


def _all(one: Any, seen: set[int]) -> Iterable[Any]:
    """An exception's description and those of its causes, contexts and parts."""
    left = [one]
    while left:
        one = left.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        left += [one.__cause__, one.__context__, *(getattr(one, "exceptions", None) or ())]


def _is_users(error: BaseException) -> bool:
    files = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(traceback_of(error))]
    return any(not file.startswith((*_OWN, _PYTHONS, "<frozen")) and "site-packages" not in file for file in files)


def _others(stack: traceback.StackSummary) -> list[traceback.FrameSummary]:
    """The frames that aren't Weir's, nor those of a constructor that `dataclass` has written for it."""
    kept: list[traceback.FrameSummary] = []
    own = False
    for frame in stack:
        if own and (frame.filename, frame.name) == ("<string>", "__init__"):
            continue
        own = frame.filename.startswith(_OWN)
        if not own:
            kept.append(frame)
    return kept
