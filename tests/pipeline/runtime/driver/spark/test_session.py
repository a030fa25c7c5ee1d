"""What a job makes of the settings of the session that it runs in."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
from attempt_parts import job_options
from deadlines import PATIENCE
from pyspark import SparkConf

from pipeline import Pipeline
from pipeline.runtime.driver.spark import session
from pipeline.runtime.driver.spark.session import JobSession, _hides_secrets
from pipeline.runtime.driver.spark.spark_job import _failure
from pipeline.testing import TestingSink, TestingSource


@pytest.mark.parametrize("key", ["spark.network.crypto.enabled", "spark.ssl.rpc.enabled"])
def test_each_setting_that_has_spark_encrypt_its_connections_will_do(key: str) -> None:
    conf = SparkConf(loadDefaults=False).set("spark.authenticate", "true")
    assert not _hides_secrets(conf)
    assert not _hides_secrets(conf.set(key, "false"))
    assert _hides_secrets(conf.set(key, "true"))


def test_no_restart_helps_where_the_library_for_encryption_is_missing() -> None:
    error = "pipeline.errors.PipelineError: encrypt=True needs a library; pip install 'weir-streams[encryption]'"
    failed = _failure(f"Traceback (most recent call last):\n  File x\n{error}")
    assert failed.permanent
    assert str(failed) == error


class Sparks:
    """What `spark_context` gives, once it may."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, own: bool = True, error: Exception | None = None) -> None:
        self.asked, self.up, self.over = threading.Event(), threading.Event(), threading.Event()
        self.stopped: list[Any] = []
        self._own, self._error = own, error
        monkeypatch.setattr(session, "spark_context", self._start)
        monkeypatch.setattr(session, "stop_context", self.stopped.append)
        monkeypatch.setattr(session, "require_slots", lambda *_: None)
        find = JobSession._open

        def opening(one: JobSession, opened: Any) -> None:
            find(one, opened)
            self.over.set()

        monkeypatch.setattr(JobSession, "_open", opening)

    def _start(self, *_: Any) -> tuple[Any, bool]:
        self.asked.set()
        assert self.up.wait(PATIENCE)
        if self._error is not None:
            raise self._error
        return SimpleNamespace(master="local[1]", version="4"), self._own


def of_a_job() -> JobSession:
    p = Pipeline("job", parallelism=1)
    p.source("in", TestingSource()).sink("out", TestingSink())
    return JobSession(job_options(p.plan(), graph=p._graph))


def test_a_session_that_is_up_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    sparks, one = Sparks(monkeypatch), of_a_job()
    sparks.up.set()
    assert one.open(lambda: False)
    assert one.context.master == "local[1]"
    one.close()
    assert sparks.stopped == [one.context]


def test_what_keeps_it_from_starting_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    sparks = Sparks(monkeypatch, error=RuntimeError("no Java"))
    sparks.up.set()
    with pytest.raises(RuntimeError, match="no Java"):
        of_a_job().open(lambda: False)


@pytest.mark.parametrize("own", [True, False])
def test_one_that_is_not_needed_any_more_is_not_waited_for_and_stopped_once_it_is_up(
    monkeypatch: pytest.MonkeyPatch, own: bool
) -> None:
    sparks, one = Sparks(monkeypatch, own), of_a_job()
    assert not one.open(sparks.asked.is_set)
    assert one.context is None
    one.close()
    sparks.up.set()
    assert sparks.over.wait(PATIENCE)
    assert len(sparks.stopped) == own
    assert one.context is None
