"""What copies in an archive say of themselves, as findings: what was not copied, and what was and is not there."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from recovery.archive.copy.account import CopyAccounts
from recovery.archive.layouts.layouts import make_layout
from recovery.archive.stores.archived import PartitionPrefix
from recovery.archive.stores.segment_table import ArchivedPartition
from recovery.archive.stores.store import Level, Store
from recovery.check.finding import Finding, Rule
from recovery.errors import UsageError, error_text
from segfmt.filenames import LOG_SUFFIX


class CopyFindings:
    """Collects them while an archive is walked through.

    Args:
        store: the archive.
    """

    def __init__(self, store: Store) -> None:
        self._layout = make_layout("plain")
        self._seen: set[str] = set()
        self._changed: dict[str, str] = {}
        self._unread: dict[str, None] = {}  # in order, each once
        self._accounts: CopyAccounts | None = None
        self._try(lambda: self._open(store))

    def look_at(self, prefix: str, level: Level) -> None:
        """Take in what is directly below *prefix*."""
        accounts = self._accounts
        if accounts is not None:
            self._try(lambda: accounts.look_at(prefix, level))

    def see(self, partition: ArchivedPartition) -> None:
        """Take in that a partition is there, and which of its logs are not as they were copied."""
        self._seen.add(partition.where.prefix)
        self._try(lambda: self._compare(partition))

    def _compare(self, partition: ArchivedPartition) -> None:
        prefix = partition.where.prefix
        copied = None if self._accounts is None else self._accounts.folder(prefix)
        if copied is None or copied.is_gone:
            return
        logs = {name: one.size_bytes for name, one in copied.files.items() if name.endswith(LOG_SUFFIX)}
        if not logs:
            return
        for table in (partition.segments.objects, partition.others):
            for name, size_bytes in zip(table.names, table.sizes_bytes, strict=True):
                if logs.get(name) == size_bytes:
                    del logs[name]
        if logs:
            more = f" (and {len(logs) - 1:,} more)" if len(logs) > 1 else ""
            self._changed[prefix] = f"{min(logs)}{more} is not there as it was copied"

    def findings(self, is_chosen: Callable[[PartitionPrefix], bool]) -> Iterator[Finding]:
        """Yield what is missing of the chosen partitions, by the copies' own word."""
        for text in self._unread:
            yield _finding("", "copy-in-part", f"whether copies are whole is not known: {text}")
        if self._accounts is None:
            return
        for text in self._accounts.unread:
            yield _finding("", "copy-in-part", f"whether this copy is whole is not known: {text}")
        for prefix in self._accounts.log_dirs_in_part():
            yield _finding(prefix, "copy-in-part", "archive copy could not read all of this log dir")
        for prefix, text in self._changed.items():
            yield _finding(prefix, "copy-in-part", text)
        unfinished = set(self._accounts.unfinished())
        for prefix in sorted(unfinished | set(self._accounts.present())):
            where = self._layout.partition_at(prefix.rstrip("/"))
            if where is None or not is_chosen(where):
                continue
            if prefix in unfinished:
                yield _finding(prefix, "copy-in-part", "archive copy has not copied all of it")
            elif prefix not in self._seen:
                yield _finding(prefix, "missing-folder", "it was copied, and is not there")

    def _open(self, store: Store) -> None:
        self._accounts = CopyAccounts(store)

    def _try(self, step: Callable[[], None]) -> None:
        try:
            step()
        except (UsageError, OSError) as error:
            self._unread[error_text(error)] = None


def _finding(place: str, rule: Rule, detail: str) -> Finding:
    return Finding(file=place or "copy", position=None, rule=rule, detail=detail, severity="unchecked")
