"""Which arguments of calls into the JVM pyspark looks at as numpy's, in a process of its own."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
import numpy as np
from pipeline.runtime.driver.spark.numpy_arguments import ask_of_numpys_only
from pyspark.sql.types import NumpyArrayConverter, NumpyScalarConverter
ask_of_numpys_only()
ask_of_numpys_only()

class Mine(np.ndarray):
    pass

scalar, array = NumpyScalarConverter(), NumpyArrayConverter()
print([one.can_convert(value) for one in (scalar, array) for value in ("a", [1], None, object())])
print([name for name in ("pandas", "pyspark.testing") if name in sys.modules])
values = np.int64(1), np.array([1]), np.array([[1]]), np.array([1]).view(Mine)
print([scalar.can_convert(value) for value in values], [array.can_convert(value) for value in values])
"""


def test_pyspark_finds_numpys_arguments_and_imports_nothing_for_others() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.splitlines() == [
        str([False] * 8),
        "[]",
        "[True, False, False, False] [False, True, False, True]",
    ]
