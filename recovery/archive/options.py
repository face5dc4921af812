"""The options for archives: one value, made by the command line or a library's caller, and passed on whole."""

from __future__ import annotations

from dataclasses import dataclass

from recovery.archive.layouts.layouts import AUTO, LAYOUTS
from recovery.archive.stores.store import Store
from recovery.archive.stores.stores import open_archive, refuse_brokers_output, refuse_within
from recovery.errors import UsageError
from recovery.logdir.choice import PartitionChoice
from recovery.stop_request import StopRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveOptions:
    """Which archive, which part of it, and what is known besides; all the options of an inventory.

    Attributes:
        url: of the archive: a path, `file://`, `s3://`, `gs://`, `az://`.
        layout: its name, or auto.
        files_from: path of a list of its objects, used instead of listing the archive; None: it is listed.
        metadata: paths or URLs of log dirs with partitions of `__remote_log_metadata`; none: only names are used.
        topics, partitions: only these; all without either.
        output: path or URL where results go; None: they are not kept.

    Raises:
        UsageError: no layout has that name; the output is in the archive, or in a log dir or a partition's folder.
    """

    url: str
    layout: str = AUTO
    files_from: str | None = None
    metadata: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    output: str | None = None

    def __post_init__(self) -> None:
        names = (AUTO, *LAYOUTS)
        if self.layout not in names:
            raise UsageError(f"--layout {self.layout}: expected one of {', '.join(names)}")
        if self.output is not None:
            refuse_within(f"--output {self.output}", self.output, self.url)
            refuse_brokers_output(self.output, self.metadata)

    def open(self, stop: StopRequest | None = None) -> Store:
        """Return the archive. The list of its objects may be a pipe, which *stop* lets a signal end the wait for.

        Raises:
            UsageError: see `open_archive`.
            InterruptedRecoveryError: *stop* was asked for.
        """
        if self.files_from is None:
            return open_archive(self.url)
        with (stop or StopRequest()).raising():
            return open_archive(self.url, self.files_from)

    def choice(self) -> PartitionChoice:
        """Return the choice of partitions, which notes the ones that it has seen.

        Raises:
            UsageError: a name in `partitions` has no number.
        """
        return PartitionChoice(self.topics, self.partitions)
