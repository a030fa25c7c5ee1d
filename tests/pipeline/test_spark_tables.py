"""The data source `weir` in Spark."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import datasource
from spark_fixture import spark
from state_tables import make_savepoint, raw_rows, timers_at

from checkpoint.codec import decode, encode_key
from pipeline.state_tables import NewPipeline, write_savepoint

__all__ = ["spark"]

TABLES = pytest.mark.sample(1 / 4, together="tables")
MOMENT = datetime(2024, 2, 29, 1, 2, 3, 4, tzinfo=UTC)
STATE = {
    ("totals", "total"): {f"user-{i}": i for i in range(40)},
    ("totals", "mixed"): {"a": 1, "b": (1.5, b"x")},
    ("seen", "last"): dict.fromkeys(range(3), MOMENT),
}


@pytest.fixture(scope="module")
def session(spark: Any) -> Any:
    from pyspark.sql import SparkSession

    session = SparkSession(spark)
    session.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    session.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    return session


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("tables") / "saved"
    return make_savepoint(folder, STATE, {"totals": timers_at(("user-1", 1000))})


def frame(session: Any, path: str, **options: str) -> Any:
    return session.read.format("weir").options(path=path, **options).load()


@TABLES
def test_a_typed_state_with_a_partition_for_each_file(session: Any, saved: str) -> None:
    found = frame(session, saved, table="state", step="totals", state="total")
    assert dict(found.dtypes)["value"] == "bigint"
    assert {row.key: row.value for row in found.collect()} == STATE["totals", "total"]
    assert found.rdd.getNumPartitions() == 3
    assert found.where("key = 'user-7'").collect()[0].value == 7
    moments = frame(session, saved, table="state", step="seen", state="last")
    assert dict(moments.dtypes)["value"] == "timestamp"
    assert {decode(bytes(row.value_bytes)) for row in moments.collect()} == {MOMENT}
    assert {row.at for row in moments.selectExpr("unix_micros(value) at").collect()} == {
        round(MOMENT.timestamp() * 1e6)
    }


@TABLES
@pytest.mark.parametrize("condition", ["key = 'user-7'", "key_bytes = X'A6757365722D37'"])
def test_one_key_is_read_from_one_file(session: Any, saved: str, condition: str) -> None:
    found = frame(session, saved, table="state", step="totals", state="total").where(condition)
    assert encode_key("user-7").hex().upper() == "A6757365722D37"
    assert [row.value for row in found.collect()] == [7]
    if hasattr(datasource, "EqualTo"):  # Spark 4.0 pushes no filters down
        assert found.rdd.getNumPartitions() == 1
    assert frame(session, saved, table="state", step="totals", key='"user-7"').rdd.getNumPartitions() == 1


@TABLES
def test_a_schema_of_the_users(session: Any, saved: str) -> None:
    reader = session.read.format("weir").options(path=saved, table="state", step="totals")
    some = reader.option("state", "total").schema("key string, value bigint").load()
    assert {row.key: row.value for row in some.collect()} == STATE["totals", "total"]
    with pytest.raises(Exception, match=r"'mixed' of step 'totals' has the value \(1.5"):
        reader.option("state", "mixed").schema("key string, value bigint").load().collect()
    with pytest.raises(Exception, match="has no column amount; it has step, subtask"):
        reader.schema("amount bigint").load().collect()


@TABLES
@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"table": "stat"}, "there is no table 'stat'; there are state, timers"),
        ({}, r"needs option\('table', …\): state, timers"),
        ({"table": "state", "stat": "x"}, "no option stat; it has path, table"),
        ({"table": "state", "step": "n"}, "it has steps 'seen', 'totals'"),
        ({"table": "state", "untyped": "yes"}, "is true or false, not 'yes'"),
    ],
)
def test_options_that_mean_nothing_are_refused(session: Any, saved: str, options: dict[str, str], problem: str) -> None:
    with pytest.raises(Exception, match=problem):
        frame(session, saved, **options)


@TABLES
def test_the_other_tables(session: Any, saved: str) -> None:
    assert [(row.key, row.at) for row in frame(session, saved, table="timers").collect()] == [("user-1", 1000)]
    for name in ("operator_state", "in_flight", "sources", "uncommitted"):
        assert frame(session, saved, table=name).count() == 0
    (one,) = frame(session, saved, table="checkpoints").collect()
    assert (one.kind, one.pipeline) == ("savepoint", "orders")


@TABLES
def test_a_savepoint_is_made_from_data_frames(session: Any, saved: str, tmp_path: Path) -> None:
    tables = [frame(session, saved, table="state", untyped="true"), frame(session, saved, table="timers")]
    typed = frame(session, saved, table="state", step="seen").drop("key_bytes", "value_bytes")
    given = [one.toArrow() for one in tables]
    uri = str(tmp_path / "again")
    write_savepoint(uri, base=NewPipeline("orders", 16), replace=given)
    assert raw_rows(uri) == raw_rows(saved)
    edited = str(tmp_path / "edited")
    write_savepoint(edited, base=uri, put=[typed.toArrow()])
    assert raw_rows(edited) == raw_rows(saved)


@TABLES
def test_a_damaged_file_is_named(session: Any, tmp_path: Path) -> None:
    saved = make_savepoint(tmp_path / "saved", STATE)
    file = next((tmp_path / "saved").rglob("totals-1-*.arrow"))
    data = bytearray(file.read_bytes())
    data[600] ^= 1
    file.write_bytes(data)
    with pytest.raises(Exception, match=file.name):
        frame(session, saved, table="state", untyped="true").collect()
