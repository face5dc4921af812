"""`archive restore`: archived partitions back in the log dirs of a stopped broker.

    find -> plan -> fetch into the stages -> recover the stages -> move in

The stage is a log dir of its own in each log dir (`stage`), so a broker that is started too early sees nothing of a
partition, or all of it.
"""

from __future__ import annotations

import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial

from recovery.archive.copy.account import CopyAccounts
from recovery.archive.layouts.aiven_cipher import load_aiven_keys
from recovery.archive.layouts.layouts import layout_of
from recovery.archive.records.broker_view import BrokerView
from recovery.archive.remote.replicas import Replicas
from recovery.archive.restore.earlier_run import run_that_made
from recovery.archive.restore.log_dir_restore import LogDirRestore
from recovery.archive.restore.options import RestoreOptions
from recovery.archive.restore.plan import PlannedRestore, Planner, refused
from recovery.archive.restore.progress import RestoreProgress
from recovery.archive.restore.report import (
    FinishedRestore,
    RestoredLogDir,
    RestoredPartition,
    RestoreReport,
)
from recovery.archive.restore.report_text import FINISHED_TEXT
from recovery.archive.restore.room import within_room
from recovery.archive.restore.served import as_served
from recovery.archive.restore.source_search import find_partitions
from recovery.archive.restore.stage import staged_bytes
from recovery.archive.restore.target import Target, TargetDir, unwritable
from recovery.archive.restore.target_retention import TargetRetention
from recovery.archive.restore.unfinished import outdated
from recovery.archive.stores.store import Store
from recovery.archive.stores.stores import open_store
from recovery.archive.tiering.partition_state import read_tiered_log
from recovery.broker.topic_configs import without_effect
from recovery.engine.api import broker_facts
from recovery.engine.handoff import has_marker
from recovery.engine.report import PartitionReport
from recovery.engine.run import Engine
from recovery.errors import InterruptedRecoveryError, UnsafeError, UsageError, error_text, exit_code_of
from recovery.load.model import LogSettings
from recovery.logdir.dirs import find_broker_dirs
from recovery.logdir.listing import is_log_name
from recovery.logdir.lock import LogDirLocks
from recovery.quantity import count_text
from recovery.read.file_system import is_read_only, is_there
from recovery.read.rate_limit import RateLimit
from recovery.stop_request import StopRequest
from recovery.watch.events import Observer
from recovery.write.move_in import (
    STAGE_FOLDER,
    finish_move_in,
    folders_in_place,
    folders_to_move,
    has_intent,
    lost_run,
    remove_stage,
)
from recovery.write.quarantine import Quarantine
from recovery.write.undo_notice import refuse_unfinished_recovery, refuse_unfinished_undo
from segfmt.kafka_uuid import format_uuid, read_uuid


def restore(
    options: RestoreOptions, *, observers: Iterable[Observer] = (), stop: StopRequest | None = None
) -> RestoreReport:
    """Restore archived partitions into the log dirs of a stopped broker.

    If *stop* is asked for, the report tells what is done by then; started again, it goes on.

    Args:
        options: what, and where to.
        observers: notified of the recovery of what was fetched.
        stop: lets another thread end the run at the next safe place.

    Raises:
        UsageError: settings that Kafka does not accept, no log dir, an archive that is none.
        LogDirLockedError: a broker or another recovery is running; nothing was changed.
        UnsafeError: a folder is not a broker's, or an undo or a recovery was interrupted; nothing was changed.
        JournalError: a file has the name of a journal and is not one; nothing was changed.
        OSError: the archive cannot be listed.
    """
    options.refuse_wrong_values()
    broker = options.broker
    dirs = find_broker_dirs(
        None if options.log_dirs is None else list(options.log_dirs),
        broker.config or {},
        quarantine_dir=broker.quarantine_dir,
    )
    with LogDirLocks(dirs.locked_dirs, dry_run=broker.dry_run) as locks:
        offline = dict(locks.offline)
        if broker.dry_run:
            offline |= unwritable(one for one in dirs.log_dirs if one not in offline)
        facts = broker_facts(
            dirs,
            replace(broker, force=True),  # checkpoints are saved whether there is a marker or not
            is_place_configured=options.log_dirs is None,
            offline=offline.keys(),
        )
        for log_dir, problems in facts.problems.items():
            for problem in problems:
                raise UnsafeError(f"{log_dir}/{problem}. Nothing was changed")
        for log_dir in dirs.log_dirs:
            if log_dir not in offline:
                refuse_unfinished_undo(log_dir, dirs.quarantine_dir)
                if not has_intent(log_dir):  # that is finished before anything else
                    refuse_unfinished_recovery(log_dir, dirs.quarantine_dir)
        target = Target(dirs, facts, offline)
        run = _Run(options, target, observers, StopRequest() if stop is None else stop)
        return run.run()


