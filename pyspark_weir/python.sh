#!/bin/sh
# Spark starts this as the Python of a job's subtasks, where the session isn't Weir's own: python.sh -m DAEMON WORKER.
exec "$WEIR_SPARK_PYTHON" -m pyspark_weir.daemon "$3"
