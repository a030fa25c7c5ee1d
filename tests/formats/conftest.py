"""A stand-in for a schema registry, which answers real HTTP."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pipeline.testing import SchemaRegistry


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with SchemaRegistry() as one:
        yield one
