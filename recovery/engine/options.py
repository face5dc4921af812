"""The options of a recovery: made once, by the command line or a caller of the library, and handed down whole."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, get_args

from recovery.errors import UsageError
from recovery.logdir.choice import PartitionChoice
from recovery.logdir.options import LogDirOptions, refuse_wrong_choice
from recovery.watch.events import Handoff

Processes = Literal["auto", "always", "never"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoverOptions(LogDirOptions):
    """The options of `recover`, as its command line has them: those of `LogDirOptions`, and its own.

    Attributes:
        is_config_complete: whether these are all of the broker's properties, so that what they leave out has Kafka's
            default there; None means yes if the log dirs come from them. If a setting that decides whether a log has
            a remote part is unknown, it is assumed with a note, or its partition is refused.
        dry_run: change nothing, report what would be done.
        handoff: what the broker finds afterwards.
        quarantine_dir: where cut bytes go; None for a sibling of each log dir.
        keep_deleted: whether `.deleted` files, the broker's own pending deletions, are kept in quarantine.
        force: recover as after an unclean shutdown, whatever the markers say.
        repair: first move to quarantine what keeps a broker from loading, if that costs no batch.
        restart: forget what an interrupted run has done, and start over.
        topics, partitions: only these are recovered, all without either; the rest of a log dir is left as it is, so
            the dir is not handed over.
        processes: whether each log dir gets a process of its own: `auto` if there are so many logs that it pays,
            `always` or `never`. With a limit on bytes a second there is one process.
        acknowledge: whether losses count as reported once the report is returned; else call `cut_ledger.acknowledge`.
    """

    is_config_complete: bool | None = None
    dry_run: bool = False
    handoff: Handoff = "clean-shutdown"
    quarantine_dir: str | None = None
    keep_deleted: bool = False
    force: bool = False
    repair: bool = False
    restart: bool = False
    topics: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    processes: Processes = "auto"
    acknowledge: bool = True

    def refuse_wrong_values(self) -> None:
        """Raise UsageError if a choice is none of those there are, or a number is out of range."""
        refuse_wrong_choice("--handoff", self.handoff, get_args(Handoff))
        refuse_wrong_choice("--processes", self.processes, get_args(Processes))
        if self.processes == "always" and self.max_bytes_per_second is not None:
            raise UsageError(
                "--processes always: with --max-bytes-per-second there is one process, which keeps the limit. Remedy: "
                "leave out one of the two"
            )
        LogDirOptions.refuse_wrong_values(self)  # `super()` does not find a class that slots have made anew

    def of_a_log_dir(self) -> RecoverOptions:
        """Return what the work on one log dir goes by: without the properties, which may hold passwords."""
        return replace(self, config=None, config_notes=(), topic_configs=None)

    def deciding(self) -> dict[str, str]:
        """Return the options that decide about bytes, by name: an interrupted run is resumed only under the same."""
        return {
            "--handoff": self.handoff,
            "--keep-deleted": str(self.keep_deleted).lower(),
            "--force": str(self.force).lower(),
            "--topic": ",".join(sorted(self.topics)),
            "--partition": ",".join(sorted(self.partitions)),
        }

    def choice(self) -> PartitionChoice:
        """Return the choice of partitions, which notes the ones that it has seen.

        Raises:
            UsageError: a name in `partitions` has no number.
        """
        return PartitionChoice(self.topics, self.partitions)
