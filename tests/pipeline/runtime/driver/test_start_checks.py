"""What a start refuses before anything of the job runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from checkpoint_folders import JobFolder

from checkpoint.storage.storage import CheckpointStorage
from pipeline import Pipeline, PipelineError
from pipeline.runtime.driver.job_options import JobOptions
from pipeline.runtime.driver.start_checks import find_restore_point
from pipeline.testing import TestingSink, TestingSource


def options(name: str) -> JobOptions:
    p = Pipeline(name)
    p.source("in", TestingSource()).sink("out", TestingSink())
    return p.options("latest", spark=None, claim=None, rewind=False, allow_unclaimed=False, ignore_in_flight=None)


@pytest.mark.parametrize("name", ["Orders", "ORDERS"])
def test_a_folder_that_another_spelling_of_the_name_leads_to_is_refused(tmp_path: Path, name: str) -> None:
    storage = CheckpointStorage(str(tmp_path), "orders")
    JobFolder(storage).complete(1)
    # As on a file system that ignores case.
    with pytest.raises(PipelineError, match=f"those of pipeline 'orders', and this file system takes '{name}'"):
        find_restore_point(options(name), storage, False, {})


@pytest.mark.parametrize("name", ["orders", "payments"])
def test_a_folder_of_the_same_name_or_a_renamed_one_is_not(tmp_path: Path, name: str) -> None:
    storage = CheckpointStorage(str(tmp_path), "orders")
    JobFolder(storage).complete(1)
    assert find_restore_point(options(name), storage, False, {}) is not None
