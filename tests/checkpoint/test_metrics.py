from pathlib import Path

import pytest

from checkpoint.metrics import METRICS
from checkpoint.metrics_page import as_markdown
from pipeline.runtime.subtask.task_metrics import TaskMetrics

ROOT = Path(__file__).parents[2]


def test_the_page_on_metrics_is_the_list() -> None:
    assert (ROOT / "docs" / "metrics.md").read_text() == as_markdown()


def test_names_are_unique() -> None:
    assert len({metric.name for metric in METRICS}) == len(METRICS)


def test_a_subtask_reports_metrics_that_are_declared() -> None:
    known = {metric.name for metric in METRICS}
    not_metrics = {"barriers", "hotKeys", "writing", "unsent", "uncaptured", "waits"}
    assert TaskMetrics().report().keys() <= known | not_metrics


def test_counting_adds_up() -> None:
    metrics = TaskMetrics()
    metrics.count("recordsSkipped")
    metrics.count("recordsSkipped", 2)
    metrics.gauge("recordsLag", 7)
    assert (metrics.report()["recordsSkipped"], metrics.report()["recordsLag"]) == (3, 7)


def test_a_name_that_is_not_declared_is_an_error_where_it_is_counted() -> None:
    metrics = TaskMetrics()
    with pytest.raises(ValueError, match="no metric 'recordSkipped'; did you mean 'recordsSkipped'"):
        metrics.count("recordSkipped")
    with pytest.raises(ValueError, match="no metric 'mine'"):
        metrics.gauge("mine", 1.0)
    with pytest.raises(ValueError, match="recordsLag is a gauge"):
        metrics.count("recordsLag")
    assert not {"recordSkipped", "mine"} & metrics.report().keys()
