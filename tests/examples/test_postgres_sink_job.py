"""The example with the PostgreSQL sink as its docstring runs it, and with its worker killed between commit and news."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from example_run import weir_run
from postgres_server import PostgresServer

pytestmark = pytest.mark.slow

ORDERS = 200_000


@pytest.mark.sample(1 / 4)
def test_a_worker_killed_behind_its_commit_leaves_each_row_once(postgres: PostgresServer, tmp_path: Path) -> None:
    conninfo = postgres.create_database()
    with psycopg.connect(conninfo) as connection:
        connection.execute("CREATE TABLE orders (id bigint, customer text)")
    output = weir_run(
        "postgres_sink.py",
        *("--set", f"checkpoints.uri={tmp_path}", "--set", "checkpoints.interval=0.2"),
        first="from pipeline.testing import failpoints\n"
        'point = failpoints.crash("committer.before_notification", nth=2)\n'
        "import atexit; atexit.register(lambda: print('killed:', point.fired))",
        WEIR_EXAMPLE_POSTGRES=conninfo,
        WEIR_EXAMPLE_ORDERS=str(ORDERS),
    )
    assert "killed: True" in output
    with psycopg.connect(conninfo) as connection:
        rows = connection.execute("SELECT id, customer FROM orders ORDER BY id").fetchall()
        markers = connection.execute("SELECT count(*) FROM weir_markers").fetchone()
    assert rows == [(id, f"c{id % 100}") for id in range(ORDERS)]
    assert markers == (2,)
