"""What `split` returns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic

from checkpoint.options import nearest
from pipeline.errors import PipelineError
from pipeline.graph import DEFAULT_BRANCH
from pipeline.streams.checks import refuse_no_answer
from pipeline.streams.stream import Stream, T


class Branches(Generic[T]):
    """The streams that a `split` makes: `branches.large`, or `branches["large"]`. Iterating gives the names."""

    def __init__(self, whole: Stream[T], streams: Mapping[str, Stream[T]]) -> None:
        """`whole`: of the step."""
        self._whole = whole
        self._streams = dict(streams)

    def errors(self) -> Stream[dict[str, Any]]:
        """As `errors` of a stream: the records on which a function of a branch has failed. (A branch of that name is
        `branches["errors"]`.)"""
        return self._whole.errors()

    def __getitem__(self, name: str) -> Stream[T]:
        try:
            return self._streams[name]
        except KeyError:
            raise KeyError(self._no_branch(name)) from None

    def __getattr__(self, name: str) -> Stream[T]:
        if name.startswith("_") or name not in self._streams:  # which isn't there while it is unpickled or copied
            raise AttributeError(name if name.startswith("_") else self._no_branch(name))
        return self._streams[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._streams)

    def __len__(self) -> int:
        return len(self._streams)

    def __repr__(self) -> str:
        return f"<Branches {', '.join(self._streams)}>"

    def _no_branch(self, name: str) -> str:
        return (
            f"split made no branch {name!r}{nearest(name, self._streams) or ';'} there are {', '.join(self._streams)}"
        )


def checked_branches(branches: Mapping[str, Callable[[Any], Any]]) -> dict[str, Callable[[Any], Any]]:
    """
    Raises:
        PipelineError: there are none, or one can't be what it is.
    """
    if not branches:
        raise PipelineError(
            "split needs a function for each branch, by the branch's name: "
            'split(large=lambda order: order["amount"] > 100)'
        )
    for name, function in branches.items():
        if name == DEFAULT_BRANCH:
            raise PipelineError(
                f"split: the branch {DEFAULT_BRANCH!r} is there in any case, and gets what no other one takes; give "
                "this one another name"
            )
        if name.startswith("_"):
            raise PipelineError(f"split: the name of a branch can't begin with an underscore, as {name!r} does")
        if not callable(function):
            raise PipelineError(f"split: branch {name!r} needs a function that says which records it takes")
        refuse_no_answer(
            f"split, branch {name!r}", function, "no record would go there: return True for those that are to"
        )
    return dict(branches)
