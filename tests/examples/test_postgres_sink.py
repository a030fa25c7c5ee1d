"""The PostgreSQL sink of the examples, into a real server."""

from __future__ import annotations

import sys
import uuid
from pathlib import Path
from typing import Any

import psycopg
from postgres_server import PostgresServer

from pipeline.testing import SinkUnderTest, check_sink_contract

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
from postgres_sink import PostgresSink


def test_it_keeps_the_sink_contract(postgres: PostgresServer) -> None:
    conninfo = postgres.create_database()

    def subject() -> SinkUnderTest:
        table = f"rows_{uuid.uuid4().hex[:8]}"
        with psycopg.connect(conninfo) as connection:
            connection.execute(f"CREATE TABLE {table} (place serial, id int, key text)")

        def read() -> list[Any]:
            with psycopg.connect(conninfo) as connection:
                rows = connection.execute(f"SELECT id, key FROM {table} ORDER BY place").fetchall()
            return [{"id": id, "key": key} for id, key in rows]

        return SinkUnderTest(PostgresSink(conninfo, table, ["id", "key"]), read, refused={"id": 1})

    check_sink_contract(subject)
