"""The report of a run for people: problems first, then what became of all logs, and what a broker will do.

What is the same in many logs is one line with their number, and what is too long for a screen is counted.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from recovery.engine.loss import amount_text, loss_text, lost_offsets, total_text
from recovery.errors import without_path
from recovery.load.model import Cut
from recovery.logdir.listing import is_of_log
from recovery.logdir.quarantine_place import given_place
from recovery.logdir.undo_command import undo_commands
from recovery.problem_text import problem_texts, shared_remedy
from recovery.quantity import bytes_text, count_text, exact_bytes_text, listed_text, offsets_text
from recovery.watch.phases import PhaseTime

if TYPE_CHECKING:
    from recovery.engine.report import EarlierCut, LogDirReport, PartitionReport, RecoveryReport
    from recovery.problem import Problem

PROBLEMS_ALONE, NORMAL, EACH_PARTITION, EACH_ACTION = -1, 0, 1, 2
"""How much is said: `-q`, without an option, `-v`, `-vv`."""
_MOST_LOGS = 20
"""Logs of one kind of problem that are listed; the others are counted, unless more is asked for."""
_UNFINISHED = ("offline", "interrupted")
_VARIABLE = re.compile(r"(?<![^\s(])(?:\d+(?:,\d{3})*|'[^']*')(?![^\s,.:;)])")
"""What may differ in the same problem of several logs: a number by itself, not a digit in a path; a quoted name."""
_MOST_NAMED = 3
"""Names in a line about several logs."""


def text_lines(report: RecoveryReport, verbosity: int) -> Iterator[str]:
    """Yield the lines of *report*, without line ends; names in them are not escaped."""
    most = None if verbosity >= EACH_PARTITION else _MOST_LOGS
    yield from _problems(report, most)
    if verbosity > PROBLEMS_ALONE:
        yield from _repairs(report, most)
    yield from _notes(report, most, with_info=verbosity > PROBLEMS_ALONE)
    if verbosity <= PROBLEMS_ALONE:
        return
    if verbosity >= EACH_PARTITION:
        for log_dir in report.log_dirs:
            yield from _log_dir_lines(
                log_dir, with_actions=verbosity >= EACH_ACTION, removed=_removed_word(report)
            )
    yield from _what_became_of_all(report)
    yield from _what_brokers_do(report)
    if _is_anything_done(report):
        is_begun = any(log_dir.status == "interrupted" for log_dir in report.log_dirs)
        yield f"{'planned' if report.dry_run else 'begun' if is_begun else 'done'} {report.release}"
    if verbosity >= EACH_PARTITION and report.phases:
        yield f"threads: {', '.join(map(_phase_text, report.phases))}"
    yield from _what_to_type(report)


# -- what went wrong -----------------------------------------------------------------------------------------------


def _problems(report: RecoveryReport, most: int | None) -> Iterator[str]:
    yield from _log_dir_problems(report.log_dirs, most)
    for status in ("failed", "refused"):
        yield from _left_alone([one for one in report.partitions if one.status == status], most)
    cut = [one for one in report.partitions if one.losses]
    cut.sort(key=lambda one: (-lost_offsets(one.losses), -one.truncated_bytes, one.log_dir, one.folder))
    quarantines = {log_dir.log_dir: log_dir.quarantine for log_dir in report.log_dirs}
    for one in cut[:most]:
        yield from _cut_lines(one, _cut_word(report, one).upper(), quarantines.get(one.log_dir))
    for word, rest in _by_cut_word(report, cut[len(cut[:most]) :]).items():
        size_bytes = exact_bytes_text(sum(one.truncated_bytes for one in rest))
        where = "-v lists them" if report.dry_run else "quarantine list --format json has them"
        yield f"{word.upper()} {count_text(len(rest), 'more log')}: {size_bytes} ({where})"
    missing = [(one, hole) for one in report.partitions for hole in one.holes]
    for one, hole in missing[:most]:
        yield f"{'HIDDEN' if hole.is_hidden else 'MISSING'} {_path(one)}: {hole}"
    if rest_count := len(missing) - len(missing[:most]):
        yield f"MISSING in {count_text(rest_count, 'more place')} (verify names them)"
    yield from _earlier(report, most)
    if _is_kept_open_by_choice(report):
        yield from (f"{text}: the same command for all logs does the rest" for text in _not_chosen(report))


def _log_dir_problems(log_dirs: Sequence[LogDirReport], most: int | None) -> Iterator[str]:
    """Yield what is wrong with log dirs themselves: what is the same in several once."""
    same: dict[tuple[str, ...], list[str]] = {}
    for log_dir in log_dirs:
        if told := _log_dir_problem(log_dir):
            same.setdefault(told, []).append(log_dir.log_dir)
    for (word, first, *others), paths in same.items():
        yield f"{word} {', '.join(paths)}: {first}"
        yield from (f"    {text}" for text in others[:most])
        if rest := others[len(others[:most]) :]:
            yield f"    {count_text(len(rest), 'more problem')} (-v lists them)"


def _log_dir_problem(log_dir: LogDirReport) -> tuple[str, ...]:
    """Return what is wrong with a log dir: one word and at least one text, or nothing at all."""
    texts = [without_path(text, log_dir.log_dir) for text in problem_texts(log_dir.problems, log_dir.log_dir)]
    if log_dir.status == "interrupted":
        return "INTERRUPTED", log_dir.error or "", *texts, *_marker_taken(log_dir)
    if log_dir.status == "offline":
        texts = texts or [without_path(log_dir.error or "", log_dir.log_dir)]
        return (
            "OFFLINE",
            *texts,
            *(["what was not reached is as it was"] if log_dir.partitions else []),
            *_marker_taken(log_dir),
        )
    return ("PROBLEM", *texts) if texts else ()


def _marker_taken(log_dir: LogDirReport) -> Iterator[str]:
    """Yield that a log dir, which is not done, was clean and is not: what a broker would do with that."""
    if log_dir.had_clean_shutdown and log_dir.marker is False:
        yield (
            "its clean-shutdown marker is gone until this is finished: a broker that starts before would run recovery "
            "here, and cut without a copy"
        )


def _repairs(report: RecoveryReport, most: int | None) -> Iterator[str]:
    """Yield what was moved away, or would be: the first of those with the same reason, and how many there are."""
    word = "TO BE REPAIRED" if report.dry_run else "REPAIRED"
    for log_dir in report.log_dirs:
        alike: dict[str, list[str]] = {}
        for repair in log_dir.repairs:
            reason = repair.partition(" to quarantine: ")[2]
            alike.setdefault(_VARIABLE.sub("N", reason), []).append(repair)
        for repairs in alike.values():
            shown = repairs if most is None else repairs[:_MOST_NAMED]
            yield from (f"{word} {log_dir.log_dir}: {repair}" for repair in shown)
            if len(repairs) > len(shown):
                yield f"{word} {log_dir.log_dir}: {len(repairs) - len(shown):,} more like these (-v lists them)"


def _left_alone(partitions: Sequence[PartitionReport], most: int | None) -> Iterator[str]:
    """Yield what was refused, or has failed: what is the same in several logs once."""
    groups = _grouped(partitions, lambda one: tuple(_VARIABLE.sub("N", text) for text in _why(one)))
    for _, ones in groups[:most]:
        word = ones[0].status.upper()
        if len(ones) == 1:
            first, *others = _reasons(ones[0])
            yield f"{word} {_path(ones[0])}: {first}"
            yield from (f"    {text}" for text in others)
        else:
            counted = _counted([one.folder for one in ones])
            yield f"{word} {counted} ({_named(ones)}): {_files_of(ones)}{_common_why(ones)}"
            yield from _others(ones, most)
    if rest := groups[len(groups[:most]) :]:
        count = sum(len(ones) for _, ones in rest)
        yield f"{partitions[0].status.upper()} {count_text(count, 'more log')} (-v lists them)"


def _counted(folders: Sequence[str]) -> str:
    """Return "12 logs"; "12 folders" if some are none."""
    return count_text(len(folders), "log" if all(map(is_of_log, folders)) else "folder")


def _files_of(partitions: Sequence[PartitionReport]) -> str:
    """Return the names of the files that the problems of *partitions* are about, to stand before these.

    Nothing if a log has different problems: each has its own files before it.
    """
    return "" if any(map(_has_different_problems, partitions)) else _before(_own_files(partitions))


def _before(names: Collection[str]) -> str:
    """Return *names* to stand before what is said of them."""
    return f"{listed_text(sorted(names), _MOST_NAMED)}: " if names else ""


def _own_files(partitions: Sequence[PartitionReport]) -> list[str]:
    """Return the names of the files that the problems are about; with the log's before it where they differ."""
    files = [_files_in(one, one.problems) for one in partitions]
    if all(names == files[0] for names in files):
        return sorted(files[0])
    return [
        f"{one.folder}/{name}" for one, names in zip(partitions, files, strict=True) for name in sorted(names)
    ]


