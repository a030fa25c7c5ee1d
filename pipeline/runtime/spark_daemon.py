"""The daemon that Weir's own Spark sessions fork their Python workers from.

It has imported what every subtask needs, so that a worker is up in milliseconds; else each would first compile
`pyspark.worker`, which Spark puts on the path as a zip archive. Nothing is created here: clients and threads don't
survive a fork.

Started beside the JVM, with the descriptor of a listening socket and that one's path as arguments, it waits there for
`pyspark_weir.daemon`, which Spark starts once it needs workers, and takes its place.
"""

import encodings.idna
import gc
import json
import os
import select
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from zipimport import zipimporter

import confluent_kafka
import orjson
import ormsgpack
import pyarrow.fs
import pyarrow.ipc
import pyspark
import pyspark.worker
import xxhash
from pyspark.daemon import manager

import pipeline.runtime.subtask.process
import sinks
import sources
from pipeline.runtime import pandas_late
from pyspark_weir.daemon import TAKEN

_ARGUMENTS = 3
"""With the name of the program. From Spark there is one less, its worker."""
_IMPORTED = (
    confluent_kafka,
    encodings.idna,  # looked for with the first name of a host
    orjson,
    ormsgpack,
    pyarrow,
    pyspark.worker,
    xxhash,
    pipeline.runtime.subtask.process,
    sinks,
    sources,
)

pandas_late.import_late()

# Spark has every worker call `importlib.invalidate_caches`, which reads an archive's whole directory again for each of
# these: 0.2 s of CPU. They are made anew when needed.
for _path in [path for path, importer in sys.path_importer_cache.items() if isinstance(importer, zipimporter)]:
    del sys.path_importer_cache[_path]

# What is here never goes, and stays shared with the workers as long as nobody writes to it: a collection in a worker
# would write to all of it, 25 MB.
gc.collect()
gc.freeze()
gc.enable()  # `pyspark_weir.daemon` has turned it off


def main() -> None:
    """Be Spark's daemon, as soon as Spark needs one."""
    if len(sys.argv) == _ARGUMENTS:
        _serve(socket.socket(fileno=int(sys.argv[1])), Path(sys.argv[2]))
    else:
        _manage()


def _manage() -> None:
    # Where the script of `weir run` lies: last on the path, as on the driver.
    sys.path += filter(None, [os.environ.get("WEIR_SCRIPT_FOLDER")])
    sys.path[:] = without_sparks_archives(sys.path)
    manager()


def without_sparks_archives(path: Sequence[str]) -> list[str]:
    """Where modules are looked for, but for Spark's own archives. pyspark is here already, and not from one of them;
    yet they come first on Spark's path, and a worker's first import of its own would read all their directories: 6 MB
    in each worker."""
    home = Path(pyspark.__file__).parent
    if not home.is_dir():
        return list(path)  # pyspark comes from one of them
    return [each for each in path if not (Path(each).is_file() and home.resolve() in Path(each).resolve().parents)]


def _serve(listening: socket.socket, path: Path) -> None:
    """Wait until Spark needs a daemon, and be it; or until the driver, at the end of the standard input, is gone."""
    ready, _, _ = select.select([listening.fileno(), 0], [], [])
    taken = _take_over(listening) if listening.fileno() in ready else None
    listening.close()
    path.unlink()
    path.parent.rmdir()
    if taken is None:
        sys.exit(0)
    _manage()


def _take_over(listening: socket.socket) -> socket.socket | None:
    """Take the place of the process that connects.

    Returns:
        The connection, which it waits at for this process's end; `None`: it runs another Python.
    """
    there, _ = listening.accept()
    head, descriptors, _, _ = socket.recv_fds(there, 4, 3)
    told: dict[str, Any] = json.loads(_read(there, int.from_bytes(head, "big")))
    if told["python"] != [sys.executable, sys.version]:
        return None
    for standard, descriptor in enumerate(descriptors):
        os.dup2(descriptor, standard)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(told["environment"])
    os.chdir(told["cwd"])
    sys.argv[:], sys.path[:] = told["argv"], told["path"]
    there.sendall(TAKEN)
    return there


def _read(there: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        chunk = there.recv(size - len(data))
        if not chunk:
            raise EOFError("the process that Spark has started is gone")
        data += chunk
    return data


if __name__ == "__main__":
    main()
