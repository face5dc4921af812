"""The options of `archive copy`: one value, made by the command line or a library's caller."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from recovery.logdir.choice import PartitionChoice
from recovery.read.rate_limit import refuse_wrong_rate
from recovery.threads import refuse_wrong_thread_count


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyOptions:
    """What is copied, and where to.

    Attributes:
        output: path or URL.
        log_dirs: None for those in the settings.
        config: the broker's properties.
        topics, partitions: only these; all without either.
        threads: None for the default.
        max_bytes_per_second: limit on reads, over all threads together; None for no limit.
        restart: whether what an earlier run has sent is sent again.
    """

    output: str
    log_dirs: tuple[str, ...] | None = None
    config: Mapping[str, str] = field(default_factory=dict)
    topics: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    threads: int | None = None
    max_bytes_per_second: int | None = None
    restart: bool = False

    def refuse_wrong_values(self) -> None:
        """Raise UsageError if a number is out of range."""
        refuse_wrong_thread_count(self.threads)
        refuse_wrong_rate(self.max_bytes_per_second)

    def choice(self) -> PartitionChoice:
        """Return the choice of partitions, which notes the ones that it has seen.

        Raises:
            UsageError: a name in `partitions` has no number.
        """
        return PartitionChoice(self.topics, self.partitions)
