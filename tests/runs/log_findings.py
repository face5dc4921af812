"""What a verify of the logs alone has in common with a whole one."""

from __future__ import annotations

from collections.abc import Iterable

from recovery.check.finding import Finding

Found = set[tuple[str, str, int | None, str, bool]]
"""Key, rule, position, severity, and whether it is flushed, of each finding."""

BESIDE_LOGS = {
    "sequence-gap",
    "producer-epoch",
    "cut-end",
    "late-end",
    "leader-epoch",
    "epoch-content",
    "missing-epochs",
    "leftover",
}
"""Rules that may name a log, and are about what other files say of it."""
_ENDS = {"unclean-tail", "lying-marker"}
_LENGTHS = {"checksum", "batch-length", "torn-batch"}


def of_logs(findings: Iterable[tuple[str, Finding]]) -> Found:
    """Return what is about logs: objects that are there, or should be. *findings* come with their keys."""
    return {
        (key, found.rule, found.position, found.severity, found.is_flushed)
        for key, found in findings
        if key.endswith((".log", ".log.swap", ".checkpoint"))
        and found.rule not in BESIDE_LOGS
        and not (found.rule == "metadata" and "is of epoch" in found.detail)
    }


def with_found_ends(of_logs_alone: Found, of_all: Found) -> Found:
    """Return *of_logs_alone*, and of logs where a length is damaged what a whole verify has found.

    Only an index says where a sound batch follows there. Without it the log ends at the damage.
    """
    agreed: Found = set()
    for key in {one[0] for one in of_logs_alone}:
        own, other = ({one for one in some if one[0] == key} for some in (of_logs_alone, of_all))
        ends = {one[2:] for one in own if one[1] in _ENDS | _LENGTHS}
        is_lost = any(one[2:] in ends and one[1] in _LENGTHS for one in other)
        agreed |= other if is_lost else own
    return agreed
