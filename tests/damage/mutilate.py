"""Damage for log dirs: a table of what can happen to one partition's folder, applied by seed.

Each damage is a function of a `Victim`, a fresh log dir that holds one partition's folder of a sample, and a
random generator. It changes files in place and returns words for the report, or None where it has nothing to
bite on in this partition. The families are in tests/damage/mutilations/.
"""

from __future__ import annotations

from tests.damage.mutilations.checkpoints import CHECKPOINT_DAMAGES
from tests.damage.mutilations.derived import DERIVED_DAMAGES
from tests.damage.mutilations.leftovers import LEFTOVER_DAMAGES
from tests.damage.mutilations.logs import LOG_DAMAGES
from tests.damage.mutilations.names import NAME_DAMAGES
from tests.damage.mutilations.producers import PRODUCER_DAMAGES
from tests.damage.mutilations.segments import SEGMENT_DAMAGES
from tests.damage.mutilations.victim import CHECKPOINTS, Damage, Victim
from tests.damage.mutilations.victim import copy_partition as make_victim

__all__ = [
    "CHECKPOINTS",
    "DAMAGES",
    "FAMILIES",
    "FOLDER_DAMAGES",
    "PLAIN_DAMAGES",
    "Damage",
    "Victim",
    "make_victim",
]

FAMILIES: dict[str, dict[str, Damage]] = {
    "logs": LOG_DAMAGES,
    "derived files": DERIVED_DAMAGES,
    "checkpoints": CHECKPOINT_DAMAGES,
    "leftovers": LEFTOVER_DAMAGES,
    "segments": SEGMENT_DAMAGES,
    "names": NAME_DAMAGES,
    "producers": PRODUCER_DAMAGES,
}
"""All damages, by what they are done to."""

DAMAGES: dict[str, Damage] = {name: damage for family in FAMILIES.values() for name, damage in family.items()}
"""All damages by name."""

_BESIDE_THE_FOLDER = frozenset({
    "lying marker", "recovery point", "log start offset", "malformed recovery points", "malformed log start offsets",
    "odd folder name", "doubled folder", "link for a file", "link for a folder", "FIFO for a file",
})  # fmt: skip
FOLDER_DAMAGES = tuple(name for name in DAMAGES if name not in _BESIDE_THE_FOLDER)
"""What changes nothing but the partition's folder."""

PLAIN_DAMAGES = (
    "torn tail", "junk tail", "zero tail", "missing offset index",
    *(f"flipped {field}, unflushed" for field in ("length", "crc", "attributes", "records")),
    "flipped records, flushed",
)  # fmt: skip
"""What an unclean shutdown does most often: a broker loads nearly all of these."""
