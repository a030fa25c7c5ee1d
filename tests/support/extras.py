"""Libraries of a part of a pipeline that are an extra."""

from __future__ import annotations

import subprocess
import sys


def imported_and_missing(libraries: set[str], without: str, method: str, off: str, on: str) -> tuple[str, str]:
    """In a new process: which of the libraries are imported though nobody asks for the part, as a list; and the error
    for who asks for it where one of them is missing.

    Args:
        without: the library that is missing.
        method: of `Pipeline`; gives the part.
        off: its argument, in Python's words, of who doesn't ask for the part.
        on: that of who does.
    """
    code = (
        "import sys\nfrom pipeline import Pipeline, PipelineError\n"
        f"Pipeline('job').{method}({off})\n"
        f"print(sorted({libraries!r} & set(sys.modules)))\n"
        f"sys.modules[{without!r}] = None\n"
        f"try:\n    Pipeline('job').{method}({on})\n"
        "except PipelineError as error:\n    print(error)\n"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    imported, missing = said.splitlines()
    return imported, missing