def _files_in(partition: PartitionReport, problems: Iterable[Problem]) -> set[str]:
    """Return the files that *problems* of a log are about, without the log itself."""
    return {problem.file for problem in problems} - {partition.folder, _path(partition)}


def _has_different_problems(partition: PartitionReport) -> bool:
    return len({problem.detail for problem in partition.problems}) > 1


def _common_why(partitions: Sequence[PartitionReport]) -> str:
    """Return why *partitions* were left alone; where a number or a quoted name differs, all that it is."""
    texts = ["; ".join(_why(one)) for one in partitions]
    of_each = iter([*zip(*map(_VARIABLE.findall, texts), strict=True)])
    return _VARIABLE.sub(lambda _: _any_of(next(of_each)), texts[0])


def _any_of(found: Collection[str]) -> str:
    """Return *found* in words: "3", "0 or 370", "between 0 and 1,200", "'a', 'b' or another"."""
    different = [*dict.fromkeys(found)]
    if all(text[0].isdigit() for text in different):
        different.sort(key=lambda text: int(text.replace(",", "")))
        if len(different) > 2:
            return f"between {different[0]} and {different[-1]}"
    if len(different) > 2:
        return f"{different[0]}, {different[1]} or another"
    return " or ".join(different)


def _reasons(partition: PartitionReport) -> Sequence[str]:
    """Return why a log was left alone, without its own name, which stands before it."""
    texts = (
        [*problem_texts(partition.problems, _path(partition))] or partition.reasons or ["it does not say why"]
    )
    return [
        text.removeprefix(f"{partition.folder}: ").removeprefix(f"{_path(partition)}: ") for text in texts
    ]


