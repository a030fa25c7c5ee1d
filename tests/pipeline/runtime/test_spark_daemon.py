"""The daemon that Spark's Python workers are forked from: what costs each of them time is done before."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

_LOOK = """
import sys
import pipeline.runtime.spark_daemon
before = set(sys.modules)
import pyspark.worker
import pipeline.runtime.subtask.process
assert sys.modules["pyspark"].__file__.split("/pyspark/")[-2].endswith(".zip"), "not as Spark starts it"
print(*sorted(set(sys.modules) - before))
print(*[path for path, importer in sys.path_importer_cache.items() if type(importer).__name__ == "zipimporter"])
"""


def test_a_forked_worker_finds_everything_imported_and_no_archive_to_read_again() -> None:
    archives = sorted((Path(pyspark.__file__).parent / "python" / "lib").glob("*.zip"))
    assert archives
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, archives))}  # as Spark sets it
    look = subprocess.run([sys.executable, "-c", _LOOK], env=env, capture_output=True, text=True, check=False)
    assert look.returncode == 0, look.stderr
    imported_late, archives_to_read = look.stdout.split("\n")[:2]
    assert imported_late == ""
    assert archives_to_read == ""


_FROZEN = """
import gc
gc.disable()
import pipeline.runtime.spark_daemon
assert gc.isenabled()
gc.collect()
print(gc.get_freeze_count(), len(gc.get_objects()))
"""


def test_a_collection_in_a_worker_does_not_touch_what_it_shares_with_the_others() -> None:
    look = subprocess.run([sys.executable, "-c", _FROZEN], capture_output=True, text=True, check=True)
    set_aside, looked_at = map(int, look.stdout.split())
    assert set_aside > 100 * looked_at


_PATH = """
import sys
from pipeline.runtime.spark_daemon import without_sparks_archives
print(*without_sparks_archives(sys.argv[1:]), sep="\\n")
"""


@pytest.mark.parametrize("sparks_own", [False, True])
def test_workers_look_for_modules_beside_sparks_archives_unless_pyspark_comes_from_one(
    sparks_own: bool, tmp_path: Path
) -> None:
    home = Path(pyspark.__file__).parent
    archives = [*(home / "python" / "lib").glob("*.zip"), *(home / "jars").glob("spark-core_*.jar")]
    assert len(archives) > 2
    theirs = tmp_path / "theirs.zip"
    theirs.touch()
    kept = [str(home.parent), "", str(theirs), str(tmp_path)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, archives))} if sparks_own else {**os.environ}
    command = [sys.executable, "-c", _PATH, *map(str, archives), *kept]
    look = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    assert look.stdout.split("\n")[:-1] == [*(map(str, archives) if sparks_own else ()), *kept]
