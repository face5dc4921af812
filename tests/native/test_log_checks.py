"""In what the kernel calls sound the ordinary check finds nothing, and both count the same, whatever the bytes are."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest

from native.cpu_path import CpuPath
from native.errors import ScanUsageError
from native.log_checks import LOG_ROW_DTYPE, LogRows, check_logs
from segfmt import byte_layout
from tests.logs import builders
from tests.logs.builders import data_batch, marker_batch, message, recompute_crc, record_batch
from tests.logs.samples import SAMPLE_NAMES, TIERED_NAME, unpack
from tests.native.log_verify import Log, assert_as_verified, checked_alone

_SLACK_BYTES = 256


def checked(logs: Sequence[Log], cpu_path: CpuPath) -> LogRows:
    """What the kernel says of all *logs*, which lie one behind the other."""
    rows = np.zeros(len(logs), LOG_ROW_DTYPE)
    rows["size_bytes"] = [len(data) for data, _, _ in logs]
    rows["start"] = np.cumsum(rows["size_bytes"]) - rows["size_bytes"]
    rows["base_offset"] = [base for _, base, _ in logs]
    rows["next_base_offset"] = [-1 if following is None else following for _, _, following in logs]
    buffer = np.frombuffer(bytes(_SLACK_BYTES) + b"".join(data for data, _, _ in logs), np.uint8)
    count = check_logs(buffer, rows, slack=_SLACK_BYTES, cpu_path=cpu_path)
    assert count == rows["is_sound"].sum()
    return rows


def assert_agreement(logs: Sequence[Log], cpu_path: CpuPath) -> LogRows:
    """Hold each log that is said to be sound against the ordinary check."""
    rows = checked(logs, cpu_path)
    for row, log in zip(rows, logs, strict=True):
        if row["is_sound"]:
            assert_as_verified(row, log)
    return rows


def plain_log(base: int = 40, count: int = 5) -> bytes:
    return b"".join(data_batch(base + 3 * place, 3, value_bytes=40 * place) for place in range(count))


def written_log(rng: random.Random) -> Log:
    """A log with anything in it that a broker may write, mostly."""
    base = offset = rng.choice([0, 7, 2**31, 2**40])
    batches = []
    for _ in range(rng.randrange(30)):
        kind = rng.randrange(12)
        producer_id = rng.choice([-1, 0, 5, 66, 69, 2**40])
        known = (
            {"producer_id": producer_id, "producer_epoch": 2, "base_sequence": 9} if producer_id >= 0 else {}
        )
        count = rng.randrange(1, 4)
        if kind == 0 and producer_id >= 0:
            batches.append(marker_batch(offset, rng.randrange(2), producer_id=producer_id))
            count = 1
        elif kind == 1 and rng.random() < 0.03:
            records = rng.choice([b"", builders.control_record(rng.randrange(4)), b"\1\2\3"])
            batches.append(record_batch(base_offset=offset, records=records, control=True))
            count = 1
        elif kind == 2 and rng.random() < 0.1:
            batches.append(message(offset, magic=rng.randrange(2)))
            count = 1
        elif kind == 3:
            batches.append(
                record_batch(
                    base_offset=offset,
                    record_count=1,
                    last_offset_delta=count - 1,
                    records=[builders.record()],
                )
            )
        else:
            timestamp_ms = rng.choice([-1, 0, builders.BASE_TIMESTAMP_MS + rng.randrange(1000)])
            batches.append(
                data_batch(
                    offset,
                    count,
                    value_bytes=rng.choice([0, 10, 200, 3000]),
                    transactional=producer_id in (66, 2**40) or (producer_id == 5 and rng.random() < 0.1),
                    base_timestamp_ms=timestamp_ms,
                    codec=0,
                    leader_epoch=rng.randrange(3),
                    **known,
                )
            )
        offset += count + (rng.randrange(3) if rng.random() < 0.01 else 0)
    return b"".join(batches), base, rng.choice([None, offset, offset + 4])


_NUMBERS = [
    0,
    1,
    2,
    3,
    5,
    7,
    60,
    127,
    128,
    255,
    2**15,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**63 - 1,
    2**63,
    2**64 - 1,
]
_FIELDS = [
    (0, 8),
    (8, 4),
    (12, 4),
    (16, 1),
    (17, 4),
    (21, 2),
    (23, 4),
    (27, 8),
    (35, 8),
    (43, 8),
    (51, 2),
    (53, 4),
    (57, 4),
]


def with_another_field(data: bytes, rng: random.Random) -> bytes:
    """One field of one batch is another number; the checksum is right, mostly."""
    starts = [0]
    while (behind := starts[-1] + 12 + int.from_bytes(data[starts[-1] + 8 : starts[-1] + 12], "big")) < len(
        data
    ):
        starts.append(behind)
    start = rng.choice(starts)
    end = start + 12 + int.from_bytes(data[start + 8 : start + 12], "big")
    batch = bytearray(data[start:end])
    position, size = rng.choice(_FIELDS)
    old = int.from_bytes(batch[position : position + size], "big")
    number = rng.choice([*_NUMBERS, old + 1, old - 1, old ^ 1 << rng.randrange(8 * size)]) % (1 << 8 * size)
    batch[position : position + size] = number.to_bytes(size, "big")
    new = bytes(batch) if position in (8, 17) or rng.random() < 0.1 else recompute_crc(bytes(batch))
    return data[:start] + new + data[end:]


def damaged(data: bytes, rng: random.Random) -> bytes:
    kind = rng.randrange(7)
    if kind == 0:
        return data[: rng.randrange(len(data))]
    if kind == 1:
        place = rng.randrange(len(data))
        return data[:place] + bytes([data[place] ^ 1 << rng.randrange(8)]) + data[place + 1 :]
    if kind == 2:
        return data + bytes(rng.choice([1, 12, 17, 18, 61, 5000]))
    if kind == 3:
        return data + rng.randbytes(rng.choice([3, 17, 18, 70]))
    return with_another_field(data, rng)


@pytest.fixture(scope="module")
def logs_of_brokers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Log]]:
    """By sample: each log with its successor's base offset."""
    found: dict[str, list[Log]] = {}
    for name in (*SAMPLE_NAMES, TIERED_NAME):
        logs = found[name] = []
        root = unpack(name, tmp_path_factory.mktemp(name)).root
        for folder in sorted({path.parent for path in root.rglob("*.log")}):
            paths = sorted(path for path in folder.glob("[0-9]*.log") if path.stat().st_size < 4 << 20)
            bases = [int(path.name[:20]) for path in paths]
            for path, base, behind in zip(paths, bases, [*bases[1:], None], strict=True):
                logs.append((path.read_bytes(), base, behind))
    return found


