"""The tutorial's files and commands, in their order, give what it prints; so do those of the pages about upgrades and
clusters."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from page_code import DOCS
from terminals import Terminals, follow

from pipeline.broker.ports import free_ports

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def bootstrap() -> str:
    return f"localhost:{free_ports(1)[0]}"


@pytest.fixture
def terminals(tmp_path: Path, bootstrap: str) -> Iterator[Terminals]:
    made = Terminals(tmp_path, bootstrap)
    yield made
    made.close()


@pytest.mark.sample(1 / 4)
def test_the_tutorial_works_as_it_is_written(tmp_path: Path, terminals: Terminals, bootstrap: str) -> None:
    assert follow(DOCS / "tutorial.md", tmp_path, terminals, bootstrap) == 2
    assert "job orders: running from checkpoint" in terminals.log.read_text()


@pytest.mark.sample(1 / 8)
def test_an_upgrade_and_the_way_back_work_as_they_are_written(
    tmp_path: Path, terminals: Terminals, bootstrap: str
) -> None:
    assert follow(DOCS / "upgrades.md", tmp_path, terminals, bootstrap) == 4
    assert "job orders: running from savepoint" in terminals.log.read_text()


@pytest.mark.sample(1 / 8)
def test_a_cluster_is_made_step_by_step_as_it_is_written(tmp_path: Path, terminals: Terminals, bootstrap: str) -> None:
    assert follow(DOCS / "spark.md", tmp_path, terminals, bootstrap) == 1
    shown = [line for line in terminals.log.read_text().splitlines() if "authentication enabled" in line]
    assert len(shown) >= 2  # of master and worker
