"""What Prometheus and Grafana are given: names that there are, rules that fire when they should, and a scrape of a real
job's server by a real Prometheus."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import yaml
from deadlines import eventually
from idle_handle import idle_handle, run
from page_code import DOCS, blocks_of, check_commands

from checkpoint.commit_log import MAX_WAITING
from checkpoint.job_metrics import JOB_METRICS
from checkpoint.metric_names import prometheus_name
from checkpoint.metrics import METRICS
from checkpoint.waiting import WaitKind
from pipeline.broker.ports import free_ports
from pipeline.http.address import Address
from pipeline.http.server import HttpServer

FOLDER: Final = Path(__file__).parents[2] / "docker/job/monitoring"
BOARD: Final[dict[str, Any]] = json.loads((FOLDER / "grafana/weir.json").read_text())


def expressions() -> list[str]:
    return [target["expr"] for panel in BOARD["panels"] for target in panel["targets"]]


def found(command: str) -> str:
    path = shutil.which(command)
    if path is None:
        pytest.skip(f"there is no {command} here (Debian: apt-get install prometheus)")
    return path


def test_rules_and_board_use_names_that_there_are() -> None:
    known = {prometheus_name(metric) for metric in METRICS} | {metric.name for metric in JOB_METRICS}
    texts = [path.read_text() for path in FOLDER.rglob("*") if path.suffix in (".yml", ".json")]
    used = {name for text in texts for name in re.findall(r"\bweir_\w+", text)}
    assert len(used) > 25
    assert used - known == set()


def test_no_two_panels_have_one_place_or_id() -> None:
    panels = BOARD["panels"]
    assert len({(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}) == len(panels)
    assert len({panel["id"] for panel in panels}) == len(panels)


def test_alerts_fire_when_they_should() -> None:
    rules = yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"][0]["rules"]
    tested = (FOLDER / "alerts_test.yml").read_text()
    assert [rule["alert"] for rule in rules if f"alertname: {rule['alert']}" not in tested] == []
    done = subprocess.run(
        [found("promtool"), "test", "rules", "alerts_test.yml"], cwd=FOLDER, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_has_its_runbook_whose_commands_there_are() -> None:
    rules = yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"][0]["rules"]
    for rule in rules:
        assert rule["annotations"]["runbook"] == f"docs/alerts.md#{rule['alert'].lower()}"
    text = (DOCS / "alerts.md").read_text()
    assert re.findall(r"^## (\w+)$", text, re.MULTILINE) == [rule["alert"] for rule in rules]
    assert check_commands(blocks_of("alerts.md")) > 10
    named = re.findall(r"`weir ([^`]+)`", text)
    assert check_commands(f"weir {command}" for command in named) > 5


def test_an_alert_tells_of_every_wait_for_what_is_outside() -> None:
    expressions = re.findall(r'\{on=~?"([^"]+)"', (FOLDER / "alerts.yml").read_text())
    waits = {WaitKind.BROKERS, WaitKind.CREDENTIALS, WaitKind.SLOTS, WaitKind.PROCESSES}
    assert {kind for expression in expressions for kind in expression.split("|")} == waits


def test_an_alert_tells_of_a_sink_that_takes_no_records_since_commits_wait() -> None:
    (most,) = re.findall(r"\(weir_pending_commits\) > (\d+)", (FOLDER / "alerts.yml").read_text())
    assert int(most) + 1 == MAX_WAITING, "more than that need never wait"


@pytest.fixture
def server() -> Iterator[HttpServer]:
    handle = idle_handle()
    run(handle, in_0={"recordsLag": 7})
    one = HttpServer(Address("127.0.0.1", 0))
    one.start("orders", handle)
    yield one
    one.close()
    one.await_close()


def test_a_real_prometheus_gets_the_figures_and_answers_what_the_board_asks(server: HttpServer, tmp_path: Path) -> None:
    command = found("prometheus")
    (tmp_path / "token").write_text(server.token)
    config = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
    config["global"]["scrape_interval"] = "1s"
    config["rule_files"] = [str(FOLDER / "alerts.yml")]
    (scrape,) = config["scrape_configs"]
    scrape["authorization"]["credentials_file"] = str(tmp_path / "token")
    scrape["static_configs"] = [{"targets": [server.url.removeprefix("http://")]}]
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
    address = f"127.0.0.1:{free_ports(1)[0]}"
    arguments = [f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data"]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen([command, *arguments, f"--web.listen-address={address}"], stdout=log, stderr=log)
    try:
        with httpx.Client(base_url=f"http://{address}/api/v1", trust_env=False) as prometheus:

            def ask(query: str) -> list[Any]:
                try:
                    answer = prometheus.get("/query", params={"query": query})
                except httpx.TransportError:  # it starts
                    return []
                if answer.status_code == 503:  # so it does
                    return []
                assert answer.status_code == 200, (query, answer.text)
                result: list[Any] = answer.json()["data"]["result"]
                return result

            eventually(lambda: ask('weir_records_lag{job="orders", step="in", subtask="0"}'))
            assert ask('up{job="weir"}')[0]["value"][1] == "1"
            for expression in expressions():
                ask(expression.replace("$__rate_interval", "1m").replace("$job", ".*"))
            assert ask('weir_records_lag{job="orders", step="in"}')[0]["value"][1] == "7"
    finally:
        process.terminate()
        process.wait(300)
