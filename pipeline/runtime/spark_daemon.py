"""The daemon that Weir's own Spark sessions fork their Python workers from.

It has imported what every subtask needs, so that a worker is up in milliseconds; else each would first compile
`pyspark.worker`, which Spark puts on the path as a zip archive. Nothing is created here: clients and threads don't
survive a fork.
"""

import os
import sys
from zipimport import zipimporter

import confluent_kafka
import orjson
import ormsgpack
import pyarrow.fs
import pyarrow.ipc
import pyspark.worker
import xxhash
from pyspark.daemon import manager

import pipeline.runtime.subtask.process
import sinks
import sources

_IMPORTED = (
    confluent_kafka,
    orjson,
    ormsgpack,
    pyarrow,
    pyspark.worker,
    xxhash,
    pipeline.runtime.subtask.process,
    sinks,
    sources,
)

# With the first array that it makes from a list pyarrow imports pandas, where that is installed: 0.3 s of CPU.
pyarrow.array([0])

# Where the script of `weir run` lies: last on the path, as on the driver.
sys.path += filter(None, [os.environ.get("WEIR_SCRIPT_FOLDER")])

# Spark has every worker call `importlib.invalidate_caches`, which reads an archive's whole directory again for each of
# these: 0.2 s of CPU. They are made anew when needed.
for _path in [path for path, importer in sys.path_importer_cache.items() if isinstance(importer, zipimporter)]:
    del sys.path_importer_cache[_path]

if __name__ == "__main__":
    manager()
