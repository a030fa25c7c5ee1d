"""What a job makes of the settings of the session that it runs in."""

from __future__ import annotations

import pytest
from pyspark import SparkConf

from pipeline.runtime.driver.spark.session import _hides_secrets
from pipeline.runtime.driver.spark.spark_job import _failure


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