def _why(partition: PartitionReport) -> tuple[str, ...]:
    """Return why a log was left alone, in words that are the same for others with the same problem."""
    if partition.problems:  # several files may have the same
        files: dict[str, set[str]] = {}
        details: dict[str, dict[str, None]] = {}
        for problem in partition.problems:
            files.setdefault(problem.detail, set()).update(_files_in(partition, [problem]))
            details.setdefault(shared_remedy(problem, partition.log_dir), {})[problem.detail] = None
        # Where all is the same, the files of several logs stand before it together
        told = {
            detail: f"{_before(names) if len(files) > 1 else ''}{detail}" for detail, names in files.items()
        }
        return tuple(
            f"{'; '.join(told[detail] for detail in alike)}. Remedy: {remedy}"
            for remedy, alike in details.items()
        )
    return tuple(reason.replace(_path(partition), "...") for reason in partition.reasons)


def _cut_lines(partition: PartitionReport, verb: str, quarantine: str | None) -> Iterator[str]:
    cuts = partition.losses
    yield f"{verb} {_path(partition)}: {loss_text(cuts)}"
    yield from _each_cut(cuts)
    if partition.quarantined and not partition.is_to_be_finished and quarantine is not None:
        yield f"    kept in {quarantine}"


def _earlier(report: RecoveryReport, most: int | None) -> Iterator[str]:
    """Yield what earlier runs have cut, or found missing, and no run has reported: what is not known first."""
    losses = [(log_dir.log_dir, one) for log_dir in report.log_dirs for one in log_dir.earlier_cuts]
    losses.sort(key=lambda it: (it[1].partition != "", -lost_offsets(it[1].cuts), -it[1].truncated_bytes))
    for log_dir, one in losses[:most]:
        yield from _earlier_lines(log_dir, one)
    if rest := losses[len(losses[:most]) :]:
        size_bytes = exact_bytes_text(sum(one.truncated_bytes for _, one in rest))
        where = "-v lists them" if report.dry_run else "quarantine list --format json has them"
        yield f"EARLIER {count_text(len(rest), 'more loss', 'more losses')}: {size_bytes} ({where})"


def _earlier_lines(log_dir: str, loss: EarlierCut) -> Iterator[str]:
    if not (loss.partition and loss.cuts):
        yield f"EARLIER {os.path.join(log_dir, str(loss)) if loss.partition else f'{log_dir}: {loss}'}"
        return
    path = os.path.join(log_dir, loss.partition)
    yield f"EARLIER {path}: cut by an earlier run, at {loss.time_text}: {loss_text(loss.cuts)}"
    yield from _each_cut(loss.cuts)
    yield from (f"    {hole}" for hole in loss.holes)
    if loss.kept_text:
        yield f"    {loss.kept_text}"


