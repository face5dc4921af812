"""What `quarantine list` and `quarantine purge` report: values, and the two ways of printing them.

The JSON form is an interface: `"version": 1`, names in camelCase. Bytes are the sizes of files; freed bytes are those
that the file system gets back: none for a file that has a second name in the log dir.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from recovery.engine.report import EXIT_DAMAGE, EXIT_DONE, EXIT_ERROR, EXIT_PARTIAL
from recovery.errors import without_path
from recovery.plan.manifest import StoredEntry, StoredLog
from recovery.printable import printable
from recovery.quantity import bytes_text, count_text, duration_text, listed_text
from recovery.saved.purge import Hindrance, LogDirPurge, PurgedRun
from recovery.saved.runs import QuarantineRun, exclusive_bytes

_MOST_LOGS = 10
_MOST_REASONS = 5
_MOST_NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedRun:
    """A run, and what was found wrong with it.

    Attributes:
        missing: what was saved and is no longer there, by its path below the run's folder.
        unnamed: parts of logs that no line of the manifest names, likewise.
        hindered: why a purge would leave it.
        problems: of all bytes; None if nothing was read.
    """

    run: QuarantineRun
    missing: tuple[str, ...] = ()
    unnamed: tuple[str, ...] = ()
    hindered: Hindrance | None = None
    problems: tuple[str, ...] | None = None

    @property
    def is_damaged(self) -> bool:
        """Whether something is not as it was, as far as was looked."""
        return bool(self.missing or self.unnamed or self.problems)

    @property
    def freed_bytes(self) -> int:
        """Bytes on disk that a purge of this run alone would free."""
        return 0 if self.hindered else exclusive_bytes(self.run)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirListing:
    """The quarantine of a log dir.

    Attributes:
        places: the folders that were searched.
        unfinished: journals of interrupted runs.
        error: why it could not be listed; nothing else is known of it then.
    """

    log_dir: str
    places: tuple[str, ...]
    unfinished: tuple[str, ...] = ()
    runs: tuple[ListedRun, ...] = ()
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineListing:
    """The quarantine of some log dirs at the time *now_ms*."""

    now_ms: int
    log_dirs: tuple[LogDirListing, ...]

    @property
    def exit_code(self) -> int:
        """1 if no log dir could be listed, 4 if some could not; else 2 if something is damaged, or 0."""
        errors = [log_dir.error is not None for log_dir in self.log_dirs]
        if any(errors):
            return EXIT_ERROR if all(errors) else EXIT_PARTIAL
        is_damaged = any(listed.is_damaged for log_dir in self.log_dirs for listed in log_dir.runs)
        return EXIT_DAMAGE if is_damaged else EXIT_DONE

    def to_json(self) -> str:
        """Return the listing as one JSON document."""
        return _json(
            {
                "exitCode": self.exit_code,
                "nowMs": self.now_ms,
                "logDirs": [
                    {
                        "logDir": log_dir.log_dir,
                        "error": log_dir.error,
                        "places": list(log_dir.places),
                        "unfinished": list(log_dir.unfinished),
                        "runs": [self._run_json(listed) for listed in log_dir.runs],
                    }
                    for log_dir in self.log_dirs
                ],
            }
        )

    def _run_json(self, listed: ListedRun) -> dict[str, Any]:
        run = listed.run
        return _run_json(run) | {
            "ageMs": self.now_ms - run.started_ms,
            "files": len(run.files),
            "bytes": run.size_bytes,
            "freedBytes": listed.freed_bytes,
            "hindered": None
            if listed.hindered is None
            else {"rule": listed.hindered.rule, "reason": listed.hindered.reason},
            "logBytes": sum(log.size_bytes for log in run.logs),
            "logs": [
                {
                    "partition": log.partition,
                    "bytes": log.size_bytes,
                    "parts": [_part_json(part) for part in log.parts],
                }
                for log in run.logs
            ],
            "moved": [_moved_json(run, entry) for entry in run.moved],
            "saved": len(run.saved),
            "derived": len(run.counted) - len(run.saved),
            "reasons": _reasons(run.saved),
            "missing": list(listed.missing),
            "unnamed": list(listed.unnamed),
            "problems": None if listed.problems is None else list(listed.problems),
        }

    def to_text(self, verbosity: int = 0) -> str:
        """Return the listing for people.

        Args:
            verbosity: -1: what cannot be listed, is unfinished or damaged alone; 1: each log.
        """
        lines = []
        for log_dir in self.log_dirs:
            if log_dir.error is not None:
                why = without_path(log_dir.error, log_dir.log_dir)
                lines.append(f"{log_dir.log_dir}: cannot be looked at: {why}")
                continue
            unfinished = [f"a run is at work or was interrupted: {path}" for path in log_dir.unfinished]
            if verbosity < 0:
                lines += unfinished
                for listed in log_dir.runs:
                    damages = _damages(listed, most=_MOST_LOGS)
                    lines += [f"{listed.run.path}: {problem}" for problem in damages]
                continue
            lines.append(log_dir.log_dir + ("" if log_dir.runs else ": nothing in quarantine"))
            lines += [f"  {text}" for text in unfinished]
            for listed in log_dir.runs:
                lines += self._run_lines(listed, most=None if verbosity > 0 else _MOST_LOGS)
        return _text(lines)

    def _run_lines(self, listed: ListedRun, *, most: int | None) -> list[str]:
        run, logs = listed.run, listed.run.logs
        cut = f"{bytes_text(sum(log.size_bytes for log in logs))} of {count_text(len(logs), 'log')}"
        lines = [
            f"  {run.path}",
            f"    {_when(run)}, {_age(self.now_ms - run.started_ms)}: {cut if logs else 'nothing of a log'}; "
            f"{count_text(len(run.files), 'file')}, {bytes_text(run.size_bytes)} "
            f"({bytes_text(listed.freed_bytes)} freed by a purge)",
            *(f"    {problem}" for problem in _damages(listed, most=most)),
        ]
        if listed.hindered is not None:
            lines.append(f"    a purge would leave this run: {listed.hindered.reason}")
        missing = frozenset(listed.missing)
        lines += [
            f"    {log.partition}: {bytes_text(log.size_bytes)}, {_offsets(log)}{'; '.join(log.reasons)}"
            f"{_gone_text(log, missing)}"
            for log in logs[:most]
        ]
        if most is not None and len(logs) > most:
            lines.append(f"    and {count_text(len(logs) - most, 'log')} more (-v lists them)")
        lines += [f"    {_moved_text(run, entry)}" for entry in run.moved[:most]]
        if most is not None and len(run.moved) > most:
            lines.append(f"    and {len(run.moved) - most:,} more moved here (-v lists them)")
        lines += _other_lines(run)
        if listed.problems is not None and not listed.is_damaged:
            lines.append("    verified: everything is there")
        return lines


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeReport:
    """What was purged, or would be.

    Attributes:
        signal_exit_code: of a signal that has ended the purge, None without one.
    """

    dry_run: bool
    log_dirs: tuple[LogDirPurge, ...]
    signal_exit_code: int | None = None

    @property
    def exit_code(self) -> int:
        """That of a signal if one has ended it, 4 if a chosen run is still there, else 0."""
        if self.signal_exit_code is not None:
            return self.signal_exit_code
        is_left = any(purged.problem for log_dir in self.log_dirs for purged in log_dir.runs)
        return EXIT_PARTIAL if is_left else EXIT_DONE

    @property
    def run_count(self) -> int:
        """Runs that are gone, or would be, of all log dirs."""
        return sum(purged.problem is None for log_dir in self.log_dirs for purged in log_dir.runs)

    @property
    def freed_bytes(self) -> int:
        """Bytes on disk, of all log dirs."""
        return sum(purged.freed_bytes for log_dir in self.log_dirs for purged in log_dir.runs)

    def to_json(self) -> str:
        """Return the report as one JSON document."""
        return _json(
            {
                "exitCode": self.exit_code,
                "dryRun": self.dry_run,
                "freedBytes": self.freed_bytes,
                "logDirs": [
                    {
                        "logDir": log_dir.log_dir,
                        "runs": [
                            _run_json(purged.run)
                            | {
                                "status": "left" if purged.problem else "purged",
                                "files": purged.file_count,
                                "freedBytes": purged.freed_bytes,
                                "rule": purged.rule,
                                "problem": purged.problem,
                            }
                            for purged in log_dir.runs
                        ],
                    }
                    for log_dir in self.log_dirs
                ],
            }
        )

    def to_text(self, verbosity: int = 0) -> str:
        """Return the report for people, problems first.

        Args:
            verbosity: -1: problems alone; 1: each run.
        """
        left = [one for log_dir in self.log_dirs for one in log_dir.runs if one.problem is not None]
        lines = [f"LEFT {one.run.path}: {one.problem}" for one in left]
        if verbosity < 0:
            return _text(lines)
        for log_dir in self.log_dirs:
            gone = [one for one in log_dir.runs if one.problem is None]
            for one in gone if verbosity > 0 else ():
                lines.append(f"{one.run.path}: {self._amount([one])}")
                lines += [f"    {_moved_text(one.run, entry)}" for entry in one.run.moved]
            if gone:
                lines.append(f"{log_dir.log_dir}: {count_text(len(gone), 'run')}, {self._amount(gone)}")
        if not any(log_dir.runs for log_dir in self.log_dirs):
            lines.append("nothing to purge")
        if self.dry_run:
            lines.append("Nothing was removed (dry run).")
        return _text(lines)

    def _amount(self, purged: list[PurgedRun]) -> str:
        word = "to be purged" if self.dry_run else "purged"
        files = count_text(sum(one.file_count for one in purged), "file")
        return f"{files} {word}, {bytes_text(sum(one.freed_bytes for one in purged))} freed"


def _damages(listed: ListedRun, *, most: int | None) -> list[str]:
    """Return what is wrong with a run as text: what is the same of several files once."""
    most_named = None if most is None else _MOST_NAMED
    damages: list[str] = []
    if listed.unnamed:
        count, names = count_text(len(listed.unnamed), "part"), listed_text(listed.unnamed, most_named)
        damages.append(
            f"UNKNOWN {count} of logs ({names}): no line of the manifest names them. Either it has lost lines, or a "
            "run was killed before it wrote them, and the log still has these bytes. Remedy: undo --dry-run tells which"
        )
    if listed.problems is None:
        if listed.missing:
            count, names = count_text(len(listed.missing), "file"), listed_text(listed.missing, most_named)
            damages.append(
                f"MISSING {count} of those that were saved here ({names}): removed by hand, or by a purge that was "
                "interrupted. Remedy: purge the run again if that was to be, else look for them"
            )
        return damages
    alike: dict[str, list[str]] = {}
    for problem in listed.problems:
        file, _, what = problem.rpartition(": ")
        alike.setdefault(what, []).append(file)
    return damages + [
        f"damaged: {f'{files[0]}: ' if files[0] else ''}{what}"
        if len(files) == 1
        else f"damaged: {len(files):,} files ({listed_text(files, most_named)}): {what}"
        for what, files in alike.items()
    ]


def _gone_text(log: StoredLog, missing: Collection[str]) -> str:
    count = sum(part.stored in missing for part in log.parts)
    return f"; {count} of {count_text(len(log.parts), 'file')} no longer here" if count else ""


def _run_json(run: QuarantineRun) -> dict[str, Any]:
    return {"run": run.name, "path": run.path, "startedMs": run.started_ms}


def _part_json(part: StoredEntry) -> dict[str, Any]:
    return {
        "file": part.file,
        "stored": part.stored,
        "bytes": part.size_bytes,
        "firstOffset": part.first_offset,
        "lastOffset": part.last_offset,
        "rule": part.rule,
        "reason": part.reason,
    }


def _moved_json(run: QuarantineRun, entry: StoredEntry) -> dict[str, Any]:
    files = run.files_of(entry)
    return {
        "path": entry.path,
        "stored": entry.stored,
        "files": len(files),
        "bytes": sum(file.size_bytes for file in files),
        "rule": entry.rule,
        "reason": entry.reason,
    }


def _moved_text(run: QuarantineRun, entry: StoredEntry) -> str:
    files = run.files_of(entry)
    size_bytes = bytes_text(sum(file.size_bytes for file in files))
    return f"{entry.path}, moved here by a repair ({count_text(len(files), 'file')}, {size_bytes}): {entry.reason}"


def _offsets(log: StoredLog) -> str:
    if log.first_offset is None:
        return ""
    return f"offsets {log.first_offset} {'on' if log.last_offset is None else f'to {log.last_offset}'}, "


def _reasons(entries: Iterable[StoredEntry]) -> dict[str, int]:
    """Return how many entries there are for each reason, the most frequent first."""
    counts = Counter(entry.reason for entry in entries)
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _other_lines(run: QuarantineRun) -> list[str]:
    """Return what was saved besides logs, as text."""
    others = (entry for entry in run.saved if not (entry.is_log or entry.is_moved))
    reasons = list(_reasons(others).items())
    parts = [f"{count:,} x {reason}" for reason, count in reasons[:_MOST_REASONS]]
    if len(reasons) > _MOST_REASONS:
        parts.append(f"{len(reasons) - _MOST_REASONS} more reasons")
    derived_count = len(run.counted) - len(run.saved)
    if derived_count:
        parts.append(count_text(derived_count, "derived file"))
    return [f"    besides: {', '.join(parts)}"] if parts else []


def _when(run: QuarantineRun) -> str:
    return datetime.fromtimestamp(run.started_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _age(age_ms: int) -> str:
    return f"{duration_text(age_ms / 1000)} ago" if age_ms >= 0 else "in the future"


def _text(lines: list[str]) -> str:
    return "\n".join(printable(line) for line in lines)


def _json(document: dict[str, Any]) -> str:
    return json.dumps({"version": 1} | document, indent=2)