def test_logs_of_brokers_are_sound_for_the_most_part(
    cpu_path: CpuPath, logs_of_brokers: dict[str, list[Log]]
) -> None:
    """Those of magic 0 and 1 are looked at more closely."""
    for name, logs in logs_of_brokers.items():
        rows = assert_agreement(logs, cpu_path)
        share = float(rows["is_sound"].mean())
        assert share > (0.1 if name == "crashed-v0-v1" else 0.5), name


def test_what_is_written_and_damaged(cpu_path: CpuPath) -> None:
    rng = random.Random(11)
    logs = [written_log(rng) for _ in range(400)]
    rows = assert_agreement(logs, cpu_path)
    assert 0.4 < rows["is_sound"].mean() < 1
    logs = [(damaged(data, rng), base, following) for data, base, following in logs * 3 if data]
    rows = assert_agreement(logs, cpu_path)
    assert 0.02 < rows["is_sound"].mean() < 0.5


def test_no_flipped_bit_of_what_a_checksum_covers_is_sound(cpu_path: CpuPath) -> None:
    data = plain_log(count=3)
    start = len(plain_log(count=1))
    places = range(start, len(plain_log(count=2)))
    flipped = [
        (data[:place] + bytes([data[place] ^ 1 << place % 8]) + data[place + 1 :], 40, None)
        for place in places
    ]
    sound = assert_agreement(flipped, cpu_path)["is_sound"]
    covered = byte_layout.ATTRIBUTES_POSITION
    assert not sound[byte_layout.BATCH_CRC_POSITION : byte_layout.BATCH_CRC_POSITION + 4].any()
    assert not sound[covered:].any()
    assert set(np.flatnonzero(sound[:covered]).tolist()) <= {
        *range(8),
        *range(12, 16),
    }  # offset and leader epoch


def test_each_cut_is_seen_unless_it_is_between_batches(cpu_path: CpuPath) -> None:
    data = plain_log(count=3)
    rows = assert_agreement([(data[:end], 40, None) for end in range(len(data) + 1)], cpu_path)
    ends = {
        0,
        *np.cumsum([len(plain_log(count=n)) - len(plain_log(count=n - 1)) for n in (1, 2, 3)]).tolist(),
    }
    assert set(np.flatnonzero(rows["is_sound"]).tolist()) == ends


@pytest.mark.parametrize("tail_bytes", [1, 17, 18, 61, 4096])
def test_zeros_behind_the_last_batch_are_looked_at(tail_bytes: int, cpu_path: CpuPath) -> None:
    assert not checked([(plain_log() + bytes(tail_bytes), 40, None)], cpu_path)["is_sound"].any()


