"""`_metadata`: everything comes back as it was, and nothing that isn't as it was comes back."""

from dataclasses import dataclass
from typing import Any

import orjson
import ormsgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoint.checkpoint_kind import CheckpointKind
from checkpoint.codec import revived
from checkpoint.elements import EdgeName
from checkpoint.in_flight.edges import EdgeShape, SnapshotEdge
from checkpoint.storage import checksummed_json
from checkpoint.storage.handles import FileHandle, StateFile
from checkpoint.storage.metadata import (
    CheckpointMetadata,
    MetadataError,
    OperatorSnapshot,
    SubtaskSnapshot,
    UnsupportedFormat,
    VertexSnapshot,
    pack_state,
)


def handle(path: str, size: int = 1) -> FileHandle:
    return FileHandle(path, size, "0" * 32)


def metadata(**changes: Any) -> CheckpointMetadata:
    source = OperatorSnapshot(state={"positions": [{"flights-0": 17, "marker": b"\x00\xff"}]})
    totals = OperatorSnapshot(keyed_state=(StateFile(handle("chk-5-2/totals-0-state.arrow", 900)),))
    sink = OperatorSnapshot(
        state={"pending": {0: [[[5, 0], {"rows": 3}, [["shared/2-out-0-a.arrow", 70, "0" * 32]]]]}},
        files=(handle("shared/2-out-0-a.arrow", 70),),
        state_file=handle("chk-5-2/out-0-spilled.arrow", 40_000),
    )
    values: dict[str, Any] = {
        "id": 5,
        "attempt": 2,
        "kind": CheckpointKind.CHECKPOINT,
        "pipeline": "orders",
        "lineage": "b3b2",
        "lineage_parent": ("a1", 3),
        "max_parallelism": 128,
        "weir_version": "0.1.0",
        "trigger_time": 1_700_000_000.25,
        "duration": 0.125,
        "options": {"interval": 10.0, "alignment": "aligned"},
        "vertices": {
            "orders": VertexSnapshot((SubtaskSnapshot({"orders": source}), SubtaskSnapshot({"orders": source}))),
            "totals": VertexSnapshot(
                (
                    SubtaskSnapshot(
                        {"totals": totals, "out": sink},
                        channel_state=(handle("chk-5-2/totals-0-channels.arrow", 7),),
                        in_flight_rows={EdgeName("orders", "totals", "0.0"): 12},
                        in_flight_bytes=7,
                    ),
                )
            ),
        },
        "edges": {
            EdgeName("orders", "totals", "0.0"): SnapshotEdge(
                EdgeShape("keyed", "keyed:'a'", carries_keys=True, upstreams=2, downstreams=1), "orders", "totals"
            )
        },
        "replaying": True,
    }
    return CheckpointMetadata(**(values | changes))


def test_metadata_comes_back_as_it_was() -> None:
    assert CheckpointMetadata.from_bytes(metadata().to_bytes()) == metadata()


def test_a_lineage_without_parent_comes_back() -> None:
    assert CheckpointMetadata.from_bytes(metadata(lineage_parent=None).to_bytes()).lineage_parent is None


def test_metadata_is_one_json_object_with_the_format_version() -> None:
    document = orjson.loads(metadata().to_bytes())
    assert document["format"] == 3
    assert document["vertices"]["totals"]["parallelism"] == 1


def test_a_subtask_snapshot_travels_as_msgpack() -> None:
    snapshot = metadata().vertices["totals"].subtasks[0]
    wire = pack_state(snapshot.to_wire())  # what a control message does with it
    assert SubtaskSnapshot.from_wire(ormsgpack.unpackb(wire)) == snapshot


def test_every_file_is_listed() -> None:
    assert sorted(file.path for file in metadata().all_files()) == [
        "chk-5-2/out-0-spilled.arrow",
        "chk-5-2/totals-0-channels.arrow",
        "chk-5-2/totals-0-state.arrow",
        "shared/2-out-0-a.arrow",
    ]


def test_records_in_flight_are_counted_by_edge_and_can_be_left_out() -> None:
    whole = metadata()
    assert whole.in_flight_rows() == {EdgeName("orders", "totals", "0.0"): 12}
    assert whole.in_flight_records == 12
    without = whole.without_in_flight()
    assert without.in_flight_rows() == {}
    in_flight = [subtask.in_flight_bytes for vertex in without.vertices.values() for subtask in vertex.subtasks]
    assert in_flight == [0] * len(in_flight) != []
    assert {file.path for file in whole.all_files()} - {file.path for file in without.all_files()} == {
        "chk-5-2/totals-0-channels.arrow"
    }
    assert without.operator("totals") == whole.operator("totals")