def _each_cut(cuts: Sequence[Cut]) -> Iterator[str]:
    for cut in cuts:
        amount = f"{amount_text((cut,))}: " if len(cuts) > 1 else ""
        yield f"    {_where(cut)}: {amount}{cut.reason}"


def _where(cut: Cut) -> str:
    is_whole = cut.position == 0 and not cut.is_scattered
    return f"{cut.file}, {'the whole segment' if is_whole else f'from position {cut.position:,} on'}"


def _notes(report: RecoveryReport, most: int | None, *, with_info: bool) -> Iterator[str]:
    """Yield what the operator should know although nothing is lost: once, however many logs it is about."""
    logs_of: dict[str, list[PartitionReport]] = {}
    for one in report.partitions:
        for text in one.warnings:
            logs_of.setdefault(text, []).append(one)
    shared = {text: logs for text, logs in logs_of.items() if len(logs) > 1}
    for text, logs in shared.items():
        yield f"NOTE {len(logs):,} logs ({_named(logs)}): {text}"
        yield from _others(logs, most)
    for one in report.partitions:
        own = [text for text in one.warnings if text not in shared]
        shown = own if most is None else own[:_MOST_NAMED]
        yield from (f"NOTE {_path(one)}: {text}" for text in shown)
        if len(own) > len(shown):
            yield f"NOTE {_path(one)}: {len(own) - len(shown):,} more like these (--format json has them)"
    yield from _log_dir_notes(report.log_dirs, with_info=with_info)
    yield from (f"NOTE {note.text}" for note in report.notes if with_info or note.is_told_always)


def _log_dir_notes(log_dirs: Sequence[LogDirReport], *, with_info: bool) -> Iterator[str]:
    """Yield what there is to know of log dirs: what is the same in several once."""
    same: dict[str, list[str]] = {}
    for log_dir in log_dirs:
        for note in log_dir.all_notes:
            if with_info or note.is_told_always:
                same.setdefault(note.text.removeprefix(f"{log_dir.log_dir}: "), []).append(log_dir.log_dir)
    yield from (f"NOTE {', '.join(paths)}: {text}" for text, paths in same.items())


def _grouped(
    partitions: Sequence[PartitionReport], key: Callable[[PartitionReport], tuple[str, ...]]
) -> list[tuple[tuple[str, ...], list[PartitionReport]]]:
    """Return *partitions* by *key*, the largest groups first."""
    groups: dict[tuple[str, ...], list[PartitionReport]] = {}
    for one in partitions:
        groups.setdefault(key(one), []).append(one)
    return sorted(groups.items(), key=lambda item: -len(item[1]))


def _named(partitions: Sequence[PartitionReport]) -> str:
    return listed_text([*map(_path, partitions)], _MOST_NAMED)


def _others(partitions: Sequence[PartitionReport], most: int | None) -> Iterator[str]:
    """Yield a line for each of *partitions*, if all are to be told and a line about them has not named all."""
    if most is None and len(_own_files(partitions)) > 1:
        yield from (f"    {_path(one)}: {', '.join(_own_files([one]))}" for one in partitions)
    elif most is None:
        yield from (f"    {_path(one)}" for one in partitions[_MOST_NAMED:])


def _path(partition: PartitionReport) -> str:
    return os.path.join(partition.log_dir, partition.folder)


# -- each partition ------------------------------------------------------------------------------------------------


def _log_dir_lines(log_dir: LogDirReport, *, with_actions: bool, removed: str) -> Iterator[str]:
    yield f"{log_dir.log_dir}: {_counted([one.folder for one in log_dir.partitions])}"
    for partition in log_dir.partitions:
        yield f"  {_partition_line(partition, removed=removed)}"
        for cut in partition.cuts:
            if cut.is_preallocated:
                yield f"    {_where(cut)}: {exact_bytes_text(cut.size_bytes)}: {cut.reason}"
        if with_actions:
            yield from (f"    save {save}" for save in partition.to_quarantine)
            yield from (f"    {action}" for action in partition.actions)
    yield from (f"  {folder}: left alone" for folder in log_dir.passed_over)
    if with_actions:
        yield from (f"  {action}" for action in log_dir.actions)


