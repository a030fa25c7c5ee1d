"""What Spark starts in Weir's own sessions to fork its Python workers from.

The real one, `pipeline.runtime.spark_daemon`, has been started beside the JVM, and has imported everything by now: it
is given this process's pipes, arguments and environment, and Spark talks to it from then on. If there is none, this
process becomes it.

`python -m pyspark_weir.daemon DESCRIPTOR PATH` is the real one: it waits at a listening socket for the process that
Spark starts.
"""

import gc
import json
import os
import socket
import sys

VARIABLE = "WEIR_SPARK_DAEMON"
"""Where the daemon listens, a Unix domain socket."""
TAKEN = b"+"
"""The daemon's answer if it takes this process's place."""


def hand_over(path: str) -> None:
    """Give everything to the daemon that listens at `path`; returns only if it doesn't take it."""
    told = {
        "python": [sys.executable, sys.version],
        "argv": sys.argv,
        "path": sys.path,
        "cwd": os.getcwd(),
        "environment": dict(os.environ),
    }
    data = json.dumps(told).encode()
    with socket.socket(socket.AF_UNIX) as daemon:
        try:
            daemon.connect(path)
            socket.send_fds(daemon, [len(data).to_bytes(4, "big")], [0, 1, 2])
            daemon.sendall(data)
            refused = None if daemon.recv(len(TAKEN)) == TAKEN else "it has ended, or runs another Python"
        except OSError as error:
            refused = str(error)
        if refused is not None:
            print(f"weir: Spark's workers wait for another process to import everything ({refused})", file=sys.stderr)
            return
        # For Spark this process is the daemon, so it stays as long as that does; as small as can be.
        os.dup2(daemon.fileno(), 0)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.execvp("cat", ["cat"])


def main() -> None:
    path = os.environ.pop(VARIABLE, None)
    if path is not None:
        hand_over(path)
    gc.disable()  # what is imported stays, and collections meanwhile would be a tenth of the time
    from pipeline.runtime import spark_daemon

    spark_daemon.main()


if __name__ == "__main__":
    main()
