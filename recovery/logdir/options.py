"""The options that every run over log dirs has, whatever it does to them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from recovery.broker.starting_release import AUTO, CHOICES
from recovery.broker.topic_configs import refuse_wrong_topic_configs
from recovery.errors import UsageError
from recovery.read.rate_limit import refuse_wrong_rate
from recovery.threads import refuse_wrong_thread_count


def refuse_wrong_choice(option: str, value: str, choices: Collection[str]) -> None:
    """Raise UsageError if *value* is not one of *choices*."""
    if value not in choices:
        raise UsageError(f"{option} {value}: expected one of {', '.join(choices)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirOptions:
    """What `recover` and `verify` are both told.

    Attributes:
        config: the broker's properties, as in its server.properties.
        config_notes: remarks about where they come from; they become notes of the run.
        topic_configs: settings by topic; they win over those in the metadata log.
        release: of the broker that will start: 4.3 (and all before), 4.4, or auto, which asks the metadata log.
        now_ms: the clock by which producers expire, ms since 1970; None for now, or for that of an interrupted run.
        threads: threads for each log dir; None for `num.recovery.threads.per.data.dir`.
        max_bytes_per_second: limit on reads of `.log` files, over all threads together; None for no limit.
        drop_cache: whether what had to be read from disk is dropped from the page cache again.
    """

    config: Mapping[str, str] | None = None
    config_notes: tuple[str, ...] = ()
    topic_configs: Mapping[str, Mapping[str, str]] | None = None
    release: str = AUTO
    now_ms: int | None = None
    threads: int | None = None
    max_bytes_per_second: int | None = None
    drop_cache: bool = False

    def refuse_wrong_values(self) -> None:
        """Raise UsageError if a choice is none of those there are, a number out of range, a value of another type."""
        refuse_wrong_choice("--release", self.release, CHOICES)
        refuse_wrong_topic_configs(self.topic_configs)
        refuse_wrong_thread_count(self.threads)
        refuse_wrong_rate(self.max_bytes_per_second)
