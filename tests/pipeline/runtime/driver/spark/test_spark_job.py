"""What is told of a Spark job that has failed, from what Spark says of it."""

from __future__ import annotations

import pytest

from pipeline.runtime.driver.spark.spark_job import _failure, _telling

PYTHON = """\
org.apache.spark.SparkException: Job aborted due to stage failure: Task 1 failed 1 times

org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "worker.py", line 1, in main

  File "job.py", line 2, in run
ValueError: it is 5

\tat org.apache.spark.api.python.BasePythonRunner.handle(PythonRunner.scala:1)
\tat java.lang.Thread.run(Thread.java:840)"""
WORKER = """\
org.apache.spark.SparkException:
Error from python worker:
  /usr/bin/python3: Error while finding module specification
  No module named 'pipeline'
PYTHONPATH was:
  /opt/spark/python
\tat org.apache.spark.deploy.SparkHadoopUtil"""


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            PYTHON,
            "Traceback (most recent call last):\n"
            '  File "worker.py", line 1, in main\n'
            '  File "job.py", line 2, in run\n'
            "ValueError: it is 5",
        ),
        (WORKER, "/usr/bin/python3: Error while finding module specification\nNo module named 'pipeline'"),
        (
            "\n\tat java.lang.Error.x(Error.java)\n  Executor 3 crashed \njava.io.IOException: gone",
            "Executor 3 crashed",
        ),
        ("Stage 3 ended\njava.io.IOException: gone", "java.io.IOException: gone"),
        ("Stage 3 ended\njava.lang.StackOverflowError", "java.lang.StackOverflowError"),
        ("\n\n\tat java.lang.Thread.run\nStage 3 was cancelled\nby the user", "Stage 3 was cancelled"),
        ("", "no reason given"),
        ("\tat java.lang.Thread.run", "no reason given"),
        (f"Error {'x' * 1000}", f"Error {'x' * 494}"),
    ],
)
def test_what_tells_most_of_a_failure_is_told(said: str, told: str) -> None:
    assert _telling(said) == told


def test_of_a_long_traceback_forty_lines_are_told() -> None:
    lines = ["Traceback (most recent call last):", *(f"line {n}" for n in range(1, 100))]
    assert _telling("\n".join(lines)).splitlines() == lines[:40]


@pytest.mark.parametrize(
    ("cause", "reason"),
    [
        ("host h: Weir can't be imported by /usr/bin/python3", "host h: Weir can't be imported by /usr/bin/python3"),
        ("first\n  No module named 'pipeline'", "No module named 'pipeline'; install weir-streams"),
        ("No module named 'pyspark_weir'\nlast", "No module named 'pyspark_weir'; install weir-streams"),
        ("[PYTHON_VERSION_MISMATCH] Python 3.9 and 3.12", "[PYTHON_VERSION_MISMATCH] Python 3.9 and 3.12"),
        (
            "host h: Weir can't be imported by python3 (No module named 'pipeline')",
            "host h: Weir can't be imported by python3 (No module named 'pipeline')",
        ),
    ],
)
def test_where_no_restart_helps_the_line_that_says_so_is_told(cause: str, reason: str) -> None:
    failure = _failure(cause)
    assert failure.permanent
    told, advice, _ = str(failure).partition("; install weir-streams")
    assert told + advice == reason


def test_other_failures_are_told_whole_and_may_be_over_with_a_restart() -> None:
    failure = _failure("Executor 3 crashed\nand more")
    assert (str(failure), failure.permanent) == ("Executor 3 crashed\nand more", False)
