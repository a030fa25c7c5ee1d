"""pyarrow does without pandas until somebody imports it, in processes of their own: this one may have imported it."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("pandas")


def run(program: str) -> list[str]:
    """The lines that it prints."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_pandas_is_not_imported_for_lists() -> None:
    program = """
import sys
import pyarrow as pa
from pipeline.runtime import pandas_late
pandas_late.import_late()
before = len(sys.meta_path)
pandas_late.import_late()
pa.array(["a"]), pa.scalar(1)
print("pandas" in sys.modules, len(sys.meta_path) - before)
"""
    assert run(program) == ["False 0"]


@pytest.mark.parametrize("late", ["pandas_late.import_late()", ""])
@pytest.mark.parametrize("first", ["import pandas", "import numpy"])
def test_what_is_made_of_pandas_objects_is_the_same(first: str, late: str) -> None:
    program = f"""
{first}
import pyarrow as pa
from pipeline.runtime import pandas_late
{late}
from pandas import DataFrame, Series
print(pa.array(Series([1.0, float("nan")])).null_count)
print(pa.table(DataFrame({{"a": [1]}})).to_pylist())
print(type(pa.array([1], pa.timestamp("ns"))[0].as_py()).__name__)
print(type(pa.array([1]).to_pandas()).__name__)
"""
    assert run(program) == ["1", "[{'a': 1}]", "Timestamp", "Series"]


def test_a_pandas_that_cant_be_loaded_fails_as_it_does_else(tmp_path: object) -> None:
    program = f"""
import sys
from pipeline.runtime import pandas_late
pandas_late.import_late()
open({str(tmp_path)!r} + "/pandas.py", "w").write("raise ImportError('broken')")
sys.path.insert(0, {str(tmp_path)!r})
for _ in range(2):
    try:
        import pandas
    except ImportError as error:
        print(error)
"""
    assert run(program) == ["broken"] * 2