def _partition_line(partition: PartitionReport, *, removed: str) -> str:
    line = f"{partition.folder}: {partition.status}"
    if partition.log_end_offset >= 0:
        line += f", {offsets_text(partition.log_start_offset, partition.log_end_offset)}"
    if partition.status in ("refused", "failed"):
        pass  # where it ended says more than what was read before
    elif partition.recovered_segments > partition.segment_count:
        read = count_text(partition.recovered_segments, "segment")
        line += f", {read} read, {partition.segment_count:,} left"
    elif partition.recovered_segments:
        segments = count_text(partition.segment_count, "segment")
        line += f", {partition.recovered_segments:,} of {segments} read"
    if partition.pending_deletion_count:
        files = count_text(partition.pending_deletion_count, ".deleted file")
        line += f", {files} ({exact_bytes_text(partition.pending_deletion_bytes)}) {removed}"
    return line


def _phase_text(phase: PhaseTime) -> str:
    return f"{phase.phase} {phase.thread_ms / 1000:.1f} s (CPU {phase.cpu_ms / 1000:.1f} s)"


# -- what became of all, and what comes next -------------------------------------------------------------------------


def _what_became_of_all(report: RecoveryReport) -> Iterator[str]:
    """Yield how many logs ended in each way, and what was cut of all of them."""
    parts = [*_counts(report)]
    pending = sum(one.pending_deletion_bytes for one in report.partitions)
    if pending:
        count = sum(one.pending_deletion_count for one in report.partitions)
        parts.append(f"{count_text(count, '.deleted file')} ({bytes_text(pending)}) {_removed_word(report)}")
    if not report.partitions:
        parts = [_why_no_log(report)]
    ended = "; dry run, nothing was changed" if report.dry_run else ""
    yield f"{', '.join(parts)}, in {report.duration_ms / 1000:.1f} s{ended}"
    for word, ones in _by_cut_word(report, [one for one in report.partitions if one.losses]).items():
        yield f"{word}: {total_text([one.losses for one in ones])}"


def _why_no_log(report: RecoveryReport) -> str:
    if report.signal_exit_code is not None:
        return "interrupted before any log was recovered"
    is_offline = any(log_dir.status == "offline" for log_dir in report.log_dirs)
    return "no log was looked at" if is_offline else "no log was found"


def _cut_word(report: RecoveryReport, partition: PartitionReport) -> str:
    """Return whether a log was cut: before a dry run a run may have cut it that was interrupted."""
    is_cut = partition.quarantined and not partition.is_to_be_finished
    return "to be cut" if report.dry_run and not is_cut else "cut"


def _by_cut_word(
    report: RecoveryReport, partitions: Iterable[PartitionReport]
) -> dict[str, list[PartitionReport]]:
    words: dict[str, list[PartitionReport]] = {}
    for one in partitions:
        words.setdefault(_cut_word(report, one), []).append(one)
    return words


def _removed_word(report: RecoveryReport) -> str:
    done = "moved to quarantine" if report.keep_deleted else "removed"
    return f"to be {done}" if report.dry_run else done


def _counts(report: RecoveryReport) -> Iterator[str]:
    """Yield how many logs ended in each way, and of those that are sound what was read."""
    for status in ("recovered", "unchanged", "truncated", "refused", "failed"):
        ones = [one for one in report.partitions if one.status == status]
        is_sound = status in ("recovered", "unchanged")
        read_bytes = sum(one.scanned_bytes for one in ones) if is_sound else 0
        read = f" ({bytes_text(read_bytes)} read)" if read_bytes else ""
        words = _by_cut_word(report, ones) if status == "truncated" else {status: ones}
        yield from (f"{len(ended):,} {word}{read}" for word, ended in words.items() if ended)


def _what_brokers_do(report: RecoveryReport) -> Iterator[str]:
    outcomes: dict[str, list[str]] = {}
    if not _is_kept_open_by_choice(report):
        yield from _not_chosen(report)
    for log_dir in report.log_dirs:
        if log_dir.status not in ("offline", "interrupted"):
            outcomes.setdefault(_outcome(log_dir), []).append(log_dir.log_dir)
        for where, needed_bytes, free_bytes in (
            ("there", log_dir.needed_bytes, log_dir.free_bytes),
            ("in its quarantine", log_dir.quarantine_needed_bytes, log_dir.quarantine_free_bytes),
        ):
            is_open = report.dry_run or log_dir.status in ("partial", *_UNFINISHED)
            if is_open and needed_bytes > (0 if report.dry_run else free_bytes):
                needed, free = bytes_text(needed_bytes), bytes_text(free_bytes)
                if needed == free:
                    needed, free = exact_bytes_text(needed_bytes), exact_bytes_text(free_bytes)
                yield f"{log_dir.log_dir}: at most {needed} are needed {where}, and {free} are free"
    for outcome, log_dirs in outcomes.items():
        yield f"{', '.join(log_dirs)}: {outcome}"