class _Run:
    def __init__(
        self, options: RestoreOptions, target: Target, observers: Iterable[Observer], stop: StopRequest
    ) -> None:
        self._options = options
        self._target = target
        self._progress = RestoreProgress(observers)
        self._stop = stop
        self._limit = RateLimit(options.broker.max_bytes_per_second, check=stop.check)
        self._thread_count = target.facts.thread_count
        self._quarantines: dict[str, str] = {}
        self._finished: dict[str, FinishedRestore] = {}
        self._failures: dict[str, OSError] = {}
        self._warnings: list[str] = list(options.broker.config_notes)
        self._results: list[RestoredPartition] = []
        self._in_part: list[str] = []
        self._goes_on = False
        self._staged_bytes: dict[str, int] = {}  # when what is usable was measured; see `staged_bytes`
        self._started_ms = time.time_ns() // 1_000_000
        self._now_ms = options.broker.now_ms or self._started_ms

    def run(self) -> RestoreReport:
        self._progress.start(
            [target.log_dir for target in self._target.log_dirs],
            cordoned=[target.log_dir for target in self._target.log_dirs if target.is_cordoned],
            threads_per_dir=self._thread_count,
            dry_run=self._options.broker.dry_run,
        )
        try:
            report = self._run()
        except BaseException as error:
            self._progress.finish(exit_code_of(error))
            raise
        self._progress.finish(report.exit_code)
        return report

    def _run(self) -> RestoreReport:
        self._finish_earlier()
        planned: Sequence[PlannedRestore] = ()
        needed: Mapping[str, int] = {}
        signal_number = None
        try:
            planned, refusals = self._plan()
            planned, without_room, needed = within_room(planned, self._target, self._staged_bytes)
            self._results += [*refusals, *without_room]
            for left in self._results:
                self._progress.refuse(left)
            if self._options.broker.dry_run:
                self._foretell(planned)
            else:
                self._restore(planned)
                self._clear_stages()
        except InterruptedRecoveryError as error:
            signal_number = error.signal_number
            self._results += self._not_reached(planned)
        return RestoreReport(
            dry_run=self._options.broker.dry_run,
            log_dirs=[
                RestoredLogDir(
                    log_dir=target.log_dir,
                    is_cordoned=target.is_cordoned,
                    needed_bytes=needed.get(target.log_dir, 0),
                    usable_bytes=target.usable_bytes,
                    finished=self._finished.get(target.log_dir),
                    earlier=self._earlier(target.log_dir),
                    quarantine=self._quarantines.get(target.log_dir),
                    error=self._error_of(target),
                )
                for target in self._target.log_dirs
            ],
            partitions=sorted(self._results, key=lambda one: (one.topic, one.partition)),
            warnings=self._warnings,
            in_part=self._in_part,
            unclean_dirs=[
                target.log_dir for target in self._target.log_dirs if self._is_unclean(target.log_dir)
            ],
            signal_number=signal_number,
        )

    def _earlier(self, log_dir: str) -> str | None:
        """Return the run of an interrupted restore that had brought what is there already, None if there was none."""
        there = {
            f"{one.topic}-{one.partition}"
            for one in self._results
            if one.status == "unchanged" and one.log_dir == log_dir
        }
        if not (self._goes_on and there):
            return None
        with suppress(OSError):
            return run_that_made(log_dir, self._target.dirs.quarantine_dir, there)
        return None

    def _is_unclean(self, log_dir: str) -> bool:
        """Return whether logs that were in *log_dir* before are yet to be recovered."""
        restored = {
            f"{one.topic}-{one.partition}" for one in self._results if one.status in ("restored", "unchanged")
        }
        with suppress(OSError):
            return not has_marker(log_dir) and any(
                is_log_name(name) and name not in restored for name in os.listdir(log_dir)
            )
        return False

    def _foretell(self, planned: Sequence[PlannedRestore]) -> None:
        """Take in what a run would do that writes."""
        for one in planned:
            self._results.append(one.result())
            self._progress.count_aux(one.result())
        there = (one for one in self._results if one.status in ("restored", "unchanged"))
        counts = Counter(one.log_dir for one in there if one.log_dir is not None)
        for log_dir, count in sorted(counts.items()):
            with suppress(OSError):
                if is_read_only(log_dir):
                    self._warnings.append(
                        f"{log_dir}: mounted read-only, so a restore now would refuse "
                        f"{count_text(count, 'partition')} there. Remedy: mount it writable first"
                    )

    def _not_reached(self, planned: Sequence[PlannedRestore]) -> list[RestoredPartition]:
        """Return the reports on partitions that an interrupted run has not moved in."""
        done = {(one.topic, one.partition) for one in self._results}
        reason = "interrupted before it was moved in. Remedy: start again, which goes on"
        return [
            replace(refused(one.source, one.mode, [reason]), status="failed", log_dir=one.log_dir)
            for one in planned
            if (one.source.where.topic, one.source.where.partition) not in done
        ]

    def _error_of(self, target: TargetDir) -> str | None:
        error = self._failures.get(target.log_dir, target.error)
        return None if error is None else error_text(error)

    def _live_dirs(self) -> list[str]:
        return [target.log_dir for target in self._target.log_dirs if target.is_live]

    def _finish_earlier(self) -> None:
        """Move in what an interrupted run had fetched, recovered and begun to move."""
        for log_dir in self._live_dirs():
            try:
                self._goes_on |= is_there(os.path.join(log_dir, STAGE_FOLDER))
                self._staged_bytes[log_dir] = staged_bytes(log_dir)
                if has_intent(log_dir):
                    self._finish_move_in(log_dir)
                elif self._options.broker.restart and not self._options.broker.dry_run:
                    remove_stage(log_dir)
            except OSError as error:
                self._failures[log_dir] = error

    def _finish_move_in(self, log_dir: str) -> None:
        given_up = outdated(self._target, log_dir)
        self._warnings += [
            f"{log_dir}: what an interrupted restore has made of {folder} is given up: {reason}"
            for folder, reason in given_up.items()
        ]
        lost = lost_run(log_dir)
        if lost is not None:
            self._warnings.append(
                f"{lost}: gone, with what the interrupted restore had saved there: undo takes back what comes now alone"
            )
        if self._options.broker.dry_run:
            to_come = [folder for folder in folders_to_move(log_dir) if folder not in given_up]
            self._target.count_in(log_dir, to_come)
            folders = ", ".join(sorted({*folders_in_place(log_dir), *to_come}))
            self._warnings.append(
                f"{log_dir}: an interrupted restore would be finished first, which moves in {folders or 'nothing more'}"
            )
            return
        done = finish_move_in(log_dir, partial(self._quarantine, log_dir), given_up)
        self._finished[log_dir] = FinishedRestore(partitions=done.folders, quarantine=done.run)
        if done.folders:
            # Whatever ends this run before its report, these folders have changed.
            self._progress.remark(f"{FINISHED_TEXT}: {', '.join(done.folders)}", log_dir=log_dir)

    def _clear_stages(self) -> None:
        """Remove the stages. One from which partitions are still to be moved stays, and is finished by the next run."""
        for log_dir in self._live_dirs():
            try:
                if not has_intent(log_dir):
                    remove_stage(log_dir)
            except OSError as error:
                if log_dir not in self._failures:
                    self._warnings.append(
                        f"{error_text(error)}: the stage is left, which the next restore removes"
                    )

    def _note_quarantine(self, log_dir: str, run: str | None) -> None:
        if run is not None:
            self._quarantines[log_dir] = run

    def _quarantine(
        self, log_dir: str, run: str | None, quarantine_dir: str | None, on_created: Callable[[str], None]
    ) -> Quarantine:
        root = self._target.dirs.quarantine_dir if run is None else quarantine_dir
        return Quarantine(log_dir, root=root, run=run, started_ms=self._started_ms, on_created=on_created)

    # -- before a byte is written ------------------------------------------------------------------------------

    def _plan(self) -> tuple[list[PlannedRestore], list[RestoredPartition]]:
        options, archive = self._options, self._options.archive
        store = archive.open()
        layout = layout_of(store, archive.layout, load_aiven_keys(dict(options.aiven_keys)))
        is_chosen = archive.choice()
        overrides = options.broker.topic_configs or {}
        retention_of = TargetRetention(self._target, overrides)
        planner = Planner(store, self._target, options, retention_of, self._now_ms)
        planned: list[PlannedRestore] = []
        results: list[RestoredPartition] = []
        archived_ids: dict[str, str] = {}
        with ExitStack() as stack:
            stores = [open_store(url) for url in archive.metadata]
            view = stack.enter_context(BrokerView(stores)) if stores else None
            if view is not None:
                view.require_log_dirs(is_tiered=layout.is_tiered)
            accounts = None if layout.is_tiered else CopyAccounts(store)
            for source in find_partitions(store, layout, is_chosen, view, accounts, planner.wanted_id):
                self._stop.check()
                archived_ids[source.topic_id] = source.where.topic
                one = planner.plan(as_served(store, source) if options.is_aux else source)
                if isinstance(one, PlannedRestore):
                    planned.append(replace(one, warnings=(*one.warnings, *self._given_up(one, stores))))
                else:
                    results.append(one)
            if accounts is not None:
                self._warnings += [
                    f"{text}: whether the copy is whole is not known" for text in accounts.unread
                ]
            if accounts is not None and not archive.partitions:
                self._in_part += [
                    f"{store.url}/{prefix}: archive copy has not copied all of this log dir, so partitions may be "
                    "missing. Remedy: copy it again; if it is gone for good, or was named by mistake, the rest is all "
                    "there is"
                    for prefix in accounts.log_dirs_in_part()
                ]
                for text in self._in_part:
                    self._progress.remark(text, "error")
        is_chosen.refuse_missing(store.url)
        found = {one.source.where.topic for one in planned} | {one.topic for one in results}
        _refuse_wrong_ids(options.topic_ids, found, archived_ids, store.url)
        self._warnings += without_effect(overrides, found, where=f"among what is chosen of {store.url}")
        if not planned and not results:
            raise UsageError(
                f"{store.url}: no partition was found there. Remedy: name the folder above those of the partitions, or "
                "its layout (--layout)"
            )
        return planned, results

    def _given_up(self, planned: PlannedRestore, stores: Sequence[Store]) -> list[str]:
        """Return what a replica in the log dirs of brokers has behind the archive's end."""
        last = planned.source.segments[-1] if planned.source.segments else None
        if not stores or last is None or last.end_offset is None:
            return []
        replica = Replicas(stores).of(planned.source.where)
        log = None if replica is None else read_tiered_log(replica, planned.source.where)[0]
        if replica is None or log is None or log.log_end_offset <= last.end_offset + 1:
            return []
        return [
            f"offsets {last.end_offset + 1} to {log.log_end_offset - 1} are not archived, and are given up: "
            f"{replica.url} has them"
        ]

    # -- at work -----------------------------------------------------------------------------------------------

    def _restore(self, planned: Sequence[PlannedRestore]) -> None:
        place = self._target.dirs.quarantine_dir
        if place is not None and planned:  # one that cannot be made is known before a byte is fetched
            os.makedirs(place, exist_ok=True)
        by_dir: dict[str, list[PlannedRestore]] = defaultdict(list)
        for one in planned:
            by_dir[one.log_dir].append(one)
        restores = [
            LogDirRestore(
                log_dir,
                partitions,
                producers_since_ms=self._now_ms - self._target.facts.producer_id_expiration_ms,
                progress=self._progress,
                stop=self._stop,
            )
            for log_dir, partitions in by_dir.items()
        ]
        for restore in restores:
            if restore.log_dir in self._failures:
                restore.fail(self._failures[restore.log_dir])
            restore.open()
        self._fetch(restores)
        reports = self._recover(restores)
        for restore in restores:
            moved, run = restore.move_in(
                reports.get(restore.log_dir, {}),
                partial(self._quarantine, restore.log_dir),
                needs_start_line=self._needs_start_line,
            )
            self._results += moved
            self._note_quarantine(restore.log_dir, run)
            if restore.failure is not None:
                self._failures[restore.log_dir] = restore.failure

    def _fetch(self, restores: Sequence[LogDirRestore]) -> None:
        """Fetch into all log dirs side by side, so that none waits for a slow one."""
        store = self._options.archive.open()
        with ThreadPoolExecutor(max(len(restores), 1), "archive-restore-log-dir") as pool:
            for result in [
                pool.submit(one.fetch, store, self._limit, self._thread_count) for one in restores
            ]:
                result.result()

    def _recover(self, restores: Sequence[LogDirRestore]) -> dict[str, dict[str, PartitionReport]]:
        """Recover the staged logs; return the reports by log dir and folder."""
        staged: dict[str, LogDirRestore] = {}
        for one in restores:
            with one.may_fail():
                full = [planned for planned in one.sound if planned.mode == "full"]
                if full:
                    one.stage.write_checkpoints(full)
                    staged[one.stage.staged_log_dir] = one
        if not staged:
            return {}
        facts = self._target.facts
        # Of the others all is local now. With a remote part, its leader epochs, producers and aborted transactions stay
        tiered = {
            planned.source.where.topic
            for one in staged.values()
            for planned in one.sound
            if planned.remote_start_offset is not None
        }

        def settings_of(topic: str) -> LogSettings:
            return replace(
                facts.settings_of(topic), remote_log_enabled=topic in tiered, remote_log_known=True
            )

        options = replace(
            self._options.broker,
            force=True,
            restart=True,
            quarantine_dir=None,
            handoff="clean-shutdown",
            max_bytes_per_second=None,  # of the archive
        )
        observer = self._progress.of_engine({path: one.log_dir for path, one in staged.items()})
        with LogDirLocks(staged) as locks:
            report = Engine(
                staged,
                options.of_a_log_dir(),
                replace(facts, settings_of=settings_of, problems={}, remarks=()),
                locks,
                observers=[observer],
                stop=self._stop,
            ).run()
        if report.signal_exit_code is not None:
            raise InterruptedRecoveryError(report.signal_exit_code - 128)
        for log_dir in report.log_dirs:
            if log_dir.status == "offline":
                staged[log_dir.log_dir].fail(OSError(log_dir.error))
        return {
            staged[log_dir.log_dir].log_dir: {one.folder: one for one in log_dir.partitions}
            for log_dir in report.log_dirs
        }

    def _needs_start_line(self, planned: PlannedRestore, result: RestoredPartition) -> bool:
        """Whether a broker needs the checkpoint to know where the log begins. Kafka: UnifiedLog, LogManager."""
        is_tiered = self._target.facts.settings_of(planned.source.where.topic).remote_log_enabled
        first = planned.source.segments[0].segment.base_offset if planned.source.segments else 0
        return planned.mode == "aux" or is_tiered or (result.log_start_offset or 0) > first


def _refuse_wrong_ids(
    given: Mapping[str, str], found: Collection[str], archived_ids: Mapping[str, str], url: str
) -> None:
    """Refuse topic ids of what is not restored, or that another topic has.

    Args:
        given: by topic.
        found: topics that were chosen of the archive.
        archived_ids: topics by the ids that they have there.

    Raises:
        UsageError: there is one.
    """
    for topic, text in sorted(given.items()):
        if topic not in found:
            raise UsageError(f"--topic-id {topic}: no such topic in {url}, or it was not chosen")
        other = archived_ids.get(format_uuid(read_uuid(text)), topic)
        if other != topic:
            raise UsageError(f"--topic-id {topic}={text}: in {url} that is the id of {other}")
