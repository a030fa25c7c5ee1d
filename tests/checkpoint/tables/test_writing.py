"""Savepoints that are written from tables."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from checkpoint_folders import JobFolder, metadata_of
from hypothesis import given, settings
from hypothesis import strategies as st
from state_tables import changes_of, key_groups, make_savepoint, raw_rows, rows_of_entries, timers_at, values_of

from checkpoint.checkpoint_kind import CheckpointKind
from checkpoint.codec import decode, encode, encode_key
from checkpoint.codec.classes import name_of
from checkpoint.elements import ChannelName, Data, EdgeName
from checkpoint.in_flight import channel_state
from checkpoint.in_flight.captured import CapturedState
from checkpoint.key_groups import key_group, range_of
from checkpoint.row_format import row_format
from checkpoint.state import DeclaresState, ListState, MapState, ValueState, bind, make_backend
from checkpoint.state.files import load_contents, load_keyed_state
from checkpoint.storage import restore
from checkpoint.storage.errors import DamagedFile, StorageError
from checkpoint.storage.inspection.verification import verify_single
from checkpoint.storage.metadata import OperatorSnapshot
from checkpoint.storage.naming import CheckpointRef, private_path
from checkpoint.storage.restore import NotACheckpoint, from_uri
from checkpoint.storage.storage import CheckpointStorage
from checkpoint.tables.changes import Deletion, SavepointChanges, StateName, keys_of, rows_of
from checkpoint.tables.point import NoSuchTable, Wanted, open_point
from checkpoint.tables.tables import open_table
from checkpoint.tables.writing import NewPipeline, Written, write_savepoint
from pipeline.testing import failpoints
from tests.support.values import KEYS, VALUES

MAX = 8
TOTALS = ("totals", "total")
PEOPLE = {TOTALS: {"ann": 3, "bob": 4, "carl": 5}, ("totals", "seen"): {"ann": {"x": (1, 2)}, "dora": {}}}
TIMERS = {"totals": timers_at(("ann", 1000), ("ann", -5), ("bob", 2**40))}


@pytest.fixture
def base(tmp_path: Path) -> str:
    return make_savepoint(tmp_path / "base", PEOPLE, TIMERS)


def written(target: Path, changes: SavepointChanges, base: str) -> Written:
    return write_savepoint(target.as_uri(), changes, open_point(base), "1.0", ["people.parquet"])


def table_of(uri: str, name: str = "state", **wanted: Any) -> pa.Table:
    return open_table(uri, name, Wanted(**wanted)).read()


# -- there and back -----------------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(
    states=st.dictionaries(
        st.tuples(st.sampled_from(["totals", "b"]), st.sampled_from(["one", "two"])),
        st.lists(
            st.tuples(KEYS, VALUES | st.lists(VALUES, max_size=3) | st.dictionaries(KEYS, VALUES, max_size=3)),
            max_size=5,
        ),
        min_size=1,
    ),
    timers=st.lists(st.tuples(KEYS, st.integers(-(2**63), 2**63 - 1)), max_size=5),
    parallelism=st.integers(1, 16),
    typed=st.booleans(),
    form=st.sampled_from(["value", "bytes", "both"]),
)
def test_what_is_exported_and_written_is_the_same_byte_for_byte(
    tmp_path_factory: pytest.TempPathFactory,
    states: dict[tuple[str, str], list[tuple[Any, Any]]],
    timers: list[tuple[Any, int]],
    parallelism: int,
    typed: bool,
    form: str,
) -> None:
    folder = tmp_path_factory.mktemp("identity")
    changes = SavepointChanges()
    for (step, state), entries in states.items():
        rows = changes.put.setdefault(StateName(step, state), {})
        for key, value in entries:
            rows.update(rows_of_entries([(key, value)]))
    changes.put[StateName("totals", "event timers")] = timers_at(*timers)
    first = write_savepoint((folder / "a").as_uri(), changes, NewPipeline("orders", 16, parallelism), "1.0").uri
    again = SavepointChanges()
    for name in ("state", "timers"):
        table = open_table(first, name, typed=typed).read()
        left_out = {"value": ["key_bytes", "value_bytes"], "bytes": ["key", "key_json", "value", "value_json"]}
        table = table.drop_columns([one for one in left_out.get(form, ()) if one in table.column_names])
        again.replaced.update(rows_of(table))
    second = write_savepoint((folder / "b").as_uri(), again, NewPipeline("orders", 16), "1.0").uri
    assert raw_rows(second) == raw_rows(first)
    third = write_savepoint((folder / "c").as_uri(), again, open_point(first), "1.0").uri
    assert raw_rows(third) == raw_rows(first)


def test_key_groups_are_those_of_the_keys(base: str) -> None:
    for key, subtask, group in key_groups(base):
        assert group == key_group(key, 16)
        assert group in range_of(subtask, 3, 16)


def test_what_is_written_is_whole_and_a_backend_takes_it(base: str) -> None:
    assert verify_single(base).problems == ()
    point = from_uri(base)
    backend = make_backend(range(16), 16)
    for name, state in (("total", ValueState[int](0)), ("seen", MapState[str, Any]()), ("items", ListState[int]())):
        state.name = name
        state.make_handle(backend, "Totals")
    for snapshot in point.metadata.operator("totals"):
        backend.restore(load_keyed_state(point.storage, snapshot.keyed_state))
    assert len(backend.event_timers) == 3
    assert backend.event_timers.next == -5


# -- changes ------------------------------------------------------------------------------------------------------


def test_a_value_is_changed_and_all_else_stays(base: str, tmp_path: Path) -> None:
    table = pa.table({"key": ["ann", "eve"], "value": [30, 1]})
    found = written(tmp_path / "new", SavepointChanges(put=rows_of(table, *TOTALS)), base)
    name = StateName(*TOTALS)
    assert (found.put[name], found.removed[name], found.rows[name]) == (2, 0, 4)
    expected = raw_rows(base)
    expected[*TOTALS, encode_key("ann"), None] = encode(30)
    expected[*TOTALS, encode_key("eve"), None] = encode(1)
    assert raw_rows(found.uri) == expected


def test_a_replaced_state_has_the_new_rows_only(base: str, tmp_path: Path) -> None:
    found = written(
        tmp_path / "new", SavepointChanges(replaced=rows_of(pa.table({"key": ["eve"], "value": [1]}), *TOTALS)), base
    )
    assert values_of(found.uri, *TOTALS) == {encode_key("eve"): 1}
    assert found.removed[StateName(*TOTALS)] == 3
    assert values_of(found.uri, "totals", "seen") == values_of(base, "totals", "seen")
    empty = pa.table({"key": pa.array([], pa.string()), "value": pa.array([], pa.int64())})
    found = written(tmp_path / "empty", SavepointChanges(replaced=rows_of(empty, *TOTALS)), base)
    assert values_of(found.uri, *TOTALS) == {}


@dataclass
class Person:
    name: str


class OfPersons(DeclaresState):
    person = ValueState(Person)


@pytest.mark.parametrize("kept", [True, False])
def test_what_is_written_counts_as_no_value_of_the_type_that_was_declared(tmp_path: Path, kept: bool) -> None:
    """Nobody has looked at what a table has."""
    job = JobFolder(CheckpointStorage((tmp_path / "checkpoints").as_uri(), "orders"))
    backend = make_backend(range(MAX), MAX)
    op = OfPersons()
    bind(op, backend)
    backend.set_current_key(encode_key("ann"), key_group(encode_key("ann"), MAX))
    op.person.value = Person("Ann")
    ref = CheckpointRef(1, job.ownership.attempt)
    files = backend.freeze().files(lambda kind: job.storage.create(private_path(ref, "persons-0", kind)))
    metadata = metadata_of(ref, {"persons": OperatorSnapshot(keyed_state=tuple(files))}, max_parallelism=MAX)
    job.storage.write_metadata(ref.id, ref.attempt, metadata)
    rows = rows_of(pa.table({"key": ["bob"], "value": [{"name": "Bob"}]}), "persons", "person")
    changes = SavepointChanges(put=rows) if kept else SavepointChanges(replaced=rows)
    found = written(tmp_path / "new", changes, job.storage.uri_of())
    point = open_point(found.uri)
    (snapshot,) = point.metadata.operator("persons")
    content = load_contents(point.storage, snapshot.keyed_state)["person"]
    assert [shape.name for shape in content.classes] == ([name_of(Person)] if kept else [])
    assert (content.types, content.declared) == (None, None)


def test_a_key_is_deleted_with_all_that_it_has(base: str, tmp_path: Path) -> None:
    ann = encode_key("ann")
    found = written(tmp_path / "new", SavepointChanges(deleted=[Deletion(frozenset({ann}))]), base)
    assert raw_rows(found.uri) == {place: data for place, data in raw_rows(base).items() if place[2] != ann}
    assert found.removed == {
        StateName(*TOTALS): 1,
        StateName("totals", "seen"): 1,
        StateName("totals", "event timers"): 2,
    }
    found = written(tmp_path / "one", SavepointChanges(deleted=[Deletion(frozenset({ann}), "totals", "seen")]), base)
    assert found.removed == {StateName("totals", "seen"): 1}
    assert encode_key("ann") in values_of(found.uri, *TOTALS)


def test_a_deletion_from_what_is_not_there_is_refused(base: str, tmp_path: Path) -> None:
    for deletion, problem in [
        (
            Deletion(frozenset(), "totals", "totl"),
            "no state 'totl' of step 'totals'. It holds, of keys, totals: seen, total",
        ),
        (Deletion(frozenset(), "tools"), "nothing of step 'tools'; it has steps 'totals'"),
    ]:
        with pytest.raises(NoSuchTable, match=problem):
            written(tmp_path / "new", SavepointChanges(deleted=[deletion]), base)
        assert not (tmp_path / "new").exists()


def test_a_step_that_the_base_lacks_is_added(base: str, tmp_path: Path) -> None:
    found = written(tmp_path / "new", changes_of({("counts", "n"): {"ann": 1, "bob": 2}}), base)
    assert values_of(found.uri, "counts", "n") == {encode_key("ann"): 1, encode_key("bob"): 2}
    assert raw_rows(base).items() <= raw_rows(found.uri).items()


def test_all_else_of_a_checkpoint_is_taken_over(tmp_path: Path) -> None:
    job = JobFolder(CheckpointStorage(tmp_path.as_uri(), "orders"))
    staged = job.segment(b"output")
    large = OperatorSnapshot({"operator": "x" * 40_000})
    ref = CheckpointRef(7, job.ownership.attempt)
    pending = [[0, [[[7, 0], {"rows": 1}, [staged.to_wire()]]]]]
    operators = {
        "in": OperatorSnapshot({"source": {"at": 5}}),
        "large": job.storage.spill(large, f"{ref.path}/large-0-own.msgpack"),
        "out": OperatorSnapshot({"sink": {"pending": pending, "committers": [[0, "m"]]}}, files=(staged,)),
    }
    job.storage.write_metadata(ref.id, ref.attempt, metadata_of(ref, operators, max_parallelism=16))
    base = job.storage.uri_of(ref.path)
    found = written(tmp_path / "new", changes_of({("totals", "total"): {"ann": 1}}), base)
    point = from_uri(found.uri)
    assert verify_single(found.uri).problems == ()
    assert point.metadata.kind is CheckpointKind.SAVEPOINT
    assert point.ref == ref
    assert point.storage.unspill(point.metadata.operator("large")[0]).state == large.state
    assert point.metadata.operator("in")[0].state == {"source": {"at": 5}}
    (sink,) = point.metadata.operator("out")
    (file,) = sink.files
    assert point.storage.read_file(file) == b"output"
    assert restore.sink_state(point.storage, point.metadata, "out").files == [file]
    assert {handle.path.split("/")[0] for handle in point.metadata.all_files()} == {ref.path}


# -- what it was made from ----------------------------------------------------------------------------------------


def test_the_metadata_says_what_it_was_made_from(base: str, tmp_path: Path) -> None:
    found = written(
        tmp_path / "new", SavepointChanges(put=rows_of(pa.table({"key": ["ann"], "value": [1]}), *TOTALS)), base
    )
    metadata, before = from_uri(found.uri).metadata, from_uri(base).metadata
    made = dict(metadata.made_from or {})
    assert made["base"] == {"uri": base, "identity": before.identity, "pipeline": "orders", "checkpoint": "chk-1-1"}
    assert made["tables"] == ["people.parquet"]
    assert made["changes"] == [{"step": "totals", "state": "total", "replaced": False, "put": 1, "removed": 0}]
    assert metadata.identity != before.identity
    assert metadata.lineage == before.lineage


def test_neither_the_base_nor_another_savepoint_is_touched(base: str, tmp_path: Path) -> None:
    def content() -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in (tmp_path / "base").rglob("*") if path.is_file()}

    before = content()
    with pytest.raises(StorageError, match=r"holds a savepoint .* already"):
        written(tmp_path / "base", SavepointChanges(), base)
    written(tmp_path / "new", SavepointChanges(deleted=[Deletion(frozenset({encode_key("ann")}))]), base)
    assert content() == before


# -- failures -----------------------------------------------------------------------------------------------------


def test_a_damaged_base_is_refused_by_the_name_of_the_file(base: str, tmp_path: Path) -> None:
    file = next((tmp_path / "base").rglob("totals-1-*.arrow"))
    data = bytearray(file.read_bytes())
    data[600] ^= 1
    file.write_bytes(data)
    for changes in (SavepointChanges(), changes_of({TOTALS: {"ann": 1}})):
        with pytest.raises(DamagedFile, match=file.name):
            written(tmp_path / "new", changes, base)
        with pytest.raises(NotACheckpoint):
            from_uri((tmp_path / "new").as_uri())


@pytest.mark.parametrize("point", ["storage.create", "storage.write", "storage.close", "storage.put"])
def test_a_failure_at_any_step_leaves_no_savepoint(base: str, tmp_path: Path, point: str) -> None:
    changes = changes_of({TOTALS: {"ann": 1}})
    complete = False
    for nth in range(1, 20):
        target = tmp_path / f"new-{nth}"
        try:
            with failpoints.fail(point, nth=nth):
                written(target, changes, base)
        except StorageError:
            with pytest.raises(NotACheckpoint):
                from_uri(target.as_uri())
            continue
        complete = True
        assert verify_single(target.as_uri()).problems == ()
        break
    assert complete
    assert nth > 1


@pytest.mark.parametrize(
    ("table", "names", "problem"),
    [
        ({"key": ["a"], "value": [1], "amount": [1]}, TOTALS, "mean nothing here: amount"),
        ({"key": ["a"]}, TOTALS, "no column value"),
        ({"value": [1]}, TOTALS, "no column key"),
        ({"key": ["a"], "value": [1]}, (None, None), "no column 'step', so say which step"),
        ({"key": ["a", "a"], "value": [1, 2]}, TOTALS, "row 1: 'total' of step 'totals' has key 'a' twice"),
        ({"key": ["a"], "at": ["now"]}, ("totals", "event"), "'at' is of string"),
        ({"key": ["a"], "at": [1]}, ("totals", "total"), "a clock event or processing"),
        ({"key": ["a"], "value": [1]}, ("totals", "event timers"), "columns clock and at"),
        ({"key_bytes": [encode(-0.0)], "value": [1]}, TOTALS, "is not how the key"),
        ({"step": pa.array([None], pa.string()), "key": ["a"], "value": [1]}, (None, "total"), "must be names"),
        ({"step": ["totals", None], "key": ["a", "b"], "value": [1, 2]}, TOTALS, "row 1: its step is null"),
        ({"clock": [None], "at": [1], "key": ["a"]}, ("totals", "event"), "row 0: its clock is null"),
    ],
)
def test_tables_that_are_no_state_are_refused(
    table: dict[str, Any], names: tuple[str | None, str | None], problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        rows_of(pa.table(table), *names)


@pytest.mark.parametrize(
    "names", [["key", "key", "value"], ["key", "value", "value"], ["key_bytes", "key_bytes", "value"]]
)
def test_a_table_with_several_columns_of_one_name_is_refused(names: list[str]) -> None:
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2]), pa.array([3])], names=names)
    with pytest.raises(ValueError, match="several columns called"):
        rows_of(table, *TOTALS)
    with pytest.raises(ValueError, match="several columns called"):
        keys_of(table)


def test_the_numbers_of_a_new_pipeline_must_fit(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="parallelism 17 must be"):
        write_savepoint((tmp_path / "x").as_uri(), SavepointChanges(), NewPipeline("orders", 16, 17), "1.0")
    assert not (tmp_path / "x").exists()


def test_a_table_of_one_state_is_typed(base: str) -> None:
    table = table_of(base, step="totals", state="total")
    assert table.schema.field("value").type == pa.int64()
    assert dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True)) == PEOPLE[TOTALS]
    assert [decode(data) for data in table["value_bytes"].to_pylist()] == table["value"].to_pylist()


# -- time to live ---------------------------------------------------------------------------------------------------


class Timed:
    total = ValueState(default=0, ttl=1)
    items = ListState[int](ttl=1)
    plain = ValueState(default=0)


def timed_at(wall: int) -> tuple[Any, Any]:
    """An operator and its backend, at a processing time in ms."""
    backend, operator = make_backend(range(16), 16), Timed()
    bind(operator, backend)
    backend.processing_clock.begin(wall, timers_due=False)
    return operator, backend


def select(backend: Any, key: str) -> None:
    encoded = encode_key(key)
    backend.set_current_key(encoded, key_group(encoded, 16))


def test_time_goes_on_for_what_a_new_savepoint_keeps_and_begins_for_what_is_written(tmp_path: Path) -> None:
    job = JobFolder(CheckpointStorage(tmp_path.as_uri(), "orders"))
    operator, backend = timed_at(0)
    for key in ("ann", "bob"):
        select(backend, key)
        operator.total.value = 1
        operator.items.append(2)
        operator.plain.value = 3
    ref = CheckpointRef(7, job.ownership.attempt)
    (file,) = backend.freeze().files(lambda name: job.storage.create(f"{ref.path}/totals-0-{name}.arrow"))
    operators = {"totals": OperatorSnapshot(keyed_state=(file,))}
    job.storage.write_metadata(ref.id, ref.attempt, metadata_of(ref, operators, max_parallelism=16))
    assert table_of(job.storage.uri_of(ref.path), step="totals", state="total").num_rows == 2
    found = written(tmp_path / "new", changes_of({("totals", "total"): {"ann": 1}}), job.storage.uri_of(ref.path))
    assert verify_single(found.uri).problems == ()
    point = from_uri(found.uri)
    for wall, expected in [
        (999, {"ann": (1, [2], 3), "bob": (1, [2], 3)}),
        (5000, {"ann": (1, [], 3), "bob": (0, [], 3)}),
    ]:
        operator, backend = timed_at(wall)
        backend.restore(load_keyed_state(point.storage, point.metadata.operator("totals")[0].keyed_state))
        for key, values in expected.items():
            select(backend, key)
            assert (operator.total.value, operator.items.get(), operator.plain.value) == values


# -- records in flight --------------------------------------------------------------------------------------------

EDGE = EdgeName("in", "totals", "0.0")
PLAIN = EdgeName("raw", "in", "0.0")


def in_flight_base(tmp_path: Path) -> tuple[str, CheckpointStorage]:
    """A checkpoint with records in flight: of ann and bob on a keyed edge, and one without a key."""
    job = JobFolder(CheckpointStorage(str(tmp_path / "job"), "orders"))
    formats = {EDGE: row_format(True), PLAIN: row_format(False)}
    keyed, plain = formats[EDGE].builder(), formats[PLAIN].builder()
    for key, n in (("ann", 1), ("bob", 2), ("ann", 3)):
        keyed.append_keyed(encode({"n": n}), None, encode_key(key), key_group(encode_key(key), 16))
    plain.append(encode({"n": 4}), None)
    frames = {edge: formats[edge].to_frame(one.seal()) for edge, one in ((EDGE, keyed), (PLAIN, plain))}
    captured = CapturedState(
        inputs={ChannelName(edge, 0, 0): [Data(frame, 300, 3 if edge == EDGE else 1)] for edge, frame in frames.items()}
    )
    backend, operator = make_backend(range(16), 16), People()
    bind(operator, backend)
    backend.set_current_key(encode_key("ann"), key_group(encode_key("ann"), 16))
    operator.total.value = 1
    ref = CheckpointRef(7, job.ownership.attempt)
    files = backend.freeze().files(lambda name: job.storage.create(f"{ref.path}/totals-0-{name}.arrow"))
    path = f"{ref.path}/totals-0-in_flight.arrow"
    handle = channel_state.save(job.storage, path, captured, formats.__getitem__, "lz4")
    metadata = metadata_of(
        ref,
        {"totals": OperatorSnapshot(keyed_state=tuple(files))},
        channel_state=(handle,),
        rows={EDGE: 3, PLAIN: 1},
        max_parallelism=16,
    )
    job.storage.write_metadata(ref.id, ref.attempt, metadata)
    return job.storage.uri_of(ref.path), job.storage


class People(DeclaresState):
    total = ValueState[Any]()


@pytest.mark.parametrize(
    ("deletion", "left"),
    [
        (Deletion(frozenset({encode_key("ann")})), [2, 4]),
        (Deletion(frozenset({encode_key("ann")}), "totals"), [2, 4]),
        (Deletion(frozenset({encode_key("ann")}), "totals", "total"), [1, 2, 3, 4]),  # its state only
        (Deletion(frozenset({encode_key("carl")})), [1, 2, 3, 4]),
    ],
)
def test_records_in_flight_go_with_their_key(tmp_path: Path, deletion: Deletion, left: list[int]) -> None:
    uri, _ = in_flight_base(tmp_path)
    made = written(tmp_path / "made", SavepointChanges(deleted=[deletion]), uri)
    found = open_table(made.uri, "in_flight", Wanted()).read().to_pylist()
    assert [decode(row["value_bytes"])["n"] for row in found if row["kind"] == "record"] == left
    assert (made.in_flight, made.in_flight_removed) == (len(left), 4 - len(left))
    assert from_uri(made.uri).metadata.in_flight_records == len(left)
    assert verify_single(made.uri).problems == ()