def test_a_step_is_found_wherever_it_was_chained() -> None:
    found = metadata().operator("out")
    assert [snapshot.files[0].path for snapshot in found] == ["shared/2-out-0-a.arrow"]
    assert len(metadata().operator("orders")) == 2
    assert metadata().operator("unknown") == ()
    assert metadata().step_ids == {"orders", "totals", "out"}


_PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text() | st.integers(0, 9), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), _PLAIN, max_size=4))
def test_any_plain_state_comes_back(state: dict[str, Any]) -> None:
    vertices = {"v": VertexSnapshot((SubtaskSnapshot({"s": OperatorSnapshot(state)}),))}
    restored = CheckpointMetadata.from_bytes(metadata(vertices=vertices).to_bytes())
    assert restored.operator("s")[0].state == state


@dataclass
class Position:
    offset: int


@pytest.mark.parametrize("value", [Position(1), CheckpointKind.FINAL, {CheckpointKind.FINAL: 1}])
def test_state_of_classes_comes_back_as_what_it_was(value: object) -> None:
    vertices = {"v": VertexSnapshot((SubtaskSnapshot({"s": OperatorSnapshot({"position": value})}),))}
    state = revived(CheckpointMetadata.from_bytes(metadata(vertices=vertices).to_bytes()).operator("s")[0].state)
    assert state == {"position": value}
    assert type(state["position"]) is type(value)


def test_state_that_would_come_back_as_something_else_is_refused() -> None:
    @dataclass
    class Nowhere:
        offset: int

    for value in (object(), Nowhere(1), {Nowhere(1).offset: object()}):
        with pytest.raises(TypeError):
            SubtaskSnapshot({"s": OperatorSnapshot({"position": value})}).to_wire()


def test_a_list_of_changes_comes_back_with_its_key_groups_and_has_a_format_of_its_own() -> None:
    files = (
        StateFile(
            handle("shared/1-totals-0-a.arrow", 900), range(64), 10, 2, (("seen", -5), ("old", 1)), (("seen", 9),)
        ),
        StateFile(handle("shared/2-totals-0-b.arrow", 9), range(32, 128)),
    )
    vertices = {"v": VertexSnapshot((SubtaskSnapshot({"s": OperatorSnapshot(keyed_state=files)}),))}
    written = metadata(vertices=vertices).to_bytes()
    assert orjson.loads(written)["format"] == 4
    assert CheckpointMetadata.from_bytes(written).operator("s")[0].keyed_state == files


def test_files_whose_content_is_inline_come_back_and_have_a_format_of_their_own() -> None:
    small = FileHandle("chk-5-2/totals-0-state.arrow", 3, "0" * 32, b"\x00\xffa")
    operator = OperatorSnapshot(keyed_state=(StateFile(small),))
    vertices = {"v": VertexSnapshot((SubtaskSnapshot({"s": operator}, channel_state=(small, handle("chk-5-2/a"))),))}
    written = metadata(vertices=vertices).to_bytes()
    assert orjson.loads(written)["format"] == 5
    assert CheckpointMetadata.from_bytes(written).vertices == vertices
    document = checksummed_json.loads(written)
    document["vertices"]["v"]["subtasks"][0]["channel_state"][0][3] = "no base64"
    del document["checksum"]
    with pytest.raises(MetadataError, match="malformed"):
        CheckpointMetadata.from_bytes(checksummed_json.dumps(document))


_GOOD = metadata().to_bytes()


@given(st.integers(0, len(_GOOD) - 1))
def test_truncated_metadata_is_refused(length: int) -> None:
    with pytest.raises(MetadataError, match="truncated or altered"):
        CheckpointMetadata.from_bytes(_GOOD[:length])


@given(st.integers(0, len(_GOOD) - 1), st.integers(1, 255))
def test_any_altered_byte_is_noticed(place: int, difference: int) -> None:
    altered = bytearray(_GOOD)
    altered[place] ^= difference
    with pytest.raises(MetadataError):
        CheckpointMetadata.from_bytes(bytes(altered))


def test_another_format_is_not_called_damaged() -> None:
    document = checksummed_json.loads(_GOOD)
    del document["checksum"]
    with pytest.raises(UnsupportedFormat, match="format 1; this version of Weir reads formats 3 to 5"):
        CheckpointMetadata.from_bytes(checksummed_json.dumps(document | {"format": 1}))


def test_metadata_without_a_member_is_malformed() -> None:
    document = checksummed_json.loads(_GOOD)
    del document["checksum"], document["lineage"]
    with pytest.raises(MetadataError, match=r"malformed.*lineage"):
        CheckpointMetadata.from_bytes(checksummed_json.dumps(document))
