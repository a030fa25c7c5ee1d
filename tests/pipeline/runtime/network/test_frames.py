"""Frames carry elements unchanged, and reject what is none."""

from __future__ import annotations

import contextlib

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoint.barriers.events import Barrier
from checkpoint.checkpoint_kind import CheckpointKind
from checkpoint.elements import BarrierElement, CancelMarker, Data, EndOfInput, IdleStatus, Watermark
from pipeline.runtime.network import frames
from pipeline.runtime.network.frames import HEADER_BYTES, ChannelId, Credit, FrameError, Kind

ids = st.integers(0, 2**62)
elements = st.one_of(
    st.builds(Watermark, st.integers(-(2**63), 2**63 - 1)),
    st.builds(IdleStatus, st.booleans()),
    st.builds(CancelMarker, ids),
    st.builds(EndOfInput),
    st.builds(
        BarrierElement,
        st.builds(
            Barrier,
            ids,
            st.sampled_from(CheckpointKind),
            st.none() | st.floats(0, 1e6),
            st.floats(0, 1e6),
            st.none() | st.text(max_size=300),
        ),
        st.just(7.0),
    ),
)


def split(frame):
    return frames.read_header(memoryview(frame), 0), frame[HEADER_BYTES:]


@given(elements, st.integers(0, 2**16 - 1), st.integers(0, 2**63))
def test_an_element_comes_out_as_it_went_in(element, channel, sequence):
    frame, payload = frames.encode_element(element, channel, sequence, now=7.0)
    header, body = split(frame)

    assert payload is None
    assert (header.channel, header.sequence, header.length) == (channel, sequence, len(body))
    assert frames.decode_element(header, body, now=0.0) == element


def test_a_payload_is_passed_on_and_not_copied():
    payload = pa.py_buffer(b"record batch")
    head, sent = frames.encode_element(Data(payload, payload.size, rows=3), 1, 5, now=0.0)

    assert sent is payload
    header = frames.read_header(memoryview(head), 0)
    assert (header.kind, header.rows, header.length, len(head)) == (Kind.DATA, 3, 12, HEADER_BYTES)
    assert frames.decode_element(header, b"record batch", now=0.0) == Data(b"record batch", 12, 3)


def test_a_barrier_ages_while_it_waits_to_be_sent():
    waiting = BarrierElement(Barrier(4, age=1.5), at=100.0)
    frame, _ = frames.encode_element(waiting, 0, 0, now=102.0)

    received = frames.decode_element(*split(frame), now=5.0)  # another host: its clock starts elsewhere

    assert received.barrier.age == 3.5
    assert received.aged(now=6.0).age == 4.5


@given(st.builds(Credit, ids, ids, ids, ids), st.builds(ChannelId, ids, ids, ids))
def test_messages_between_network_threads_come_out_as_they_went_in(credit, channel_id):
    assert frames.decode_credit(*split(frames.encode_credit(3, credit))) == credit
    assert frames.decode_open(*split(frames.encode_open(3, channel_id))) == channel_id


@pytest.mark.parametrize("kind", [0, 11, 255])
def test_an_unknown_kind_is_refused(kind):
    with pytest.raises(FrameError, match="unknown kind"):
        frames.read_header(memoryview(bytes([kind]) + bytes(HEADER_BYTES - 1)), 0)


@pytest.mark.parametrize("kind", [Kind.DATA, Kind.BARRIER])
def test_an_absurd_length_is_refused_before_memory_is_taken(kind):
    with pytest.raises(FrameError, match="claims 4,294,967,295 bytes"):
        frames.read_header(memoryview(frames._HEADER.pack(kind, 0, 0, 2**32 - 1, 0)), 0)


@given(st.sampled_from([Kind.WATERMARK, Kind.BARRIER, Kind.CANCEL, Kind.CREDIT, Kind.OPEN]), st.binary(max_size=40))
def test_a_body_is_decoded_or_refused_but_raises_nothing_else(kind, body):
    header = frames.Header(kind, 0, 0, len(body), 0)
    decode = {Kind.CREDIT: frames.decode_credit, Kind.OPEN: frames.decode_open}.get(
        kind, lambda header, body: frames.decode_element(header, body, now=0.0)
    )
    with contextlib.suppress(FrameError):
        decode(header, body)
