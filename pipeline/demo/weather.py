"""The demo's second input: the weather at New York's airports in 2013, hour by hour."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from pipeline.demo.flights import data_folder

_COLUMNS: Final = ("origin", "time_hour", "temp", "wind_speed", "precip", "visib")


def weather() -> list[dict[str, Any]]:
    """Observations in order of time: `at` is in milliseconds, the rest in degrees Fahrenheit, miles and inches.

    Raises:
        DataMissing: the package with the data isn't installed.
    """
    options = pa.csv.ConvertOptions(
        include_columns=_COLUMNS, column_types={"time_hour": pa.timestamp("ms", tz="UTC")}, strings_can_be_null=True
    )
    table = pa.csv.read_csv(data_folder() / "weather.csv", convert_options=options)
    at = pc.cast(table["time_hour"], pa.int64())
    table = table.drop_columns("time_hour").append_column("at", at)
    rows: list[dict[str, Any]] = table.sort_by([("at", "ascending"), ("origin", "ascending")]).to_pylist()
    return rows


def weather_messages(observations: list[dict[str, Any]]) -> Iterator[tuple[bytes, bytes]]:
    """Keyed by airport, so that Kafka keeps the order of an airport's observations."""
    for one in observations:
        yield one["origin"].encode(), orjson.dumps(one)
