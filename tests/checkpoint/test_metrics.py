from pathlib import Path

from checkpoint.metrics import METRICS, as_markdown

ROOT = Path(__file__).parents[2]


def test_the_page_on_metrics_is_the_list() -> None:
    assert (ROOT / "docs" / "metrics.md").read_text() == as_markdown()


def test_names_are_unique() -> None:
    assert len({metric.name for metric in METRICS}) == len(METRICS)