def test_an_empty_log_is_sound_and_has_nothing(cpu_path: CpuPath) -> None:
    (row,) = assert_agreement([(b"", 5, None)], cpu_path)
    assert (row["is_sound"], row["batch_count"], row["first_offset"], row["last_offset"]) == (True, 0, -1, -1)


def test_offsets_against_the_name_and_the_next_segment(cpu_path: CpuPath) -> None:
    data = plain_log(40, 5)  # 40 to 54
    cases = {
        (40, None): True,
        (40, 55): True,
        (40, 60): True,
        (39, 55): True,
        (41, 55): False,
        (40, 54): False,
    }
    rows = assert_agreement([(data, base, following) for base, following in cases], cpu_path)
    assert rows["is_sound"].tolist() == list(cases.values())


_BAD_FIELDS: dict[str, tuple[str, bytes]] = {
    "a codec of no name": ("codec", data_batch(40, codec=5)),
    "fewer offsets than records": ("record-count", data_batch(40, 3, last_offset_delta=1)),
    "a negative count": ("record-count", record_batch(base_offset=40, record_count=-1, last_offset_delta=0)),
    "a negative delta": ("record-count", record_batch(base_offset=45, record_count=0, last_offset_delta=-1)),
    "no epoch": ("producer-fields", data_batch(40, producer_id=3, base_sequence=0)),
    "no sequence": ("producer-fields", data_batch(40, producer_id=3, producer_epoch=0)),
    "a transaction of nobody": ("producer-fields", data_batch(40, transactional=True)),
    "nobody's id": ("producer-fields", data_batch(40, producer_id=-2)),
    "a marker outside": (
        "producer-fields",
        record_batch(
            base_offset=40, records=builders.control_record(1), control=True, producer_id=3, producer_epoch=0
        ),
    ),
    "far from the name": ("offset-range", data_batch(40 + 2**31)),
    "before the name": ("offset-range", data_batch(39)),
    "beyond all numbers": ("offset-range", data_batch(2**63 - 1, 2)),
}


@pytest.mark.parametrize("name", _BAD_FIELDS)
def test_a_field_that_cannot_be_is_looked_at(name: str, cpu_path: CpuPath) -> None:
    rule, data = _BAD_FIELDS[name]
    assert not checked([(data, 40, None)], cpu_path)["is_sound"].any()
    assert rule in [found.rule for found in checked_alone((data, 40, None)).findings]


def test_missing_offsets_count_only_where_nothing_is_compacted(cpu_path: CpuPath) -> None:
    gap = data_batch(0, 2) + data_batch(5, 1)
    compacted = record_batch(base_offset=6, records=[builders.record()], last_offset_delta=3)
    rows = assert_agreement([(gap, 0, None), (gap + compacted, 0, None)], cpu_path)
    assert rows["is_sound"].tolist() == [False, True]


def test_messages_and_odd_control_batches_are_looked_at(cpu_path: CpuPath) -> None:
    known = {"producer_id": 3, "producer_epoch": 0}
    odd = record_batch(records=builders.control_record(7), control=True, transactional=True, **known)
    logs = [message(0, magic=0), message(0, magic=1), data_batch(0, magic=3), odd]
    assert not checked([(data, 0, None) for data in logs], cpu_path)["is_sound"].any()


def test_a_producer_that_leaves_its_transaction_is_looked_at(cpu_path: CpuPath) -> None:
    def batch(offset: int, producer_id: int, *, transactional: bool) -> bytes:
        return data_batch(
            offset,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=offset,
            transactional=transactional,
        )

    inside, outside = batch(0, 3, transactional=True), batch(1, 3, transactional=False)
    other = batch(1, 4, transactional=False)
    marker = marker_batch(1, producer_id=3) + batch(2, 4, transactional=False)
    logs = [inside + outside, inside + other, inside + marker]
    rows = assert_agreement([(data, 0, None) for data in logs], cpu_path)
    assert rows["is_sound"].tolist() == [False, True, True]
    assert [found.rule for found in checked_alone((logs[0], 0, None)).findings] == ["transaction-state"]


def test_nothing_is_read_outside_of_the_buffer() -> None:
    rows = np.zeros(4, LOG_ROW_DTYPE)
    rows["size_bytes"] = 40
    rows["start"] = [0, 30, 0, 0]
    with pytest.raises(ScanUsageError, match="log 1 is not all in the buffer"):
        check_logs(np.zeros(80, np.uint8), rows, slack=16)
    with pytest.raises(ScanUsageError, match="contiguous"):
        check_logs(np.zeros(80, np.uint8), rows[::2])
    with pytest.raises(ScanUsageError, match="contiguous"):
        check_logs(np.zeros(80, np.int8), rows)  # type: ignore[arg-type]  # what must be refused
    assert check_logs(np.zeros(0, np.uint8), rows[:0]) == 0
