"""The options of a recovery: made once, by the command line or a caller of the library, and handed down whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, get_args

from recovery.errors import UsageError
from recovery.read.rate_limit import refuse_wrong_rate
from recovery.threads import refuse_wrong_thread_count
from recovery.watch.events import Handoff

Processes = Literal["auto", "always", "never"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoverOptions:
    """The options of `recover`, as its command line has them.

    Attributes:
        config: the broker's properties, as in its server.properties.
        config_notes: remarks about where they come from; they become notes of the run.
        is_config_complete: whether these are all of the broker's properties, so that what they leave out has Kafka's
            default there; None means yes if the log dirs come from them. If a setting that decides whether a log has
            a remote part is unknown, it is assumed with a note, or its partition is refused.
        topic_configs: settings by topic; they win over those in the metadata log.
        now_ms: the clock by which producers expire, ms since 1970; None for now, or for that of an interrupted run.
        dry_run: change nothing, report what would be done.
        handoff: what the broker finds afterwards.
        threads: threads for each log dir; None for `num.recovery.threads.per.data.dir`.
        quarantine_dir: where cut bytes go; None for a sibling of each log dir.
        keep_deleted: whether `.deleted` files, the broker's own pending deletions, are kept in quarantine.
        force: recover as after an unclean shutdown, whatever the markers say.
        repair: first move to quarantine what keeps a broker from loading, if that costs no batch.
        restart: forget what an interrupted run has done, and start over.
        max_bytes_per_second: limit on reads of `.log` files, over all threads together; None for no limit.
        drop_cache: whether what had to be read from disk is dropped from the page cache again.
        processes: whether each log dir gets a process of its own: `auto` if there are so many logs that it pays,
            `always` or `never`. With a limit on bytes a second there is one process.
        acknowledge: whether losses count as reported once the report is returned; else call `cut_ledger.acknowledge`.
    """

    config: Mapping[str, str] | None = None
    config_notes: tuple[str, ...] = ()
    is_config_complete: bool | None = None
    topic_configs: Mapping[str, Mapping[str, str]] | None = None
    now_ms: int | None = None
    dry_run: bool = False
    handoff: Handoff = "clean-shutdown"
    threads: int | None = None
    quarantine_dir: str | None = None
    keep_deleted: bool = False
    force: bool = False
    repair: bool = False
    restart: bool = False
    max_bytes_per_second: int | None = None
    drop_cache: bool = False
    processes: Processes = "auto"
    acknowledge: bool = True

    def refuse_wrong_values(self) -> None:
        """Raise UsageError if a choice is none of those there are, or a number is out of range."""
        for option, value, choices in (
            ("--handoff", self.handoff, get_args(Handoff)),
            ("--processes", self.processes, get_args(Processes)),
        ):
            if value not in choices:
                raise UsageError(f"{option} {value}: expected one of {', '.join(choices)}")
        refuse_wrong_thread_count(self.threads)
        refuse_wrong_rate(self.max_bytes_per_second)

    def of_a_log_dir(self) -> RecoverOptions:
        """Return what the work on one log dir goes by: without the properties, which may hold passwords."""
        return replace(self, config=None, config_notes=(), topic_configs=None)

    def deciding(self) -> dict[str, str]:
        """Return the options that decide about bytes, by name: an interrupted run is resumed only under the same."""
        return {
            "--handoff": self.handoff,
            "--keep-deleted": str(self.keep_deleted).lower(),
            "--force": str(self.force).lower(),
        }
