"""Where a job runs is what `spark-submit --master` and `weir run --master` say, on a real standalone cluster."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from spark_cluster import SparkCluster

pytestmark = pytest.mark.slow

JOB = """
import os, sys
from pathlib import Path
from pipeline import Pipeline
from sinks import PrintSink
from sources import SequenceSource

folder = Path(os.environ["TEST_FOLDER"])

def note(record):
    import psutil
    executors = [p.pid for p in psutil.Process().parents() if "CoarseGrainedExecutorBackend" in " ".join(p.cmdline())]
    (folder / "executors").mkdir(exist_ok=True)
    for pid in executors:
        (folder / "executors" / str(pid)).touch()
    return record

p = Pipeline("submitted", parallelism=2)
p.source("numbers", SequenceSource(20)).map(note).sink("out", PrintSink())
if __name__ == "__main__":
    print("ended:", p.run().status)
"""


def environment(folder: Path) -> dict[str, str]:
    (folder / "job.py").write_text(JOB)
    (folder / "conf").mkdir()
    (folder / "conf" / "spark-defaults.conf").write_text("spark.executor.memory 512m\nspark.cores.max 4\n")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYSPARK_", "SPARK_"))}
    return {
        **kept,
        "TEST_FOLDER": str(folder),
        "SPARK_CONF_DIR": str(folder / "conf"),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "WEIR_STATE_DIR": str(folder / "state"),
    }


def said(folder: Path, *command: str) -> str:
    done = subprocess.run(command, env=environment(folder), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_a_submitted_script_runs_at_the_master_that_it_was_submitted_to(cluster: SparkCluster, tmp_path: Path) -> None:
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    output = said(tmp_path, str(submit), "--master", cluster.url, str(tmp_path / "job.py"))
    assert f"at {cluster.url} has slots for 2 subtasks" in output
    assert "ended: finished" in output
    assert list((tmp_path / "executors").iterdir())


def test_weir_run_runs_at_the_master_that_it_is_given(cluster: SparkCluster, tmp_path: Path) -> None:
    main = "from pipeline.cli import main; main(prog_name='weir')"
    output = said(tmp_path, sys.executable, "-c", main, "run", str(tmp_path / "job.py"), "--master", cluster.url)
    assert f"at {cluster.url} has slots for 2 subtasks" in output
    assert list((tmp_path / "executors").iterdir())
