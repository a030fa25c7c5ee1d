"""What the compose files say, without an engine: pinned images, volumes, and a job that can be planned."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from pipeline.broker.jars import KAFKA_VERSION
from pipeline.cli.script import find_pipeline
from pipeline.settings import from_environment
from pipeline.testing.kafka_backends import DEFAULT_IMAGE

ROOT: Final = Path(__file__).parents[2]
FILES: Final = ("compose.yaml", "docker/job/compose.yaml")


def read(file: str) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((ROOT / file).read_text())
    return content


@pytest.mark.parametrize("file", FILES)
def test_the_broker_is_the_version_that_is_tested(file: str) -> None:
    assert f"apache/kafka:{KAFKA_VERSION}" == DEFAULT_IMAGE
    assert read(file)["services"]["kafka"]["image"] == f"${{WEIR_KAFKA_IMAGE:-{DEFAULT_IMAGE}}}"
    for service in read(file)["services"].values():
        default = service["image"].partition(":-")[2].rstrip("}")
        assert ":" in default, "no image without a tag"
        assert not default.endswith(":latest")


def test_both_files_have_the_same_broker_but_for_its_volume() -> None:
    (demo, job) = (read(file)["services"]["kafka"] for file in FILES)
    assert job["environment"].pop("KAFKA_LOG_DIRS") == "/var/lib/kafka/data"
    assert job.pop("volumes") == ["topics:/var/lib/kafka/data"]
    assert job == demo


def test_the_image_has_every_package_however_it_is_built() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = {name.removesuffix("*") for name in project["tool"]["setuptools"]["packages"]["find"]["include"]}
    dockerfile = (ROOT / "docker/weir/Dockerfile").read_text()
    assert set(re.findall(r"COPY (\w+) /tmp/source/\1\n", dockerfile)) == packages
    (copied,) = re.findall(r"for each in ([\w ]+); do", (ROOT / "docker/weir/build.sh").read_text())
    assert set(copied.split()) == packages


def test_checkpoints_of_the_template_outlive_its_container() -> None:
    content = read("docker/job/compose.yaml")
    job = content["services"]["orders"]
    mounted = [volume.split(":")[1] for volume in job["volumes"] if volume.split(":")[0] in content["volumes"]]
    folder = job["environment"]["WEIR_CHECKPOINTS_URI"].removeprefix("file://")
    assert any(folder.startswith(f"{path}/") for path in mounted)
    assert int(job["stop_grace_period"].removesuffix("s")) > 30


def test_the_templates_job_is_one_and_its_variables_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = read("docker/job/compose.yaml")["services"]["orders"]["environment"]
    given = from_environment({name: value for name, value in environment.items() if not value.startswith("$")})
    assert list(given.given) == ["checkpoints.uri"]
    for name, value in environment.items():
        monkeypatch.setenv(name, "" if value.startswith("$") else value)
    monkeypatch.setenv("WEIR_SCRIPT_FOLDER", "")
    p = find_pipeline(str(ROOT / "docker/job/orders.py"))
    assert p.checkpoints is not None
    assert p.checkpoints.uri == environment["WEIR_CHECKPOINTS_URI"]
    assert [vertex.name for vertex in p.plan().vertices] == ["orders", "totals → out"]


@pytest.mark.parametrize("file", FILES)
def test_compose_takes_the_file(file: str) -> None:
    command = shutil.which("docker-compose")
    if command is None:
        pytest.skip("there is no docker-compose")
    done = subprocess.run(
        [command, "-f", str(ROOT / file), "config", "--quiet"],
        env={**os.environ, "WEIR_KAFKA_PORT": "19094"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
