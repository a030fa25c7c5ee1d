"""`weir demo`: the check finds what it must find, and the whole of it runs with a killed process."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import signal
import subprocess
import sys
from typing import Any

import orjson
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from pipeline.broker.readiness import await_broker
from pipeline.cli import main
from pipeline.demo import flights as flights_module
from pipeline.demo.driver import Demo
from pipeline.demo.flights import DataMissing, Flights, messages
from pipeline.demo.hours import ExpectedHours, HoursFindings
from pipeline.demo.job import SlowPhase
from pipeline.demo.report import Report
from pipeline.demo.validate import Carrier, Expected, Findings, Validator
from pipeline.demo.weather import weather, weather_messages
from pipeline.testing import KafkaBroker

KEYS = [
    "records_in",
    "records_out",
    "lost",
    "duplicated",
    "wrong",
    "checkpoints_completed",
    "checkpoints_failed",
    "checkpoint_p50_s",
    "checkpoint_p95_s",
    "max_span_records",
    "gate_closed_s",
    "restarts",
    "recovery_s",
    "seconds",
    "hours",
]


def flight(id: int, carrier: str, delay: int | None) -> dict[str, Any]:
    return {"id": id, "carrier": carrier, "arr_delay": delay}


FLIGHTS = [
    flight(0, "UA", 11),
    flight(1, "AA", None),
    flight(2, "UA", -20),
    flight(3, "AA", 5),
    flight(4, "UA", None),
    flight(5, "AA", 33),
]


def outputs(expected: Expected) -> list[dict[str, Any]]:
    return [expected.record(id) for id in range(len(expected))]


def check(records: list[Any], flights: list[dict[str, Any]] | None = None) -> Findings:
    validator = Validator(Expected(FLIGHTS if flights is None else flights))
    for record in records:
        validator.take(record if isinstance(record, bytes | None) else orjson.dumps(record))
    return validator.findings()


def counts(findings: Findings) -> tuple[int, int, int]:
    return findings.lost, findings.duplicated, findings.wrong


# -- what is expected -------------------------------------------------------------------------------------------------


def test_expected_figures_run_per_carrier() -> None:
    assert outputs(Expected(FLIGHTS)) == [
        {"id": 0, "carrier": "UA", "flights": 1, "without_delay": 0, "minutes": 11, "worst": 11},
        {"id": 1, "carrier": "AA", "flights": 1, "without_delay": 1, "minutes": 0, "worst": None},
        {"id": 2, "carrier": "UA", "flights": 2, "without_delay": 0, "minutes": -9, "worst": 11},
        {"id": 3, "carrier": "AA", "flights": 2, "without_delay": 1, "minutes": 5, "worst": 5},
        {"id": 4, "carrier": "UA", "flights": 3, "without_delay": 1, "minutes": -9, "worst": 11},
        {"id": 5, "carrier": "AA", "flights": 3, "without_delay": 1, "minutes": 38, "worst": 33},
    ]


def test_final_figures_are_those_of_the_last_flights() -> None:
    final = Expected(FLIGHTS).final
    assert final == {"UA": Carrier(3, 1, -9, 11), "AA": Carrier(3, 1, 38, 33)}
    assert final["UA"].mean == -4.5
    assert Carrier(2, 2, 0, None).mean is None


# -- the check --------------------------------------------------------------------------------------------------------


def test_right_output_passes() -> None:
    findings = check(outputs(Expected(FLIGHTS)))
    assert findings == Findings(6, 6, 0, 0, 0)
    assert findings.ok


def test_carriers_may_come_in_any_order_of_each_other() -> None:
    records = outputs(Expected(FLIGHTS))
    assert check([*records[1::2], *records[0::2]]).ok


def test_a_lost_record_is_found() -> None:
    records = outputs(Expected(FLIGHTS))
    assert counts(check(records[:3] + records[4:])) == (1, 0, 0)


def test_no_output_at_all_is_lost() -> None:
    assert counts(check([])) == (6, 0, 0)


def test_a_doubled_record_is_found_wherever_it_comes() -> None:
    records = outputs(Expected(FLIGHTS))
    assert counts(check([*records, records[0], records[0], records[5]])) == (0, 3, 0)


def test_a_repeated_stretch_is_doubled_and_not_out_of_order() -> None:
    records = outputs(Expected(FLIGHTS))
    assert counts(check(records[:4] + records[2:4] + records[4:])) == (0, 2, 0)


@pytest.mark.parametrize("field", ["carrier", "flights", "without_delay", "minutes", "worst"])
def test_a_wrong_figure_is_found(field: str) -> None:
    records = outputs(Expected(FLIGHTS))
    records[2] = {**records[2], field: "XX" if field == "carrier" else 10**6}
    findings = check(records)
    assert counts(findings) == (0, 0, 1)
    assert "should be" in findings.examples[0]


def test_a_missing_and_a_surplus_field_are_wrong() -> None:
    records = outputs(Expected(FLIGHTS))
    del records[0]["worst"]
    records[1]["more"] = 1
    assert counts(check(records)) == (0, 0, 2)


def test_state_that_lost_a_flight_makes_all_later_totals_wrong() -> None:
    records = outputs(Expected([*FLIGHTS[:2], flight(2, "UA", 0), *FLIGHTS[3:]]))
    assert counts(check(records)) == (0, 0, 2)


def test_a_carriers_records_in_another_order_are_wrong() -> None:
    records = outputs(Expected(FLIGHTS))
    records[2], records[4] = records[4], records[2]
    assert counts(check(records)) == (0, 0, 1)


@pytest.mark.parametrize("record", [b"{", None, b"[1]", {"id": 6}, {"id": -1}, {"id": "0"}, {"id": True}, {}])
def test_what_is_no_output_of_a_flight_is_wrong(record: Any) -> None:
    findings = check([*outputs(Expected(FLIGHTS)), record])
    assert counts(findings) == (0, 0, 1)
    assert findings.records_out == 7


@given(st.lists(st.tuples(st.sampled_from("ABC"), st.none() | st.integers(-99, 999)), min_size=1), st.randoms())
def test_every_change_is_counted(rows: list[tuple[str, int | None]], rng: random.Random) -> None:
    flights = [flight(id, carrier, delay) for id, (carrier, delay) in enumerate(rows)]
    records = outputs(Expected(flights))
    lost = {id for id in range(len(records)) if rng.random() < 0.2}
    doubled = {id for id in range(len(records)) if rng.random() < 0.2} - lost
    wrong = {id for id in range(len(records)) if rng.random() < 0.2} - lost
    changed: list[dict[str, Any]] = []
    for record in records:
        id = record["id"]
        if id in lost:
            continue
        changed.append({**record, "minutes": 10**9} if id in wrong else record)
        if id in doubled:
            changed.append(record)
    assert counts(check(changed, flights)) == (len(lost), len(doubled), len(wrong))


# -- by hour, beside the weather --------------------------------------------------------------------------------------

HOUR = 3_600_000
DEPARTURES = [
    {"origin": "JFK", "at": 5 * HOUR, "dep_delay": 10},
    {"origin": "JFK", "at": 6 * HOUR - 1, "dep_delay": None},
    {"origin": "JFK", "at": 6 * HOUR, "dep_delay": -3},
    {"origin": "EWR", "at": 5 * HOUR, "dep_delay": 7},
    {"origin": "JFK", "at": 99 * HOUR, "dep_delay": 1},
]
WEATHER = [
    {"origin": "JFK", "at": 4 * HOUR, "wind_speed": 4.0, "visib": 10.0},
    {"origin": "JFK", "at": 6 * HOUR, "wind_speed": 12.0, "visib": 9.0},
    {"origin": "LGA", "at": 5 * HOUR, "wind_speed": 30.0, "visib": 8.0},
]


def hour(
    origin: str, start: int, flights: int, minutes: int, wind: float | None, visib: float | None
) -> dict[str, Any]:
    return {
        "origin": origin,
        "hour": start * HOUR,
        "flights": flights,
        "minutes": minutes,
        "wind": wind,
        "visib": visib,
    }


HOURS = [
    hour("JFK", 5, 2, 10, 4.0, 10.0),
    hour("JFK", 6, 1, -3, 12.0, 9.0),
    hour("EWR", 5, 1, 7, None, None),
    hour("JFK", 99, 1, 1, None, None),  # the newest weather is too old
]


def test_hours_are_expected_with_the_newest_weather_of_then() -> None:
    expected = ExpectedHours(DEPARTURES, WEATHER)
    assert list(expected.records.values()) == HOURS
    assert expected.delay_by_wind() == [
        ("under 10 mph", 2, 5.0),
        ("10 to 20 mph", 1, -3.0),
        ("20 mph and more", 0, None),
    ]


@pytest.mark.parametrize(
    ("records", "found"),
    [
        (HOURS, (0, 0, 0)),
        (HOURS[::-1], (0, 0, 0)),
        (HOURS[1:], (1, 0, 0)),
        ([*HOURS, HOURS[2]], (0, 1, 0)),
        ([{**HOURS[0], "flights": 3}, *HOURS[1:]], (0, 0, 1)),
        ([{**HOURS[0], "wind": None}, *HOURS[1:]], (0, 0, 1)),
        ([*HOURS, hour("LGA", 5, 1, 1, 30.0, 8.0)], (0, 0, 1)),
        ([*HOURS, None], (0, 0, 1)),
        ([], (4, 0, 0)),
    ],
)
def test_what_is_lost_doubled_or_wrong_of_the_hours_is_found(records: list[Any], found: tuple[int, int, int]) -> None:
    values = [None if record is None else orjson.dumps(record) for record in records]
    findings = ExpectedHours(DEPARTURES, WEATHER).findings(values)
    assert findings == HoursFindings(4, *found)
    assert findings.ok is (found == (0, 0, 0))


# -- input ------------------------------------------------------------------------------------------------------------


def test_all_flights_of_2013_are_there() -> None:
    flights = Flights(336_776)
    final = Expected(flights).final
    assert sum(carrier.flights for carrier in final.values()) == 336_776
    assert sum(carrier.without_delay for carrier in final.values()) == 9_430
    assert final["UA"] == Carrier(58_665, 883, 205_589, 455)


def test_fewer_records_are_the_first_and_more_begin_anew_with_fresh_ids() -> None:
    few = list(Flights(3))
    assert [row["id"] for row in few] == [0, 1, 2]
    assert [row["flight"] for row in few] == [1545, 1714, 1141]
    assert few[0]["at"] == 1357034400000  # 1 January, 10 o'clock UTC
    many = Flights(336_778)
    last = [row for row in many if row["id"] >= 336_776]
    assert [(row["id"], row["flight"]) for row in last] == [(336_776, 1545), (336_777, 1714)]
    assert last[0]["at"] - few[0]["at"] == 365 * 24 * HOUR  # so that time goes on


def test_the_weather_of_2013_is_in_order_of_time() -> None:
    observations = weather()
    times = [one["at"] for one in observations]
    assert len(observations) == 26_115
    assert times == sorted(times)
    assert observations[0] == {
        "origin": "EWR",
        "temp": 39.02,
        "wind_speed": 10.357019999999999,
        "precip": 0.0,
        "visib": 10.0,
        "at": 1357020000000,
    }
    assert {key for key, _ in weather_messages(observations)} == {b"EWR", b"JFK", b"LGA"}


def test_messages_are_keyed_by_carrier_and_have_null_for_no_delay() -> None:
    sent = list(messages(Flights(1_000)))
    assert sent[0][0] == b"UA"
    assert any(orjson.loads(value)["arr_delay"] is None for _, value in sent)


def test_missing_data_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DataMissing, match=r"pip install 'weir-streams\[demo\]'"):
        flights_module.airlines()
    result = CliRunner().invoke(main, ["demo", "--records", "10", "--json"])
    assert result.exit_code == 1
    assert "pip install" in result.output


@pytest.mark.parametrize(("records", "slow"), [(336_776, 80_000), (1_000, 250), (3, 0)])
def test_the_slow_phase_takes_as_long_as_asked_with_any_number_of_records(records: int, slow: int) -> None:
    phase = SlowPhase.of(records, 2, 10.0)
    assert phase.last - phase.first == slow
    assert slow * phase.seconds == pytest.approx(20.0 if slow else 0.0)  # over two subtasks


# -- the whole --------------------------------------------------------------------------------------------------------


def report(findings: Findings) -> Report:
    return Report(findings, HoursFindings(4, 0, 0, 0), 5, 1, 0.25, 0.5, 100, 1.5, 1, None, 20.0)


def test_the_json_has_exactly_the_documented_keys() -> None:
    assert list(json.loads(report(Findings(6, 6, 0, 0, 0)).to_json())) == KEYS


@pytest.mark.parametrize(
    ("findings", "status"),
    [
        (Findings(6, 6, 0, 0, 0), 0),
        (Findings(6, 5, 1, 0, 0), 1),
        (Findings(6, 7, 0, 1, 0), 1),
        (Findings(6, 6, 0, 0, 1, ("this",)), 1),
    ],
)
def test_the_exit_status_tells_whether_the_output_is_right(
    monkeypatch: pytest.MonkeyPatch, findings: Findings, status: int
) -> None:
    def run(demo: Demo) -> Report:
        demo.expected, demo.expected_hours = Expected(FLIGHTS), ExpectedHours(DEPARTURES, WEATHER)
        return report(findings)

    monkeypatch.setattr(Demo, "run", run)
    result = CliRunner().invoke(main, ["demo", "--json"])
    assert result.exit_code == status
    assert json.loads(result.stdout.splitlines()[-1])["lost"] == findings.lost


def weir_demo(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", "from pipeline.cli import main; main(prog_name='weir')", "demo", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.sample(1 / 4)
@pytest.mark.slow
def test_the_demo_survives_a_kill_without_loss_or_doubling(kafka: KafkaBroker) -> None:
    process = weir_demo("--records", "20000", "--json", "--slow", "4", "--bootstrap", kafka.bootstrap_servers)
    output, progress = process.communicate(timeout=300)
    assert process.returncode == 0, progress
    result = json.loads(output.splitlines()[-1])
    assert list(result) == KEYS
    assert [result[key] for key in KEYS[:5]] == [20_000, 20_000, 0, 0, 0]
    assert result["hours"]["expected"] > 1000
    assert [result["hours"][key] for key in ("lost", "duplicated", "wrong")] == [0, 0, 0]
    assert result["restarts"] == 1
    assert result["recovery_s"] > 0
    assert result["checkpoints_completed"] >= 3
    assert 0 < result["max_span_records"] <= 20_000
    assert "SIGKILL" in progress
    assert "gate" in progress


@pytest.mark.sample(1 / 4)
@pytest.mark.slow
def test_ctrl_c_stops_everything_that_the_demo_started() -> None:
    process = weir_demo("--records", "5000")
    assert process.stdout is not None
    address = ""
    for line in process.stdout:
        if "Kafka runs at" in line:
            address = line.split()[-1]
        if "starting Spark" in line:
            break
    os.kill(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    with pytest.raises(TimeoutError):
        await_broker(address, 0.2)
