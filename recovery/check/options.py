"""The options of a verify: made once, by the command line or a caller of the library, and handed down whole."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from recovery.read.rate_limit import refuse_wrong_rate
from recovery.threads import refuse_wrong_thread_count


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyOptions:
    """The options of `verify`, as its command line has them.

    Attributes:
        config: the broker's properties, as in its server.properties.
        config_notes: remarks about where they come from; they become notes of the run.
        topic_configs: settings by topic; they win over those in the metadata log.
        deep: open and parse every record.
        threads: threads for each log dir; None for `num.recovery.threads.per.data.dir`.
        max_bytes_per_second: limit on reads, over all threads together; None for no limit.
        drop_cache: whether what is read from disk is dropped from the page cache again.
        topics: only these; all by default.
        partitions: only these folders ("orders-3"), in addition to *topics*.
        now_ms: the clock by which producers expire, ms since 1970; None for now.
    """

    config: Mapping[str, str] | None = None
    config_notes: tuple[str, ...] = ()
    topic_configs: Mapping[str, Mapping[str, str]] | None = None
    deep: bool = False
    threads: int | None = None
    max_bytes_per_second: int | None = None
    drop_cache: bool = False
    topics: Collection[str] = ()
    partitions: Collection[str] = ()
    now_ms: int | None = None

    def refuse_wrong_values(self) -> None:
        """Raise UsageError if a number is out of range."""
        refuse_wrong_thread_count(self.threads)
        refuse_wrong_rate(self.max_bytes_per_second)
