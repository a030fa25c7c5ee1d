"""Where Spark looks for the data source `weir`: in each package whose name begins with `pyspark_`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipeline.spark_tables import WeirDataSource as DefaultSource

__all__ = ["DefaultSource"]


def __getattr__(name: str) -> Any:
    # Late: `pyspark_weir.daemon` is to begin at once.
    if name != "DefaultSource":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from pipeline.spark_tables import WeirDataSource

    return WeirDataSource
