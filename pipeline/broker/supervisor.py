"""Run as a script: starts a command and sees to it that it does not outlive the process that asked for it.

`python supervisor.py PARENT_PID FOLDER_TO_REMOVE|- COMMAND...` prints the command's pid and takes on its exit status.
SIGTERM and SIGINT go on to the command. When the parent dies, however it dies, the command is killed and the folder
removed. A process in between is needed because the kernel's own parent-death signal goes by *threads*: it would also
fire when the thread that started the broker ends.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

_PR_SET_PDEATHSIG = 1


def main(argv: list[str]) -> int:
    parent, folder, command = int(argv[0]), argv[1], argv[2:]
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sys.stderr, preexec_fn=_die_with_supervisor)
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, lambda *_: child.terminate())
    print(child.pid, flush=True)
    threading.Thread(target=_watch, args=(parent, child), daemon=True).start()
    status = child.wait()
    if os.getppid() != parent and folder != "-":
        shutil.rmtree(folder, ignore_errors=True)  # nobody is left to tell
    return status if status >= 0 else 128 - status


def _watch(parent: int, child: subprocess.Popen[bytes]) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    child.kill()


def _die_with_supervisor() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
