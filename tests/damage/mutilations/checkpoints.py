"""Damage to the text files: both offset checkpoints, epochs, partition.metadata, meta.properties, the marker."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from tests.damage.mutilations.derived import broken
from tests.damage.mutilations.victim import CHECKPOINTS, EPOCHS, PARTITION_METADATA, Damage, Victim
from tests.logs.samples import MARKER

BAD_CHECKPOINTS = (
    "", "0", "0\n", "0\n0", "0\n0\n\n", "1\n0\n", "7\n0\n", "-1\n0\n", "x\n0\n", " 0\n0\n", "0 \n0\n", "0\n 0\n",
    "0\nx\n", "0\n-1\n", "0\n2147483647\n", "0\n2147483648\n", "0\n1\n", "\n", "\n\n", "\ufeff0\n0\n", "\0", "0\n0\0\n",
    "0\r\n0\r\n", "0\n0\nrest\n", "٠\n٠\n", "0\n+0\n", "00\n00\n", "0\n0\n \n",
)  # fmt: skip
"""Files of no entry, good and bad; lines with entries are made for each kind of file."""
_NUMBERS = ("0", "-1", "+7", "007", "٣", "x", "", "1.5", "2147483647", "2147483648", "9223372036854775807",
            "9223372036854775808", "-9223372036854775808", "0x10", "1_000")  # fmt: skip
_NOT_UTF_8 = b"0\n1\n\xff\xfe 0 0\n"


def _lines(rng: random.Random, fields: Sequence[str]) -> bytes:
    """Text with *fields* in its last line: separated, counted and ended in one of many ways."""
    blank = rng.choice([" ", " ", " ", "  ", "\t", "\u00a0"])
    line = blank.join(fields)
    line = rng.choice([line, line, line, f" {line}", f"{line} ", f"{line}\t", f"{line} more", fields[0]])
    count = rng.choice(["1", "1", "1", "2", "0"])
    end = rng.choice(["\n", "\n", "\r\n", "", "\n\n", f"\n{line}\n"])
    return f"0\n{count}\n{line}{end}".encode()


def offset_line(name: str) -> Damage:
    """A line that can be read, and says what cannot be: below 0, beyond the end, inside a segment."""

    def damage(victim: Victim, rng: random.Random) -> str:
        bases = victim.bases() or [0]
        inside = rng.choice(bases) + rng.choice([0, 1, -1])
        offset = rng.choice(
            [0, -1, -(2**63), 2**63 - 1, 2**63 - 2, inside, inside, rng.randrange(max(bases) + 50), 10**9]
        )
        topic, partition = victim.topic_partition
        (victim.log_dir / name).write_text(f"0\n1\n{topic} {partition} {offset}\n")
        return f"{name} says {offset}"

    return damage


def malformed_offsets(name: str) -> Damage:
    def damage(victim: Victim, rng: random.Random) -> str:
        topic, partition = victim.topic_partition
        number = rng.choice(_NUMBERS)
        fields = rng.choice([(topic, partition, number), (topic, number, "0"), (topic, partition)])
        text = rng.choice([_lines(rng, fields), rng.choice(BAD_CHECKPOINTS).encode(), _NOT_UTF_8])
        (victim.log_dir / name).write_bytes(text)
        return f"{name} is {text!r}"

    return damage


def malformed_epochs(victim: Victim, rng: random.Random) -> str:
    fields = rng.choice([(rng.choice(_NUMBERS), "0"), ("0", rng.choice(_NUMBERS)), ("0",), ("0", "0", "0")])
    text = rng.choice([_lines(rng, fields), rng.choice(BAD_CHECKPOINTS).encode(), _NOT_UTF_8])
    (victim.folder / EPOCHS).write_bytes(text)
    return f"{EPOCHS} is {text!r}"


def wrong_epochs(victim: Victim, rng: random.Random) -> str:
    """Entries that can be read: not ascending, at the end and behind it, with the greatest numbers."""
    offsets = [*victim.bases(), 0, 1, 10**6, 2**63 - 1]
    epochs = [0, 1, 2, 5, 2**31 - 1]
    entries = [(rng.choice(epochs), rng.choice(offsets)) for _ in range(rng.randint(1, 5))]
    entries = sorted(entries) if rng.random() < 0.5 else entries
    text = f"0\n{len(entries)}\n" + "".join(f"{epoch} {offset}\n" for epoch, offset in entries)
    (victim.folder / EPOCHS).write_text(text)
    return f"{EPOCHS} is {entries}"


def missing_small_file(name: str) -> Damage:
    def damage(victim: Victim, rng: random.Random) -> str | None:
        path = victim.folder / name
        if not path.exists():
            return None
        path.unlink()
        return f"without {name}"

    return damage


def broken_small_file(name: str) -> Damage:
    def damage(victim: Victim, rng: random.Random) -> str | None:
        path = victim.folder / name
        return broken(path, rng) if path.exists() else None

    return damage


def malformed_metadata(victim: Victim, rng: random.Random) -> str:
    topic_id = "XVrnN7gyS8qmRkfzoo9a4g"
    version = rng.choice(["0", "0", "0", "1", "7", "-1", "x", "", " 0", "2147483648"])
    topic_id = rng.choice(
        [
            topic_id,
            "A" * 22,
            "AAAAAAAAAAAAAAAAAAAAAQ",
            topic_id[:-1],
            f"{topic_id}==",
            f"{topic_id}x",
            "",
            "!!",
            "٣",
        ]
    )
    blank = rng.choice([": ", ": ", ":", ":  ", ":\t", " : "])
    text = f"version{blank}{version}\ntopic_id{blank}{topic_id}"
    text = rng.choice(
        [text, text, f"{text}\n", f"{text}\n\n", f"{text}\nmore\n", f"\n{text}", text.split("\n")[0], ""]
    )
    text = rng.choice([text, text.replace("version", "Version"), text.replace("topic_id", "topicId"), text])
    data = rng.choice([text.encode(), text.encode(), text.encode(), text.encode() + b"\xff", bytes(40)])
    (victim.folder / PARTITION_METADATA).write_bytes(data)
    return f"{PARTITION_METADATA} is {data!r}"


def marker(victim: Victim, rng: random.Random) -> str:
    """A clean log dir becomes an unclean one or the other way round; what the marker says does not count."""
    path = victim.log_dir / MARKER
    if path.exists():
        path.unlink()
        return "without its clean-shutdown marker"
    text = rng.choice(['{"version":0,"brokerEpoch":7}', "", "{", "\0\0", '{"version":9}'])
    path.write_text(text)
    return f"with a clean-shutdown marker {text!r}"


def leftover_temporary(victim: Victim, rng: random.Random) -> str:
    """What a writer that was killed leaves beside a checkpoint."""
    path: Path = rng.choice(
        [
            victim.folder / EPOCHS,
            victim.folder / PARTITION_METADATA,
            *(victim.log_dir / name for name in CHECKPOINTS),
        ]
    )
    path.with_name(f"{path.name}.tmp").write_bytes(rng.choice([b"", b"0\n0\n", rng.randbytes(30)]))
    return f"with {path.name}.tmp"


CHECKPOINT_DAMAGES: dict[str, Damage] = {
    "recovery point": offset_line(CHECKPOINTS[0]),
    "log start offset": offset_line(CHECKPOINTS[1]),
    "malformed recovery points": malformed_offsets(CHECKPOINTS[0]),
    "malformed log start offsets": malformed_offsets(CHECKPOINTS[1]),
    "malformed epochs": malformed_epochs,
    "wrong epochs": wrong_epochs,
    "missing epochs": missing_small_file(EPOCHS),
    "broken epochs": broken_small_file(EPOCHS),
    "missing partition.metadata": missing_small_file(PARTITION_METADATA),
    "broken partition.metadata": broken_small_file(PARTITION_METADATA),
    "malformed partition.metadata": malformed_metadata,
    "lying marker": marker,
    "leftover temporary file": leftover_temporary,
}
