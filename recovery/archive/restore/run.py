"""`archive restore`: archived partitions back in the log dirs of a stopped broker.

    find -> plan -> fetch into the stage -> recover the stage -> move in

The stage is a log dir of its own in each log dir (`stage`), so a broker that is started too early sees nothing of a
partition, or all of it.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

from recovery.archive.layouts.aiven_cipher import load_aiven_keys
from recovery.archive.layouts.layouts import layout_of
from recovery.archive.records.broker_view import BrokerView
from recovery.archive.remote.replicas import Replicas
from recovery.archive.restore.options import RestoreOptions
from recovery.archive.restore.plan import PlannedRestore, Planner, refused
from recovery.archive.restore.report import RestoredLogDir, RestoredPartition, RestoreReport
from recovery.archive.restore.source import find_partitions
from recovery.archive.restore.stage import Stage
from recovery.archive.restore.target import Target
from recovery.archive.restore.unfinished import outdated
from recovery.archive.stores.store import Store
from recovery.archive.stores.stores import open_store
from recovery.archive.tiering.partition_state import read_tiered_log
from recovery.broker.config import BrokerConfig
from recovery.broker.log_retention import LogRetention, retention_of
from recovery.broker.topic_configs import TopicConfigs
from recovery.engine.api import broker_facts
from recovery.engine.report import PartitionReport
from recovery.engine.run import Engine
from recovery.errors import DamagedSegmentError, InterruptedRecoveryError, UnsafeError
from recovery.load.model import LogSettings
from recovery.logdir.dirs import find_broker_dirs
from recovery.logdir.lock import LogDirLocks
from recovery.quantity import bytes_text, count_text
from recovery.read.rate_limit import RateLimit
from recovery.stop_request import StopRequest
from recovery.watch.events import Observer, Remark
from recovery.write.move_in import MovedIn, finish_move_in, has_intent, move_in, remove_stage, sync_stage
from recovery.write.quarantine import Quarantine
from segfmt.errors import FormatError

_DEFAULT_THREADS = 2


def restore(
    options: RestoreOptions, *, observers: Iterable[Observer] = (), stop: StopRequest | None = None
) -> RestoreReport:
    """Restore archived partitions into the log dirs of a stopped broker.

    Args:
        options: what, and where to.
        observers: notified of the recovery of what was fetched.
        stop: lets another thread end the run at the next safe place.

    Raises:
        UsageError: settings that Kafka does not accept, no log dir, an archive that is none.
        LogDirLockedError: a broker or another recovery is running; nothing was changed.
        UnsafeError: a folder is not a broker's; nothing was changed.
        OSError: the archive cannot be listed.
        InterruptedRecoveryError: *stop* was asked for; started again, it goes on.
    """
    options.refuse_wrong_values()
    broker = options.broker
    dirs = find_broker_dirs(
        None if options.log_dirs is None else list(options.log_dirs),
        broker.config or {},
        quarantine_dir=broker.quarantine_dir,
    )
    with LogDirLocks(dirs.locked_dirs, dry_run=broker.dry_run) as locks:
        facts = broker_facts(
            dirs, broker, is_place_configured=options.log_dirs is None, offline=locks.offline.keys()
        )
        for problems in facts.problems.values():
            for problem in problems:
                raise UnsafeError(f"{problem}. Nothing was changed")
        target = Target(dirs, facts, locks.offline)
        run = _Run(options, target, tuple(observers), StopRequest() if stop is None else stop)
        return run.run()


class _Run:
    def __init__(
        self, options: RestoreOptions, target: Target, observers: Sequence[Observer], stop: StopRequest
    ) -> None:
        self._options = options
        self._target = target
        self._observers = observers
        self._stop = stop
        self._limit = RateLimit(options.broker.max_bytes_per_second, check=stop.check)
        self._quarantines: dict[str, str] = {}
        self._warnings: list[str] = []
        self._now_ms = options.broker.now_ms or time.time_ns() // 1_000_000

    def run(self) -> RestoreReport:
        dry_run = self._options.broker.dry_run
        self._finish_earlier()
        planned, results = self._plan()
        planned, without_room, needed = self._with_room(planned)
        results += without_room
        if dry_run:
            results += [one.result() for one in planned]
        elif planned:
            results += self._restore(planned)
        for log_dir in [] if dry_run else self._live_dirs():
            remove_stage(log_dir)
        return RestoreReport(
            dry_run=dry_run,
            log_dirs=[
                RestoredLogDir(
                    log_dir=target.log_dir,
                    is_cordoned=target.is_cordoned,
                    needed_bytes=needed.get(target.log_dir, 0),
                    usable_bytes=target.usable_bytes,
                    quarantine=self._quarantines.get(target.log_dir),
                )
                for target in self._target.log_dirs
            ],
            partitions=sorted(results, key=lambda one: (one.topic, one.partition)),
            warnings=self._warnings,
        )

    def _live_dirs(self) -> list[str]:
        return [target.log_dir for target in self._target.log_dirs if target.is_live]

    def _finish_earlier(self) -> None:
        """Move in what an interrupted run had fetched, recovered and begun to move."""
        for log_dir in self._live_dirs():
            if has_intent(log_dir):
                given_up = outdated(self._target, log_dir)
                self._warnings += [
                    f"{log_dir}: what an interrupted restore has made of {folder} is given up: {reason}"
                    for folder, reason in given_up.items()
                ]
                if self._options.broker.dry_run:
                    self._warnings.append(f"{log_dir}: an interrupted restore would be finished first")
                else:
                    run = finish_move_in(log_dir, partial(self._quarantine, log_dir), given_up)
                    self._note_quarantine(log_dir, run)
            elif self._options.broker.restart and not self._options.broker.dry_run:
                remove_stage(log_dir)

    def _note_quarantine(self, log_dir: str, run: str | None) -> None:
        if run is not None:
            self._quarantines[log_dir] = run

    def _quarantine(self, log_dir: str, run: str | None, on_created: object) -> Quarantine:
        assert callable(on_created)
        return Quarantine(log_dir, root=self._target.dirs.quarantine_dir, run=run, on_created=on_created)

    # -- before a byte is written ------------------------------------------------------------------------------

    def _plan(self) -> tuple[list[PlannedRestore], list[RestoredPartition]]:
        options, archive = self._options, self._options.archive
        store = archive.open()
        layout = layout_of(store, archive.layout, load_aiven_keys(dict(options.aiven_keys)))
        is_chosen = archive.choice()
        planner = Planner(self._target, options, self._retention_of(), self._now_ms)
        planned: list[PlannedRestore] = []
        results: list[RestoredPartition] = []
        with ExitStack() as stack:
            stores = [open_store(url) for url in archive.metadata]
            view = stack.enter_context(BrokerView(stores)) if stores else None
            if view is not None:
                view.require_log_dirs(is_tiered=layout.is_tiered)
            for source in find_partitions(store, layout, is_chosen, view):
                self._stop.check()
                one = planner.plan(source)
                if isinstance(one, PlannedRestore):
                    planned.append(replace(one, warnings=(*one.warnings, *self._given_up(one, stores))))
                else:
                    results.append(one)
        is_chosen.refuse_missing(store.url)
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
            f"{replica.store.url}/{replica.prefix.rstrip('/')} has them"
        ]

    def _retention_of(self) -> _Retentions:
        return _Retentions(self._options, self._target)

    def _with_room(
        self, planned: Sequence[PlannedRestore]
    ) -> tuple[list[PlannedRestore], list[RestoredPartition], Mapping[str, int]]:
        """Return the partitions of log dirs that have room for all of theirs, and refuse the others."""
        needed: dict[str, int] = defaultdict(int)
        for one in planned:
            needed[one.log_dir] += one.needed_bytes
        usable = {target.log_dir: target.usable_bytes for target in self._target.log_dirs}
        kept, without = [], []
        for one in planned:
            room = usable[one.log_dir]
            if room is None or needed[one.log_dir] <= room:
                kept.append(one)
            else:
                reason = (
                    f"{one.log_dir}: {bytes_text(needed[one.log_dir])} are needed there, and {bytes_text(room)} are "
                    "usable. Remedy: make room, or restore fewer partitions at a time (--topic, --partition)"
                )
                without.append(replace(refused(one.source, one.mode, [reason]), log_dir=one.log_dir))
        return kept, without, needed

    # -- at work -----------------------------------------------------------------------------------------------

    def _restore(self, planned: Sequence[PlannedRestore]) -> list[RestoredPartition]:
        by_dir: dict[str, list[PlannedRestore]] = defaultdict(list)
        for one in planned:
            by_dir[one.log_dir].append(one)
        stages = {log_dir: Stage(log_dir) for log_dir in by_dir}
        for log_dir, stage in stages.items():
            stage.open(by_dir[log_dir])
        faults = self._fetch(planned, stages)
        results = []
        for one in planned:
            if faults[id(one)]:
                is_failed = any(isinstance(fault, OSError) for fault in faults[id(one)])
                result = self._failed(one, [str(fault) for fault in faults[id(one)]])
                results.append(replace(result, status="failed" if is_failed else "refused"))
                stages[one.log_dir].drop(one.source.name)
        sound = [one for one in planned if not faults[id(one)]]
        reports = self._recover([one for one in sound if one.mode == "full"], stages)
        for log_dir, stage in stages.items():
            mine = [one for one in sound if one.log_dir == log_dir]
            results += self._move_in(log_dir, stage, mine, reports)
        return results

    def _fetch(
        self, planned: Sequence[PlannedRestore], stages: Mapping[str, Stage]
    ) -> dict[int, list[Exception]]:
        """Lay down the logs of all partitions; return what is wrong with each, by its identity."""
        store = self._options.archive.open()
        faults: dict[int, list[Exception]] = {id(one): [] for one in planned}
        count = (self._options.broker.threads or _DEFAULT_THREADS) * len(stages)
        self._notify(f"fetching {bytes_text(sum(one.source.size_bytes for one in planned))}")
        with ThreadPoolExecutor(count, thread_name_prefix="archive-restore") as pool:
            pending = []
            for one in planned:
                stage = stages[one.log_dir]
                stage.write_small_files(one, store)
                sources = one.source.segments if one.mode == "full" else ()
                fetch = partial(stage.fetch, store, one, limit=self._limit, stop=self._stop)
                pending += [(one, pool.submit(fetch, source)) for source in sources]
            try:
                for one, result in pending:
                    try:
                        result.result()
                    except (DamagedSegmentError, FormatError, OSError) as error:
                        faults[id(one)].append(error)
            except InterruptedRecoveryError:
                pool.shutdown(cancel_futures=True)
                raise
        return faults

    def _recover(
        self, planned: Sequence[PlannedRestore], stages: Mapping[str, Stage]
    ) -> dict[tuple[str, str], PartitionReport]:
        """Recover the staged logs; return the reports by log dir and folder."""
        log_dirs = {stages[one.log_dir].staged_log_dir: one.log_dir for one in planned}
        if not planned:
            return {}
        for log_dir, stage in stages.items():
            stage.write_log_starts(one for one in planned if one.log_dir == log_dir)
        facts = self._target.facts

        def settings_of(topic: str) -> LogSettings:
            # Its records are local now, all of them
            return replace(facts.settings_of(topic), remote_log_enabled=False, remote_log_known=True)

        options = replace(
            self._options.broker, force=True, restart=True, quarantine_dir=None, handoff="clean-shutdown"
        )
        with LogDirLocks(log_dirs) as locks:
            report = Engine(
                log_dirs,
                options.of_a_log_dir(),
                replace(facts, settings_of=settings_of, problems={}, remarks=()),
                locks,
                observers=self._observers,
                stop=self._stop,
            ).run()
        if report.signal_exit_code is not None:
            raise InterruptedRecoveryError(report.signal_exit_code - 128)
        return {
            (log_dirs[one.log_dir], partition.folder): partition
            for one in report.log_dirs
            for partition in one.partitions
        }

    def _move_in(
        self,
        log_dir: str,
        stage: Stage,
        planned: Sequence[PlannedRestore],
        reports: Mapping[tuple[str, str], PartitionReport],
    ) -> list[RestoredPartition]:
        results, moved = [], []
        for one in planned:
            result = self._result(one, reports.get((log_dir, one.source.name)))
            if result.status == "restored" and one.mode == "full":
                more = (*_open_transactions(stage, one, result), *self._known_producers(stage, one, result))
                result = replace(result, warnings=(*result.warnings, *more))
            results.append(result)
            if result.status == "restored":
                assert result.log_start_offset is not None
                assert result.log_end_offset is not None
                needs_line = one.mode == "aux" or self._has_start_line(one, result)
                moved.append(
                    MovedIn(
                        folder=one.source.name,
                        log_start_offset=result.log_start_offset if needs_line else None,
                        log_end_offset=result.log_end_offset,
                    )
                )
            else:
                stage.drop(one.source.name)
        if moved:
            self._stop.check()
            sync_stage(log_dir)
            self._note_quarantine(log_dir, move_in(log_dir, moved, partial(self._quarantine, log_dir)))
        return results

    def _known_producers(self, stage: Stage, planned: PlannedRestore, result: RestoredPartition) -> list[str]:
        """Return a warning if a log of another cluster knows producers, whose ids this one will give to others.

        Kafka: ProducerIdControlManager, ProducerAppendInfo.checkSequence, ProducerStateEntry.findDuplicateBatch.
        """
        assert result.log_end_offset is not None
        if planned.source.topic_id == result.topic_id:
            return []
        since_ms = self._now_ms - self._target.facts.producer_id_expiration_ms
        producer_ids = stage.producers(planned, result.log_end_offset, since_ms)
        if not producer_ids:
            return []
        known = f"{count_text(len(producer_ids), 'producer')} with ids up to {max(producer_ids)}"
        return [
            f"{known} known at its end, and a new cluster gives these ids to others: what such a producer writes first "
            "may be taken for a duplicate, which is acknowledged and not written. Remedy: until they expire, a day "
            "after they last wrote, run all brokers with producer.id.expiration.ms=60000"
        ]

    def _has_start_line(self, planned: PlannedRestore, result: RestoredPartition) -> bool:
        """Whether a broker needs the checkpoint to know where the log begins. Kafka: UnifiedLog, LogManager."""
        is_tiered = self._target.facts.settings_of(planned.source.where.topic).remote_log_enabled
        first = planned.source.segments[0].segment.base_offset if planned.source.segments else 0
        return is_tiered or (result.log_start_offset or 0) > first

    def _result(self, planned: PlannedRestore, report: PartitionReport | None) -> RestoredPartition:
        if planned.mode == "aux":
            return planned.result()
        if report is None:
            return self._failed(planned, ["it was not recovered after it was fetched"])
        reasons = (
            [*report.reasons] if report.cuts or report.status in ("truncated", "refused", "failed") else []
        )
        if reasons or report.status in ("truncated", "refused", "failed"):
            return self._failed(planned, reasons or ["its log is damaged"])
        expected = planned.result()
        if expected.log_end_offset not in (None, report.log_end_offset):
            why = f"it ends at offset {report.log_end_offset}, and should at {expected.log_end_offset}"
            return self._failed(planned, [why])
        return replace(
            expected,
            log_start_offset=report.log_start_offset
            if planned.remote_start_offset is None
            else planned.remote_start_offset,
            log_end_offset=report.log_end_offset,
            warnings=(*expected.warnings, *map(str, report.warnings)),
        )

    def _failed(self, planned: PlannedRestore, reasons: Sequence[str]) -> RestoredPartition:
        result = refused(planned.source, planned.mode, reasons)
        return replace(result, log_dir=planned.log_dir)

    def _notify(self, text: str) -> None:
        for observer in self._observers:
            observer(Remark(text=text))


def _open_transactions(stage: Stage, planned: PlannedRestore, result: RestoredPartition) -> list[str]:
    """Return a warning if transactions are open at the log's end, which nobody will end by himself."""
    assert result.log_end_offset is not None
    left = stage.open_transactions(planned, result.log_end_offset)
    if not left:
        return []
    producer_id, first = min(left, key=lambda one: one[1])
    return [
        f"{count_text(len(left), 'transaction')} open at the end of the archive, the first one of producer "
        f"{producer_id} from offset {first} on: consumers at read_committed stop there. Remedy: once the broker runs, "
        f"kafka-transactions.sh abort --topic {result.topic} --partition {result.partition} --start-offset {first}"
    ]


class _Retentions:
    """The retention of topics by the settings of the target; None where these are not known."""

    def __init__(self, options: RestoreOptions, target: Target) -> None:
        broker = options.broker
        self._metadata, self._node_id = target.metadata, target.node_id
        self._configs = TopicConfigs(
            broker=BrokerConfig.from_properties(broker.config or {}),
            records={} if target.metadata is None else target.metadata.topic_configs,
            overrides=broker.topic_configs or {},
        )

    def __call__(self, topic: str) -> LogRetention | None:
        if self._metadata is None and topic not in self._configs.overrides:
            return None
        return retention_of(topic, self._configs, self._metadata, self._node_id)
