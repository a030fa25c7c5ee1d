"""`help(…)` of a public name says what it is and what each of its arguments means: what a newcomer asks first."""

from __future__ import annotations

import importlib
import inspect
import pydoc
import re
from collections.abc import Iterator
from typing import Any, Final

import pytest

PACKAGES: Final = ("pipeline", "sources", "sinks", "formats", "pipeline.testing")
MADE_ELSEWHERE: Final = {
    "pipeline.Interrupted": "raised by Weir",
    "pipeline.JobHandle": "made by `Pipeline.start`",
    "pipeline.RestartStrategy": "made by its functions",
    "pipeline.StoredRecord": "what `migrate` gets",
    "pipeline.WatermarkStrategy": "made by `bounded`",
    "formats.RegistryFormat": "the base of formats",
    "pipeline.testing.ContractBroken": "raised by the contracts",
    "pipeline.testing.KafkaBroker": "made by `start`",
    "pipeline.testing.KafkaCluster": "made by `start`",
    "pipeline.testing.PipelineSnapshot": "made by `PipelineHarness.snapshot`",
    "pipeline.testing.ServiceClient": "made by `FakeService.client`",
    "pipeline.testing.ServiceError": "raised by `ServiceClient`",
}
"""Classes that users don't call to make one."""


def public() -> Iterator[tuple[str, Any]]:
    """Classes and functions. Aliases of types have no docstring."""
    for package in PACKAGES:
        module = importlib.import_module(package)
        named = [(f"{package}.{name}", getattr(module, name)) for name in module.__all__]
        yield from ((name, what) for name, what in named if inspect.isclass(what) or inspect.isfunction(what))


def arguments(what: Any) -> list[str]:
    try:
        return [name for name in inspect.signature(what).parameters if name not in ("args", "kwargs")]
    except ValueError:  # an exception, which takes what all of them take
        return []


def unexplained(what: Any) -> list[str]:
    """Arguments that help doesn't explain: in the docstring of a class, of its constructor, or of what it inherits."""
    texts = [pydoc.getdoc(what)]
    if inspect.isclass(what):
        texts += [pydoc.getdoc(one.__init__) for one in what.__mro__ if "__init__" in vars(one)]
    text = "\n".join(texts)
    return [name for name in arguments(what) if not re.search(rf"^\s*{name}: |`{name}`", text, re.MULTILINE)]


def test_an_argument_without_a_word_is_found() -> None:
    class Window:
        """Of some length.

        Args:
            size: seconds.
        """

        def __init__(self, size: int, offset: int = 0) -> None: ...

    assert unexplained(Window) == ["offset"]


@pytest.mark.parametrize(("name", "what"), [pytest.param(name, what, id=name) for name, what in public()])
def test_help_says_what_a_name_is_and_what_its_arguments_mean(name: str, what: Any) -> None:
    assert pydoc.getdoc(what), "no docstring"
    if name not in MADE_ELSEWHERE:
        assert unexplained(what) == []


def test_classes_that_need_no_explanation_are_there() -> None:
    assert MADE_ELSEWHERE.keys() <= {name for name, _ in public()}
