"""What is installed is called weir-streams: `weir` and its like on package indexes are other projects."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from email.parser import Parser
from pathlib import Path
from typing import Final

import pytest

from pipeline.version import DISTRIBUTION, VERSION

ROOT: Final = Path(__file__).parents[2]
PACKAGES: Final = ("pipeline", "sources", "sinks", "formats", "checkpoint", "pyspark_weir")
PROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_project_has_the_name_and_its_commands_and_packages_keep_theirs() -> None:
    assert (PROJECT["name"], DISTRIBUTION) == ("weir-streams", "weir-streams")
    assert PROJECT["scripts"] == {"weir": "pipeline.cli:main"}


def texts() -> Iterator[Path]:
    """All that somebody may read or be told."""
    yield from (ROOT / name for name in ("README.md", "CHANGELOG.md", "compose.yaml", "Makefile", ".ci/run"))
    for folder in (*PACKAGES, "docs", "docker", "examples", "tests"):
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts and path != Path(__file__):
                yield path


def test_no_text_has_another_project_installed() -> None:
    """`pip install weir`, `weir[registry]`, `weir==0.1`, `version("weir")`: all mean the other project."""
    wrong = re.compile(
        r"install\s+(-\S+\s+)*['\"]?weir(?!-streams|_streams)\b|\bweir(-py|-run)?\[[a-z]|\bweir(-py|-run)?[=~<>]=\d"
        r"|version\(['\"]weir['\"]\)|package_name=['\"]weir['\"]|/weir-\*\.whl"
    )
    for sample in ("pip install weir", "pip install -U 'weir[x]'", "install weir 0.1.0", "`weir[plot]`", "weir>=1.0"):
        assert wrong.search(sample), sample
    for sample in (
        "pip install 'weir-streams[registry]'",
        "install weir-streams 0.1",
        "weir run",
        "weir_streams-*.whl",
    ):
        assert not wrong.search(sample), sample
    found = [
        f"{path.relative_to(ROOT)}: {hit.group()!r}" for path in texts() for hit in wrong.finditer(path.read_text())
    ]
    assert found == []


def test_extras_that_texts_name_are_there() -> None:
    named = {extra for path in texts() for extra in re.findall(r"weir-streams\[(\w+)\]", path.read_text())}
    assert {"registry", "demo", "plot"} <= named <= PROJECT["optional-dependencies"].keys()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """Built from a copy, without a network."""
    pytest.importorskip("setuptools", "77", reason="setuptools 77 is missing: make venv")
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for package in PACKAGES:
        shutil.copytree(ROOT / package, source / package, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    code = f"from setuptools import build_meta; build_meta.build_wheel({str(target)!r})"
    done = subprocess.run([sys.executable, "-c", code], cwd=source, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    (path,) = target.iterdir()
    assert path.name == f"weir_streams-{VERSION}-py3-none-any.whl"
    return zipfile.ZipFile(path)


def test_a_wheel_has_the_name_the_version_the_command_and_all_packages(wheel: zipfile.ZipFile) -> None:
    info = f"weir_streams-{VERSION}.dist-info"
    metadata = Parser().parsestr(wheel.read(f"{info}/METADATA").decode())
    assert (metadata["Name"], metadata["Version"]) == (DISTRIBUTION, VERSION)
    assert set(metadata.get_all("Provides-Extra") or ()) == PROJECT["optional-dependencies"].keys()
    assert "weir = pipeline.cli:main" in wheel.read(f"{info}/entry_points.txt").decode()
    there = set(wheel.namelist())
    assert {name.split("/")[0] for name in there} == {*PACKAGES, info}
    for package in PACKAGES:
        assert f"{package}/py.typed" in there
        modules = {str(path.relative_to(ROOT)) for path in (ROOT / package).rglob("*.py")}
        assert modules <= there
    assert "pipeline/runtime/driver/spark/log4j2.properties" in there
