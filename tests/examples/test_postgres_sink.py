"""The PostgreSQL sink of the examples, into a real server."""

from __future__ import annotations

import math
import sys
import uuid
from datetime import date
from pathlib import Path
from typing import Any

import psycopg
import pytest
from postgres_server import PostgresServer

from checkpoint.codec import decode
from pipeline.testing import SinkUnderTest, check_sink_contract
from sinks import WriterContext

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
sys.path.insert(0, str(Path(__file__).parents[1] / "sinks"))
from kafka_sink_helpers import FolderStaging, NoMetrics, batch
from postgres_sink import PostgresSink


@pytest.mark.sample(1 / 4)
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


def test_values_are_staged_with_their_types(tmp_path: Path) -> None:
    sink = PostgresSink("", "rows", ["rate", "day", "id"])
    staging = FolderStaging(tmp_path)
    writer = sink.create_writer(WriterContext("p", "rows", 0, 1, staging, NoMetrics()))
    row = {"rate": math.inf, "day": date(2026, 1, 2), "id": 2**70}
    writer.write_batch(batch([row]))
    ((_, (file,)),) = writer.prepare_commit(1)
    assert decode(staging.read(file)) == [list(row.values())]