def _not_chosen(report: RecoveryReport) -> Iterator[str]:
    if left := [name for log_dir in report.log_dirs for name in log_dir.not_chosen]:
        was = "it was" if len(left) == 1 else "they were"
        yield f"{_counted(left)} not chosen: not checked, and left as {was}"


def _is_kept_open_by_choice(report: RecoveryReport) -> bool:
    """Return whether a log dir is not handed over since logs were not chosen: a reason for exit code 4."""
    return any(log_dir.status == "partial" and log_dir.not_chosen for log_dir in report.log_dirs)


def _outcome(log_dir: LogDirReport) -> str:
    if log_dir.problems:
        return "a broker does not start with it, or takes it offline: see PROBLEM"
    if log_dir.marker and any(map(_may_halt_a_broker, log_dir.partitions)):
        return "the clean-shutdown marker stays, but a broker may halt on what is refused"
    if log_dir.marker:
        return "a broker will skip recovery here"
    return "no clean-shutdown marker: a broker will run recovery here"


def _is_anything_done(report: RecoveryReport) -> bool:
    """Return whether the bytes of any log, or none for want of logs, are those of a release."""
    if all(log_dir.status == "offline" for log_dir in report.log_dirs):
        return False
    done = [one.status not in ("refused", "failed") for one in report.partitions]
    return any(done) or not done


def _may_halt_a_broker(partition: PartitionReport) -> bool:
    """Return whether a log was left for what it is, and not only because this machine lacked something."""
    of_the_machine = bool(partition.problems) and all(
        problem.rule in ("space", "memory") for problem in partition.problems
    )
    return partition.status in ("refused", "failed") and not of_the_machine


def _what_to_type(report: RecoveryReport) -> Iterator[str]:
    repairable = sum(problem.repair is not None for problem in report.problems)
    if repairable and not report.repair:
        all_problems = count_text(len(report.problems), "problem")
        yield f"{repairable:,} of {all_problems} can be repaired: recover --repair moves files away"
    kept, handed_over = _kept_runs(report)
    for command in undo_commands(kept, "puts it back", handed_over=handed_over):
        yield f"what was cut or replaced is kept; {command}"
    unfinished = [one for one in report.log_dirs if one.status in _UNFINISHED]
    if not report.dry_run and any(one.is_changed for log_dir in unfinished for one in log_dir.partitions):
        of = ", ".join(one.log_dir for one in unfinished)
        yield f"{of}: what was cut or replaced is kept; undo puts it back once the same command has finished"
    if report.signal_exit_code is not None and not report.dry_run:
        yield "interrupted: the same command goes on where this run ended"


def _kept_runs(report: RecoveryReport) -> tuple[dict[str, list[str]], set[str]]:
    """Return by log dir the folders of runs where this one or unreported ones kept something, the newest first.

    An `undo` refuses what a recovery has not finished.

    Returns:
        They, and those of them that changed no partition.
    """
    kept: dict[str, list[str]] = {}
    handed_over: set[str] = set()
    for log_dir in report.log_dirs:
        if log_dir.is_begun if report.dry_run else log_dir.status in _UNFINISHED:
            continue
        earlier = sorted(log_dir.earlier_cuts, key=lambda cut: cut.time_ms, reverse=True)
        folders = [cut.kept_in for cut in earlier if cut.kept_in]
        if not report.dry_run and log_dir.quarantine:
            if log_dir.repairs or any(one.is_changed for one in log_dir.partitions):
                folders.insert(0, log_dir.quarantine)
            elif folders and _is_elsewhere(log_dir.log_dir, log_dir.quarantine, folders[0]):
                folders.insert(0, log_dir.quarantine)  # `undo` does not find it with the one before
                handed_over.add(log_dir.quarantine)
        kept[log_dir.log_dir] = list(dict.fromkeys(folders))
    return kept, handed_over


def _is_elsewhere(log_dir: str, one: str, other: str) -> bool:
    return given_place(log_dir, one) != given_place(log_dir, other)
