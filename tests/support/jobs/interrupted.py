"""Run by a test of Ctrl-C: a small job in a Spark session of Weir's, or of the script's own, until it is stopped.

Arguments: name, folder, "own" or "given".
"""

import sys
from pathlib import Path

from small_job import records, small_job

from pipeline.runtime.driver.spark.spark_job import local_context
from pipeline.testing import TestingSink, TestingSource

name, folder, session = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
context = local_context(4, "a script's own") if session == "given" else None
source = TestingSource(
    [*records(0, 20), TestingSource.PAUSE(), *records(20, 40)], directory=folder / "source", batch_size=5
)
sink = TestingSink(folder / "sink")
small_job(name, folder / "checkpoints", source, sink, parallelism=2).run(spark=context)
print("stopped")
