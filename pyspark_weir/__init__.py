"""Where Spark looks for the data source `weir`: in each package whose name begins with `pyspark_`."""

from pipeline.spark_tables import WeirDataSource as DefaultSource

__all__ = ["DefaultSource"]
