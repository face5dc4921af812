"""The options of `archive metrics` and `archive retention`: made by the command line or a library's caller."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from recovery.archive.layouts.layouts import AUTO, LAYOUTS
from recovery.archive.stores.store import Store
from recovery.archive.stores.stores import open_archive
from recovery.errors import UsageError
from recovery.logdir.choice import PartitionChoice

ALL_LOG_DIRS = "give the log dirs of all brokers with --metadata"
"""What to do where something is not known by those that were given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TieringOptions:
    """Whose tiered logs, and which of them.

    Attributes:
        metadata: paths or URLs of log dirs, or of copies of them.
        archive: path or URL of the remote storage, to be compared; None: it is not looked at. `archive metrics` alone.
        layout: of the archive, or auto.
        config: properties of the broker, by key; they give the topics' defaults.
        config_notes: on where these come from.
        topic_configs: settings by topic; they win over those in the metadata log.
        topics, partitions: only these; all without either.
        now_ms: the clock by which retention is judged; None: this machine's.

    Raises:
        UsageError: no log dir is given; no layout has that name.
    """

    metadata: tuple[str, ...]
    archive: str | None = None
    layout: str = AUTO
    config: Mapping[str, str] = field(default_factory=dict)
    config_notes: tuple[str, ...] = ()
    topic_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    topics: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    now_ms: int | None = None

    def __post_init__(self) -> None:
        if not self.metadata:
            raise UsageError("--metadata A,B is missing: the log dirs of the brokers, or copies of them")
        names = (AUTO, *LAYOUTS)
        if self.layout not in names:
            raise UsageError(f"--layout {self.layout}: expected one of {', '.join(names)}")

    def open_archive(self) -> Store:
        """Return the archive, which is given.

        Raises:
            UsageError: this kind of store is not supported.
        """
        assert self.archive is not None
        return open_archive(self.archive)

    def choice(self) -> PartitionChoice:
        """Return the choice of partitions, which notes the ones that it has seen.

        Raises:
            UsageError: a name in `partitions` has no number.
        """
        return PartitionChoice(self.topics, self.partitions)
