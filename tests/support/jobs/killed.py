"""Run by a test of what a killed driver leaves: a small job whose driver is killed at a failpoint.

Arguments: name, folder, failpoint, at which hit.
"""

import sys
from pathlib import Path

from staged_job import staged_job

from pipeline.testing import failpoints

name, folder, step, nth = sys.argv[1], Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
failpoints.crash(step, nth=nth, directory=folder / "failpoint")
staged_job(name, folder).run()
