"""The options of `archive restore`: one value, made by the command line or a library's caller."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args
from uuid import UUID

from recovery.archive.layouts.layouts import AUTO
from recovery.archive.options import ArchiveOptions
from recovery.engine.options import RecoverOptions
from recovery.errors import UsageError
from recovery.logdir.options import refuse_wrong_choice
from segfmt.errors import FormatError
from segfmt.kafka_uuid import read_uuid

LeaderEpochs = Literal["auto", "keep", "renumber"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreOptions:
    """What is restored, and where to.

    Attributes:
        archive: which archive, and which of its partitions.
        log_dirs: of the broker; None for those in the settings of `broker`.
        broker: the settings of the broker, threads, quarantine, `dry_run` and `restart`, as of a recovery.
        is_aux: whether the records stay in remote storage, and only what a broker needs to serve them is made.
        topic_ids: ids by topic, where no metadata log of the target tells them.
        leader_epochs: what becomes of the archived leader epochs.
        ignore_cordon: whether a log dir may be chosen although all are cordoned.
        aiven_keys: files of RSA keys by their ids.
    """

    archive: ArchiveOptions
    log_dirs: tuple[str, ...] | None = None
    broker: RecoverOptions = field(default_factory=RecoverOptions)
    is_aux: bool = False
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    leader_epochs: LeaderEpochs = "auto"
    ignore_cordon: bool = False
    aiven_keys: Mapping[str, str] = field(default_factory=dict)

    def refuse_wrong_values(self) -> None:
        """Raise UsageError if a choice is none of those there are, or a number is out of range."""
        refuse_wrong_choice("--leader-epochs", self.leader_epochs, get_args(LeaderEpochs))
        if self.is_aux and self.leader_epochs == "renumber":
            raise UsageError(
                "--leader-epochs renumber with --aux: batches in remote storage keep their leader epochs. Remedy: "
                "leave one of the two out"
            )
        topics: dict[UUID, str] = {}
        for topic, text in self.topic_ids.items():
            try:
                topic_id = read_uuid(text)
            except FormatError as error:
                raise UsageError(f"--topic-id {topic}={text}: {error}") from error
            if not topic_id.int:
                raise UsageError(f"--topic-id {topic}={text}: no topic has it")
            other = topics.setdefault(topic_id, topic)
            if other != topic:
                raise UsageError(
                    f"--topic-id {topic}={text}: it was given for {other}, and no two topics have one id"
                )
        self.broker.refuse_wrong_values()

    @property
    def layout(self) -> str:
        """The name of the archive's layout, or `auto`."""
        return self.archive.layout or AUTO
