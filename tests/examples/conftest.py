"""One PostgreSQL server for all examples that need it, a database for each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from postgres_server import PostgresServer


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with PostgresServer.start() as server:
        yield server
