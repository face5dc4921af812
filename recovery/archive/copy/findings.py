"""What copies in an archive say of themselves, as findings: what was not copied, and what is not there as it was."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from recovery.archive.copy.account import CopiedFolder, CopyAccounts
from recovery.archive.copy.comparison import Difference, differences, is_small, needed_files
from recovery.archive.layouts.layouts import make_layout
from recovery.archive.stores.archived import PartitionPrefix, StoredObject
from recovery.archive.stores.segment_table import ArchivedPartition
from recovery.archive.stores.store import Level, Store
from recovery.check.finding import Finding, Rule
from recovery.errors import UsageError, error_text
from recovery.logdir.checkpoints import LOG_DIR_FILES
from recovery.printable import is_utf8
from segfmt.filenames import LOG_SUFFIX


class CopyFindings:
    """Collects them while an archive is walked through.

    Args:
        store: the archive.
    """

    def __init__(self, store: Store) -> None:
        self._layout = make_layout("plain")
        self._store = store
        self._seen: set[str] = set()
        self._unlisted: set[str] = set()
        self._unread: dict[str, None] = {}  # in order, each once
        self._accounts: CopyAccounts | None = None
        self._try(lambda: self._open(store))

    def look_at(self, prefix: str, level: Level) -> None:
        """Take in what is directly below *prefix*."""
        accounts = self._accounts
        if accounts is not None:
            self._try(lambda: accounts.look_at(prefix, level))

    def see_unlisted(self, prefix: str) -> None:
        """Take in that *prefix*, or the object of that key, is there, and could not be looked at."""
        self._unlisted.add(prefix)

    def folder(self, prefix: str) -> CopiedFolder | None:
        """Return what a copy says of the partition at *prefix*, None if none says anything that can be read."""
        found: list[CopiedFolder | None] = []
        accounts = self._accounts
        if accounts is not None:
            self._try(lambda: found.append(accounts.folder(prefix)))
        return found[0] if found else None

    def see(self, partition: ArchivedPartition, *, is_logs_only: bool = False) -> tuple[Finding, ...]:
        """Take in that a partition is there; return which of its files are not, or not of the size, as copied.

        Args:
            partition: as it was listed.
            is_logs_only: whether its other files do not matter.
        """
        prefix = partition.where.prefix
        self._seen.add(prefix)
        copied = self.folder(prefix)
        if copied is None or not copied.is_whole:
            return ()
        expected = needed_files(copied)
        if is_logs_only:
            expected = {name: one for name, one in expected.items() if name.endswith(LOG_SUFFIX)}
        return _of_files(self._listed(prefix, differences(expected, partition.objects, store=None)))

    def own_files(
        self, where: PartitionPrefix, parent: str, siblings: Sequence[StoredObject]
    ) -> tuple[Finding, ...]:
        """Return which of a log dir's own files are not as they were copied; they are read.

        Args:
            where: any partition of it.
            parent: its prefix.
            siblings: its own files.
        """
        copied = self.folder(where.prefix)
        if copied is None or not copied.is_log_dir_whole or not where.prefix:
            return ()
        found: list[Difference] = []
        expected = {name: one for name, one in copied.own_files.items() if name in LOG_DIR_FILES}
        try:
            found += self._listed(parent, differences(expected, siblings, store=self._store))
        except OSError:
            return ()  # who reads the checkpoints reports it
        return _of_files(found)

    def digests(self, partition: ArchivedPartition) -> dict[str, str]:
        """Return the SHA-256 of the small files of a partition that are as large as they were copied, by name."""
        copied = self.folder(partition.where.prefix)
        if copied is None or not copied.is_whole:
            return {}
        expected = needed_files(copied)
        return {
            one.name: expected[one.name].sha256
            for one in partition.objects
            if one.name in expected
            and one.size_bytes == expected[one.name].size_bytes
            and is_small(one.name, one.size_bytes)
        }

    def findings(self, is_chosen: Callable[[PartitionPrefix], bool]) -> Iterator[Finding]:
        """Yield what is missing of the chosen partitions, by the copies' own word."""
        for text in self._unread:
            yield _finding("", "copy-in-part", f"whether copies are whole is not known: {text}")
        if self._accounts is None:
            return
        for text in self._accounts.unread:
            yield _finding("", "copy-in-part", f"whether this copy is whole is not known: {text}")
        for prefix in self._accounts.log_dirs_in_part():
            yield _finding(prefix, "copy-in-part", "archive copy has not copied all of this log dir")
        unfinished = set(self._accounts.unfinished())
        for prefix in sorted(unfinished | set(self._accounts.present())):
            where = self._layout.partition_at(prefix.rstrip("/"))
            if where is None or not is_chosen(where):
                continue
            if prefix in unfinished:
                yield _finding(prefix, "copy-in-part", "archive copy has not copied all of it")
            elif not is_utf8(prefix):
                continue  # a store lists it by another name, and says why it is not looked at
            elif prefix not in self._seen and not prefix.startswith(tuple(self._unlisted)):
                yield _finding(prefix, "missing-folder", "it was copied, and is not there")

    def _listed(self, prefix: str, found: Iterable[Difference]) -> Iterator[Difference]:
        """Yield what differs of the files below *prefix* that could be looked at."""
        return (one for one in found if not (one.is_missing and prefix + one.name in self._unlisted))

    def _open(self, store: Store) -> None:
        self._accounts = CopyAccounts(store)

    def _try(self, step: Callable[[], None]) -> None:
        try:
            step()
        except (UsageError, OSError) as error:
            self._unread[error_text(error)] = None


def difference_finding(difference: Difference) -> Finding:
    """Return the finding of a file that is not as it was copied."""
    rule: Rule = "missing-file" if difference.is_missing else "changed-file"
    return Finding(file=difference.name, position=None, rule=rule, detail=f"it {difference.text}")


def _of_files(found: Iterable[Difference]) -> tuple[Finding, ...]:
    return tuple(map(difference_finding, found))


def _finding(place: str, rule: Rule, detail: str) -> Finding:
    return Finding(file=place or "copy", position=None, rule=rule, detail=detail, severity="unchecked")
