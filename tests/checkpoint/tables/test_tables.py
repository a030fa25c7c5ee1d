"""Checkpoints as Arrow tables."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from checkpoint_folders import TRIGGERED, JobFolder, metadata_of
from state_tables import make_savepoint, timers_at

from checkpoint.checkpoint_kind import CheckpointKind
from checkpoint.codec import encode, encode_key
from checkpoint.elements import ChannelName, Data, EdgeName, Watermark
from checkpoint.in_flight.captured import CapturedState
from checkpoint.in_flight.channel_state import save
from checkpoint.row_format import row_format
from checkpoint.state import OperatorListState
from checkpoint.state.operator_lists import LIST, OperatorLists
from checkpoint.storage.errors import DamagedFile
from checkpoint.storage.metadata import CheckpointMetadata, OperatorSnapshot
from checkpoint.storage.naming import CheckpointRef
from checkpoint.storage.storage import CheckpointStorage
from checkpoint.tables import keyed, tables
from checkpoint.tables.columns import NotInColumn
from checkpoint.tables.point import NoSuchTable, Wanted
from checkpoint.tables.tables import NAMES, Table, open_table
from sources.kafka.splits import Split, to_state
from sources.positions import positions

STATE = {
    ("totals", "total"): {f"user-{i}": i for i in range(50)},
    ("totals", "mixed"): {"a": 1, "b": "x"},
    ("totals", "pairs"): {("a", 1): [1, 2]},
    ("other", "total"): {1: 1.5},
}
EDGE = EdgeName("in", "totals", "0.0")


@pytest.fixture
def saved(tmp_path: Path) -> str:
    return make_savepoint(tmp_path / "saved", STATE, {"totals": timers_at(("a", -1), ("b", 5))})


def rows(uri: str, name: str, typed: Any = True, **which: Any) -> list[dict[str, Any]]:
    table = open_table(uri, name, Wanted(**which), typed=typed, positions=positions)
    found: list[dict[str, Any]] = table.read().to_pylist()
    return found


def test_a_state_of_one_type_has_typed_columns(saved: str) -> None:
    table = open_table(saved, "state", Wanted("totals", "total"))
    assert table.schema.field("key").type == pa.string()
    assert table.schema.field("value").type == pa.int64()
    found = table.read().to_pylist()
    assert {row["key"]: row["value"] for row in found} == STATE["totals", "total"]
    assert {row["step"] for row in found} == {"totals"}
    assert {row["subtask"] for row in found} == {0, 1, 2}
    assert len(table.parts) == 3


def test_values_of_several_types_are_json(saved: str) -> None:
    found = rows(saved, "state", step="totals", state="mixed")
    assert {row["key"]: row["value_json"] for row in found} == {"a": "1", "b": '"x"'}
    ((pair),) = rows(saved, "state", step="totals", state="pairs")
    assert (pair["key_json"], pair["value_json"]) == ('{"$tuple":["a",1]}', "[1,2]")
    assert (pair["key_bytes"], pair["value_bytes"]) == (encode_key(("a", 1)), encode([1, 2]))
    everything = rows(saved, "state")
    assert len(everything) == 54
    assert "key" not in everything[0]
    assert "key_json" in rows(saved, "state", False, step="totals", state="total")[0]


def test_a_type_that_was_asked_for_refuses_other_values_by_name(saved: str) -> None:
    types = keyed.Types(pa.string(), pa.int64())
    with pytest.raises(NotInColumn, match=r"state 'mixed' of step 'totals' has the value 'x' \(str\)"):
        rows(saved, "state", types, step="totals", state="mixed")


def test_one_key_is_read_from_the_one_file_that_may_have_it(saved: str) -> None:
    key = encode_key("user-7")
    table = open_table(saved, "state", Wanted("totals", "total", key))
    assert [(row["key"], row["value"]) for row in table.read().to_pylist()] == [("user-7", 7)]
    assert len(table.parts) == 1
    assert rows(saved, "state", step="totals", state="total", key=encode_key("nobody")) == []


def test_timers_have_their_time(saved: str) -> None:
    found = rows(saved, "timers")
    assert {(row["clock"], row["key"], row["at"]) for row in found} == {("event", "a", -1), ("event", "b", 5)}
    assert rows(saved, "timers", state="processing") == []
    assert rows(saved, "timers", step="other") == []


@pytest.mark.parametrize("name", NAMES)
def test_parts_are_read_by_other_processes(saved: str, name: str) -> None:
    table = open_table(saved, name, positions=positions)
    assert isinstance(table, Table)
    for part in table.parts:
        for batch in pickle.loads(pickle.dumps(part))():
            assert batch.schema == table.schema


def test_what_is_not_there_is_refused_with_what_is(saved: str) -> None:
    for name, which, problem in [
        ("tables", {}, "there is no table 'tables'; there are state, timers, "),
        ("state", {"step": "totls"}, "nothing of step 'totls'; it has steps 'other', 'totals'"),
        ("state", {"step": "totals", "state": "n"}, "no state 'n' of step 'totals'. It holds, of keys, totals: mixed,"),
        ("state", {"state": "event timers"}, "no state 'event timers'"),
        ("timers", {"state": "wall"}, "a clock event or processing, not 'wall'"),
        ("sources", {"state": "n"}, "no rows of one state; these have: state, timers, operator_state"),
        ("checkpoints", {"step": "n"}, "no rows of one step"),
        ("sources", {"key": b"\1"}, "no rows of one key"),
    ]:
        with pytest.raises(NoSuchTable, match=problem):
            open_table(saved, name, Wanted(**which))


def test_a_damaged_file_is_named(saved: str, tmp_path: Path) -> None:
    file = next((tmp_path / "saved").rglob("totals-1-*.arrow"))
    data = bytearray(file.read_bytes())
    data[600] ^= 1
    file.write_bytes(data)
    with pytest.raises(DamagedFile, match=file.name):
        rows(saved, "state", False)
    other = rows(saved, "state", step="other")
    assert other[0]["value"] == 1.5


# -- what else there is -------------------------------------------------------------------------------------------


@pytest.fixture
def job(tmp_path: Path) -> JobFolder:
    return JobFolder(CheckpointStorage(tmp_path.as_uri(), "orders"))


def complete(job: JobFolder, operators: dict[str, OperatorSnapshot], **fields: Any) -> str:
    ref = CheckpointRef(7, job.ownership.attempt)
    metadata: CheckpointMetadata = metadata_of(ref, operators, **fields)
    job.storage.write_metadata(ref.id, ref.attempt, metadata)
    return job.storage.uri_of(ref.path)


def test_state_of_operators_that_belongs_to_no_key(job: JobFolder) -> None:
    lists = OperatorLists()
    lists.handle("held", LIST, "Hold", OperatorListState()).extend(["x", (1,)])
    state = {
        "operator": {"seen": 3},
        "broadcast": {"rules": {encode("big"): encode(10)}},
        **lists.freeze().stored(),
        "watermarks": {},
    }
    uri = complete(job, {"rules": job.storage.spill(OperatorSnapshot(state), "chk-7-1/rules-0-own.msgpack")})
    columns = ("kind", "state", "place", "key_json", "value_json")
    assert [tuple(row[name] for name in columns) for row in rows(uri, "operator_state")] == [
        ("operator", "", None, None, '{"seen":3}'),
        ("broadcast", "rules", None, '"big"', "10"),
        (LIST, "held", 0, None, '"x"'),
        (LIST, "held", 1, None, '{"$tuple":[1]}'),
    ]
    assert [row["state"] for row in rows(uri, "operator_state", state="rules")] == ["rules"]


def test_positions_of_sources(job: JobFolder) -> None:
    known = to_state([Split("flights", 0, "id", 4711), Split("flights", 1, "id", 12, 12, ended=True)], 0, 1)
    uri = complete(job, {"in": OperatorSnapshot({"source": known}), "mine": OperatorSnapshot({"source": {"at": 1}})})
    found = rows(uri, "sources")
    assert [tuple(row[name] for name in ("step", "subtask", "split", "next", "end", "ended")) for row in found] == [
        ("in", 0, "flights[0]", "4711", None, False),
        ("in", 0, "flights[1]", "12", "12", True),
        ("mine", 0, None, None, None, None),
    ]
    assert found[-1]["state_json"] == '{"at":1}'


def test_output_that_is_not_committed(job: JobFolder) -> None:
    ref = job.complete(3, job.segment(b"abc"), job.segment(b"defg"))
    found = rows(job.storage.uri_of(ref.path), "uncommitted")
    assert [(row["step"], row["epoch"], row["index"]) for row in found] == [("out", 3, 0), ("out", 3, 1)]
    assert [row["bytes"] for row in found] == [3, 4]
    assert [(row["subtask"], row["writer"], len(row["files"])) for row in found] == [(0, 0, 1)] * 2
    assert {path for row in found for path in row["files"]} == set(job.storage.list_shared())
    assert found[0]["payload_json"] == '{"rows":10,"bytes":100,"message_limit":9}'


def test_records_in_flight(job: JobFolder) -> None:
    edges = row_format(True)
    builder = edges.builder()
    builder.append_keyed(encode({"n": 1}), 99, encode_key("ann"), 5)
    builder.append_keyed(encode({"n": 2}), None, encode_key("bob"), 6)
    frame = edges.to_frame(builder.seal())
    captured = CapturedState(inputs={ChannelName(EDGE, 2, 1): [Data(frame, frame.size, 2), Watermark(50)]})
    handle = save(job.storage, "chk-7-1/totals-0-in_flight.arrow", captured, lambda edge: edges, "lz4")
    uri = complete(job, {"totals": OperatorSnapshot()}, channel_state=(handle,), rows={EDGE: 2})
    found = rows(uri, "in_flight")
    assert [(row["kind"], row["timestamp"], row["key_json"], row["value_json"]) for row in found] == [
        ("record", 99, '"ann"', '{"n":1}'),
        ("record", None, '"bob"', '{"n":2}'),
        ("watermark", 50, None, None),
    ]
    where = ("upstream", "upstream_subtask", "downstream", "downstream_subtask", "port")
    assert {tuple(row[name] for name in where) for row in found} == {("in", 2, "totals", 1, "0.0")}
    assert [row["key_group"] for row in found] == [5, 6, None]
    assert [row["value_bytes"] for row in found] == [encode({"n": 1}), encode({"n": 2}), None]
    assert len(rows(uri, "in_flight", key=encode_key("bob"))) == 1
    assert rows(uri, "in_flight", step="in") == []
    assert rows(uri, "in_flight", step="totals") == found
    path = Path(uri.removeprefix("file://")) / "totals-0-in_flight.arrow"
    path.write_bytes(path.read_bytes()[:-10] + b"x" * 10)
    with pytest.raises(DamagedFile, match="totals-0-in_flight"):
        rows(uri, "in_flight")


def test_the_newest_checkpoint_of_a_jobs_folder_and_all_of_them(job: JobFolder) -> None:
    job.complete(1)
    job.complete(2, kind=CheckpointKind.FINAL)
    (job.storage.uri_of("chk-1-1"),)
    assert [(row["id"], row["kind"], row["pipeline"]) for row in rows(job.storage.uri_of(), "checkpoints")] == [
        (1, "checkpoint", "orders"),
        (2, "final", "orders"),
    ]
    (one,) = rows(job.storage.uri_of("chk-1-1"), "checkpoints")
    assert one["id"] == 1
    assert rows(job.storage.uri_of(), "sources")[0]["step"] == "in"


def test_a_checkpoints_row_says_what_it_costs_and_whether_it_can_be_restored(job: JobFolder, tmp_path: Path) -> None:
    both = job.segment(b"x" * 1000)
    first = job.complete(1, both)
    job.complete(2, both)
    job.start(first)
    damaged = job.complete(3)
    (tmp_path / "orders" / damaged.path / "_metadata").write_bytes(b"nothing of Weir's")
    one, two, three = rows(job.storage.uri_of(), "checkpoints")
    assert (one["attempt"], one["uri"]) == (1, job.storage.uri_of(first.path))
    assert one["triggered"] == datetime.fromtimestamp(TRIGGERED + 1, UTC)
    assert (one["duration"], one["files"], one["in_flight_rows"]) == (0.25, 3, 0)
    assert one["own_bytes"] == one["bytes"] - 1000
    assert [row["void_by"] for row in (one, two, three)] == [None, 2, None]
    assert [row["problem"] is None for row in (one, two, three)] == [True, True, False]
    assert (three["id"], three["attempt"], three["kind"], three["bytes"]) == (3, 2, None, None)


def test_a_table_of_many_rows_comes_in_several_batches(job: JobFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_BATCH", 2)
    state = {"broadcast": {"rules": {encode(n): encode(n) for n in range(5)}}}
    uri = complete(job, {"rules": OperatorSnapshot(state)})
    batches = [batch.to_pylist() for batch in open_table(uri, "operator_state").batches()]
    assert [[row["key_json"] for row in batch] for batch in batches] == [["0", "1"], ["2", "3"], ["4"]]
