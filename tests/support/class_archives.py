"""Run as a script before a test run: makes the archives of Java classes, which its brokers and Spark sessions use."""

from __future__ import annotations

import logging
import os

from pipeline.broker.native import NativeBroker
from pipeline.class_archive import VARIABLE
from pipeline.runtime.driver.spark.spark_job import local_context, stop_context


def main() -> None:
    os.environ[VARIABLE] = "make"
    logging.basicConfig(level=logging.WARNING)
    logging.getLogger("weir.pipeline.class_archive").setLevel(logging.INFO)
    with NativeBroker.start():
        pass
    context = local_context(1, "class archives")
    context.parallelize([1], 1).barrier().mapPartitions(list).collect()
    stop_context(context)  # its JVM writes the archive when this process ends


if __name__ == "__main__":
    main()
