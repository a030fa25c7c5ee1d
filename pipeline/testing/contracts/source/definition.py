"""A source's definition: the driver validates and resolves it, subtasks get what was pickled."""

from __future__ import annotations

from pipeline.testing.contracts.common import ContractBroken, check_unchanged, pickled_copy
from pipeline.testing.contracts.source.stage import Stage
from sources.source import Source


def definition_stays_as_it_is(stage: Stage) -> None:
    source = stage.factory()
    if not isinstance(source, Source):
        raise TypeError(f"the factory returned a {type(source).__name__}; it must make a Source")
    before, _ = pickled_copy(source, "the source")
    stage.validate(source)
    check_unchanged(source, before, "validate")
    resolved = stage.resolve(source)
    if not isinstance(resolved, Source):
        raise ContractBroken(
            "resolve-is-stable",
            f"resolve() returned a {type(resolved).__name__}",
            "return a copy of the definition, or itself",
        )
    check_unchanged(source, before, "resolve")
    pickled_copy(resolved, "what resolve() returned")
    stage.bounded = source.bounded
    if not stage.bounded and not stage.known:
        raise ValueError("the source is unbounded: tell check_source_contract the records that are `expected`")
