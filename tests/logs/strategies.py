"""Hypothesis strategies: segments as a broker could have left them, and what disks do to them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.logs import builders

_PRODUCER_IDS = st.sampled_from([-1, -1, 0, 1, 5, 5 + 2**32, 2**62, 2**63 - 1, -2])
_SEQUENCES = st.sampled_from([-1, 0, 7, 2**31 - 1, 2**31 - 3, -(2**31)])
_TIMESTAMPS = st.one_of(
    st.integers(-100, 1000).map(lambda delta: builders.BASE_TIMESTAMP_MS + delta),
    st.sampled_from([-1, -5, 0, 2**63 - 1]),
)


@st.composite
def data_batches(draw: st.DrawFn, base_offset: int) -> tuple[bytes, int]:
    count = draw(st.sampled_from([1, 1, 2, 5]))
    odd_delta = draw(st.sampled_from([None] * 12 + [-1, -3, 2**31 - 1, 2**31 - 6]))
    batch = builders.data_batch(
        base_offset,
        count,
        value_bytes=draw(st.sampled_from([0, 10, 60, 300, 1000])),
        last_offset_delta=odd_delta,
        producer_id=draw(_PRODUCER_IDS),
        producer_epoch=draw(st.sampled_from([0, 0, 0, 1, -1, 32767])),
        base_sequence=draw(_SEQUENCES),
        transactional=draw(st.booleans()),
        max_timestamp_ms=draw(_TIMESTAMPS),
        leader_epoch=draw(st.sampled_from([-1, 0, 0, 1, 2, 9])),
        magic=draw(st.sampled_from([2, 2, 2, 2, 2, 3, 127])),
    )
    return batch, count


@st.composite
def control_batches(draw: st.DrawFn, base_offset: int) -> tuple[bytes, int]:
    usual = draw(st.integers(0, 3)) > 0
    control_record = builders.control_record(
        draw(st.sampled_from([0, 1] if usual else [0, 1, 2, 3, -1])),
        coordinator_epoch=draw(st.integers(-1, 5)),
        key_version=draw(st.sampled_from([0, 0, 1] if usual else [0, -1])),
        value_version=draw(st.sampled_from([0, 0, 1] if usual else [0, -1])),
        timestamp_delta_ms=draw(st.sampled_from([0, 1, -1, 63, -64] if usual else [64, -65, 10**6])),
    )
    records: Any = control_record
    if not usual:
        records = draw(
            st.sampled_from(
                [
                    control_record,
                    control_record + control_record,
                    b"",
                    b"\xff" * 5,
                    b"\x20\x00" + b"\xff" * 20,
                    builders.record(key=None, value=b"\0" * 6),
                    builders.record(key=b"\0" * 4, value=None),
                    builders.record(key=b"\0" * 4, value=b"\0" * 5),
                    builders.record(key=b"\0" * 5, value=b"\0" * 7),
                    builders.record(key=b"\0" * 4, value=b"\0" * 6, headers=[(b"h", None)]),
                ]
            )
        )
    batch = builders.record_batch(
        base_offset=base_offset,
        records=records,
        record_count=1 if usual else draw(st.sampled_from([0, 1, 1, 2, -1])),
        producer_id=draw(_PRODUCER_IDS),
        producer_epoch=draw(st.sampled_from([0, 0, 1, 5])),
        transactional=draw(st.booleans()),
        control=True,
        codec=0 if usual else draw(st.sampled_from([0, 0, builders.GZIP, 7])),
        log_append_time=draw(st.booleans()),
        max_timestamp_ms=draw(_TIMESTAMPS),
    )
    return batch, 1


@st.composite
def messages(draw: st.DrawFn, offset: int) -> tuple[bytes, int]:
    message = builders.message(
        offset,
        magic=draw(st.sampled_from([0, 1, 1, -1])),
        timestamp_ms=draw(_TIMESTAMPS),
        key=draw(st.sampled_from([None, b"", b"key"])),
        value=draw(st.binary(max_size=40)),
    )
    return message, 1


@st.composite
def sound_segments(draw: st.DrawFn) -> tuple[int, bytes]:
    """(base offset, bytes): every checksum is right; offsets, producers and control records need not be."""
    base_offset = draw(st.sampled_from([0, 0, 100, -7, 2**40]))
    offset, batches = base_offset, []
    for kind in draw(st.lists(st.sampled_from("dddddccm"), max_size=40)):
        make = {"d": data_batches, "c": control_batches, "m": messages}[kind]
        batch, count = draw(make(offset))
        batches.append(batch)
        offset += count + draw(st.sampled_from([0] * 9 + [3, -4]))
    return base_offset, b"".join(batches)


@st.composite
def segments(draw: st.DrawFn) -> tuple[int, bytes]:
    """(base offset, bytes), often damaged."""
    base_offset, data = draw(sound_segments())
    damage = draw(st.sampled_from(["none", "flips", "cut", "zeros", "noise", "twice", "all noise"]))
    if damage == "flips" and data:
        changed = bytearray(data)
        for bit in draw(st.lists(st.integers(0, 8 * len(data) - 1), min_size=1, max_size=4)):
            changed[bit // 8] ^= 1 << bit % 8
        data = bytes(changed)
    elif damage == "cut":
        data = data[: draw(st.integers(0, len(data)))]
    elif damage == "zeros":
        data += bytes(draw(st.integers(0, 100)))
    elif damage == "noise":
        data += draw(st.binary(max_size=100))
    elif damage == "twice":
        data += data
    elif damage == "all noise":
        data = draw(st.binary(max_size=300))
    return base_offset, data


SCAN_OPTIONS = st.fixed_dictionaries(
    {"index_interval_bytes": st.sampled_from([0, 100, 700, 4096])},
    optional={
        "max_index_entries": st.sampled_from([0, 1, 3, 10]),
        "max_time_index_entries": st.sampled_from([1, 2, 5]),
        "check_crc": st.just(False),
        "build_index": st.just(False),
    },
)
"""What SegmentScanner, scan_segment and the reference take besides the base offset."""
