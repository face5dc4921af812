"""Summaries of producers' sequences: merged anyhow they say what one pass says, and that is what Kafka checks."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Sequence

import numpy as np
import pytest

from native.producer_sequences import (
    BREAK_DTYPE,
    MOST_BREAKS,
    SEQUENCE_DTYPE,
    SequenceBreak,
    SequenceFold,
    Sequences,
)
from tests.brokers.jars import class_path, oracle_classes
from tests.native.sequence_twin import (
    EXPIRATION_MS,
    MAX_INT32,
    Break,
    SequencedBatch,
    SequenceTwin,
    header_rows,
    history,
)


def summary_of(batches: Sequence[SequencedBatch], log_start_offset: int = 0) -> Sequences:
    fold = SequenceFold(EXPIRATION_MS, log_start_offset)
    fold.take_batches(header_rows(batches))
    return fold.result()


def merged(*parts: Sequences, log_start_offset: int = 0) -> Sequences:
    fold = SequenceFold(EXPIRATION_MS, log_start_offset)
    for part in parts:
        fold.take(part)
    return fold.result()


def breaks_in(sequences: Sequences) -> list[Break]:
    rows = np.frombuffer(sequences.breaks, BREAK_DTYPE)
    return [
        Break(
            offset=int(row["offset"]),
            producer_id=int(row["producer_id"]),
            kind="sequence" if row["kind"] == SequenceBreak.SEQUENCE else "epoch",
            sequences=(int(row["last_sequence"]), int(row["sequence"])),
            epochs=(int(row["last_epoch"]), int(row["epoch"])),
        )
        for row in rows
    ]


def twin_of(batches: Sequence[SequencedBatch], log_start_offset: int = 0) -> list[Break]:
    twin = SequenceTwin(log_start_offset=log_start_offset)
    for batch in batches:
        twin.take(batch)
    return twin.breaks


def cut_at_random(rng: random.Random, batches: list[SequencedBatch]) -> list[list[SequencedBatch]]:
    count = rng.choice([1, 2, 5, len(batches)])
    places = sorted(rng.randrange(len(batches) + 1) for _ in range(count))
    return [batches[start:end] for start, end in zip([0, *places], [*places, len(batches)], strict=True)]


def merged_anyhow(rng: random.Random, parts: list[Sequences], log_start_offset: int) -> Sequences:
    """Merge neighbours, in any order, until one is left."""
    while len(parts) > 1:
        place = rng.randrange(len(parts) - 1)
        count = rng.choice([2, 2, 3])
        both = merged(*parts[place : place + count], log_start_offset=log_start_offset)
        parts = [*parts[:place], both, *parts[place + count :]]
    return parts[0]


@pytest.mark.parametrize("seed", range(400))
def test_any_cut_and_association_say_what_one_pass_says(seed: int) -> None:
    rng = random.Random(seed)
    batches = list(history(rng, rng.choice([1, 3, 20, 80, 200])))
    start = rng.choice([0, 0, 75, 90])
    whole = summary_of(batches, start)
    expected = twin_of(batches, start)
    assert whole.break_count == len(expected)
    assert breaks_in(whole) == expected[:MOST_BREAKS]
    parts = [summary_of(part, start) for part in cut_at_random(rng, batches)]
    assert merged_anyhow(rng, parts, start) == whole


def test_histories_hold_what_they_should() -> None:
    """The property would prove little if nothing ever broke, or most of it did."""
    kinds = {"sequence": 0, "epoch": 0, "cut": 0, "quiet": 0, "many": 0, "wrapped": 0, "new epoch": 0}
    for seed in range(400):
        rng = random.Random(seed)
        batches = list(history(rng, rng.choice([1, 3, 20, 80, 200])))
        whole = summary_of(batches)
        found = twin_of(batches)
        kinds["quiet"] += not found
        kinds["many"] += len(found) > MOST_BREAKS
        kinds["cut"] += whole.is_cut
        kinds["wrapped"] += any(one.last_sequence < one.base_sequence for one in batches if not one.is_marker)
        kinds["new epoch"] += any(one.sequences[0] == -1 and one.kind == "sequence" for one in found)
        for one in found:
            kinds[one.kind] += 1
    assert min(kinds.values()) > 20, kinds


def test_the_summary_of_nothing_is_a_unit() -> None:
    for seed in range(30):
        whole = summary_of(list(history(random.Random(seed), 30)))
        assert merged(whole, Sequences()) == merged(Sequences(), whole) == merged(whole) == whole
    assert summary_of([]) == merged() == Sequences()


def test_memory_grows_with_producers() -> None:
    batches = [
        SequencedBatch(base_offset=number, producer_id=number % 5000 * 2**33, base_sequence=number // 5000)
        for number in range(12_000)
    ]
    whole = summary_of(batches)
    assert len(whole.rows) == 5000 * SEQUENCE_DTYPE.itemsize
    assert not whole.break_count
    parts = [summary_of(batches[at : at + 700]) for at in range(0, len(batches), 700)]
    assert merged(*parts) == whole


@pytest.mark.parametrize(
    ("batches", "found"),
    [
        ([(0, 0), (0, 1), (0, 2)], []),
        ([(0, 5), (0, 6)], []),
        ([(0, 0), (0, 2)], [(0, 2)]),
        ([(0, 4), (0, 4)], [(4, 4)]),
        ([(0, MAX_INT32), (0, 0)], []),
        ([(0, MAX_INT32), (0, 1)], [(MAX_INT32, 1)]),
        ([(0, 8), (1, 0)], []),
        ([(0, 8), (1, 9)], [(-1, 9)]),
        ([(0, 8), (0, None), (0, 9)], []),
        ([(0, 8), (1, None), (1, 0)], []),
        ([(0, 8), (1, None), (1, 9)], [(-1, 9)]),
        ([(0, None), (0, 9)], []),
        ([(0, None), (1, None), (1, 9)], [(-1, 9)]),
        ([(2, 8), (1, 0), (1, 1)], ["epoch"]),
        ([(2, 8), (1, None)], ["epoch"]),
    ],
)
def test_rules_one_by_one(batches: list[tuple[int, int | None]], found: list[object]) -> None:
    """Epoch and sequence of each batch; None for a marker."""
    written = [
        SequencedBatch(
            base_offset=offset,
            producer_id=9,
            epoch=epoch,
            base_sequence=sequence or 0,
            is_marker=sequence is None,
        )
        for offset, (epoch, sequence) in enumerate(batches)
    ]
    for whole in (summary_of(written), merged(*(summary_of([one]) for one in written))):
        said = [one.sequences if one.kind == "sequence" else "epoch" for one in breaks_in(whole)]
        assert said == found


@pytest.mark.java
def test_kafka_takes_what_is_no_break() -> None:
    """Against ProducerStateManager and ProducerAppendInfo themselves, batch by batch."""
    histories = [list(history(random.Random(seed), 60, has_damage=False)) for seed in range(1000)]
    asked = [" ".join(map(_step, batches)) for batches in histories]
    done = subprocess.run(
        ["java", "-cp", class_path(after=[oracle_classes()]), "ProducerSequences", str(EXPIRATION_MS)],
        input="\n".join(asked) + "\n",
        capture_output=True,
        text=True,
        check=True,
    )
    answers = [line for line in done.stdout.splitlines() if line.startswith("|")]
    assert len(answers) == len(histories)
    refused = 0
    for batches, answer in zip(histories, answers, strict=True):
        found = {one.offset: one.kind for one in twin_of(batches)}
        expected = [found.get(one.base_offset, "taken") for one in batches]
        assert answer[1:].split() == expected
        refused += len(found)
    assert refused > 1000


def _step(batch: SequencedBatch) -> str:
    kind = "-" if batch.producer_id < 0 else "m" if batch.is_marker else "d"
    if batch.is_marker and not batch.record_count:
        kind = "-"
    return (
        f"{kind}:{batch.producer_id}:{batch.epoch}:{batch.base_sequence}:{batch.last_sequence}:"
        f"{batch.timestamp_ms}:{batch.base_offset}:{batch.last_offset}"
    )
