"""The options of `archive verify` and `archive recover`, and the part of them that tasks need."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from recovery.archive.check.scanned import ScanOptions
from recovery.archive.layouts.aiven_cipher import NO_KEYS, AivenKeys
from recovery.archive.options import ArchiveOptions
from recovery.archive.stores.stores import absolute_url, beside, is_within, local_path
from recovery.broker.config import BrokerConfig, misspelled
from recovery.broker.settings import Layer
from recovery.broker.topic_configs import TopicConfigs
from recovery.errors import UsageError
from recovery.logdir.brokers_place import brokers_place_of


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOptions(ArchiveOptions):
    """How an archive is checked, and what is done about damage.

    Attributes:
        rebuilds: whether what follows from a log is rebuilt: `recover`, else `verify`.
        is_in_place: whether rebuilt parts replace the present ones.
        is_deep: whether records are opened.
        is_logs_only: whether only the logs are checked.
        keys: for encrypted segments.
        config: broker properties.
        config_notes: notes on where they come from.
        topic_configs: settings by topic.
        cores: how many tasks run at a time; None: what Spark says.
        task_bytes: about how much a task reads; None: what suits the archive's size.
        now_ms: time by which producers expire in plain copies.

    Raises:
        UsageError: as `ArchiveOptions`; *is_deep* and *is_logs_only* together; no place for what is rebuilt, or for
            what is replaced; no core.
    """

    rebuilds: bool = False
    is_in_place: bool = False
    is_deep: bool = False
    is_logs_only: bool = False
    keys: AivenKeys = NO_KEYS
    config: Mapping[str, str] = field(default_factory=dict)
    config_notes: tuple[str, ...] = ()
    topic_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    cores: int | None = None
    task_bytes: int | None = None
    now_ms: int = field(default_factory=lambda: time.time_ns() // 1_000_000)

    def __post_init__(self) -> None:
        ArchiveOptions.__post_init__(self)
        if self.is_deep and self.is_logs_only:
            raise UsageError(
                "--deep and --logs-only exclude each other: without records there is nothing to open"
            )
        if self.rebuilds and not self.is_in_place and self.output is None:
            raise UsageError("archive recover needs --output URL for what is rebuilt, or --in-place")
        if self.output is None and self.result_url is not None and is_within(self.result_url, self.url):
            raise UsageError(
                f"{self.result_url} leads into the archive: give another place with --output URL"
            )
        self._refuse_quarantine_in_log_dir()
        if self.cores is not None and self.cores < 1:
            raise UsageError(f"--cores {self.cores}: expected an integer from 1 on")

    def _refuse_quarantine_in_log_dir(self) -> None:
        """Refuse a partition's folder in a log dir as an archive, beside which nothing may be put."""
        path = None if self.output is not None or self.result_url is None else local_path(self.result_url)
        if path is not None and (place := brokers_place_of(path)) is not None:
            raise UsageError(
                f"{path}: what is replaced in place would be kept there, inside {place}, where a broker takes folders "
                "for logs. Remedy: give another place with --output URL"
            )

    @property
    def command(self) -> str:
        """The name of the command."""
        return "recover" if self.rebuilds else "verify"

    @property
    def result_url(self) -> str | None:
        """Where results go: the output; without one, what is replaced in place goes beside the archive.

        Raises:
            UsageError: nothing is beside it.
        """
        if self.output is None and self.is_in_place:
            return beside(self.url, ".quarantine")
        return None if self.output is None else absolute_url(self.output)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on the broker's properties."""
        return (*self.config_notes, *misspelled(self.config))

    def settings(self) -> TopicConfigs:
        """Return the settings of all topics.

        Raises:
            UsageError: a setting is invalid.
        """
        broker = BrokerConfig.from_layers((Layer("config", dict(self.config)),))
        overrides = {topic: dict(own) for topic, own in self.topic_configs.items()}
        return TopicConfigs(broker=broker, records={}, overrides=overrides)

    def for_tasks(self, layout: str) -> ScanOptions:
        """Return the options of tasks, wherever they run; *layout* is the one that the archive has."""
        return ScanOptions(
            url=absolute_url(self.url),
            layout=layout,
            output=self.result_url,
            rebuilds=self.rebuilds,
            is_in_place=self.is_in_place,
            keys=self.keys,
            is_deep=self.is_deep,
            now_ms=self.now_ms,
            is_logs_only=self.is_logs_only,
        )
