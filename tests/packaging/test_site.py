"""The site is built from docs, README, changelog and docstrings, and its links and options are right."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

import pipeline

ROOT: Final = Path(__file__).parents[2]


@pytest.mark.sample(1 / 4)
def test_the_site_is_built_without_a_warning_and_has_every_public_name(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert built.returncode == 0, built.stderr
    assert "WARNING" not in built.stderr
    reference = (tmp_path / "reference" / "pipeline" / "index.html").read_text()
    assert [name for name in pipeline.__all__ if f'id="pipeline.{name}"' not in reference] == []
    for page in ROOT.joinpath("docs").glob("*.md"):
        assert (tmp_path / page.stem / "index.html").exists(), page


def test_every_page_is_in_the_navigation() -> None:
    text = (ROOT / "mkdocs.yml").read_text()
    assert [page.name for page in (ROOT / "docs").glob("*.md") if f"- {page.name}\n" not in text] == []
