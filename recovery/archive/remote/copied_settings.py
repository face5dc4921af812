"""What the metadata log in a copied log dir says of topics' settings: the partitions beside it were written by them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import TypeVar

import numpy as np

from recovery.archive.stores.store import Store
from recovery.broker.cluster_metadata import ClusterMetadata, read_cluster_metadata
from recovery.broker.topic_configs import TopicConfigs
from recovery.errors import UsageError, error_text
from recovery.logdir.metadata_files import ReadMetadata, read_metadata_files
from segfmt.entry_view import Buffer
from segfmt.errors import FormatError
from segfmt.filenames import CLUSTER_METADATA_FOLDER
from segfmt.metadata_log import BytesOnDisk

_T = TypeVar("_T")


class CopiedSettings:
    """The settings of topics in one copy of a log dir.

    Args:
        given: those of this run; the ones for single topics take precedence over the copy's.
        metadata: what the metadata log in the copy says; None without one.

    Attributes:
        note: why there is a metadata log and its settings are not known; empty if they are, or without one.
    """

    def __init__(self, given: TopicConfigs, metadata: ClusterMetadata | None, note: str = "") -> None:
        self._given = given
        self._configs = given
        self.note = note
        if metadata is not None:
            broker = given.broker.with_dynamic(cluster_default=metadata.cluster_default)
            self._configs = replace(given, broker=broker, records=metadata.topic_configs)

    def of(self, topic: str) -> TopicConfigs:
        """Return settings that are valid for *topic*: the given ones if the copy's are not.

        Raises:
            UsageError: the given ones are invalid, too.
        """
        try:
            self._configs.config_of(topic)
        except UsageError:
            self._given.config_of(topic)
            return self._given
        return self._configs


def read_copied_settings(store: Store, parent: str, given: TopicConfigs) -> CopiedSettings:
    """Return the settings of topics in the copied log dir with the prefix *parent*, besides those *given*."""
    try:
        metadata = read_copied_metadata(store, parent)
    except (FormatError, OSError) as error:
        note = f"{store.url}/{parent}{CLUSTER_METADATA_FOLDER}/: {error_text(error)}: the settings in it are not known"
        return CopiedSettings(given, None, note)
    return CopiedSettings(given, metadata)


def read_copied_metadata(store: Store, parent: str = "") -> ClusterMetadata | None:
    """Return what the metadata log in the copied log dir with the prefix *parent* says; None without one.

    Raises:
        FormatError: the node would not start with it.
        OSError: it cannot be read.
    """
    return read_copied(store, parent, read_cluster_metadata)


def read_copied(store: Store, parent: str, read: ReadMetadata[_T]) -> _T | None:
    """Return what *read* makes of the metadata log in the copied log dir with the prefix *parent*; None without one.

    Raises:
        FormatError: the node would not start with it.
        OSError: it cannot be read.
    """
    prefix = f"{parent}{CLUSTER_METADATA_FOLDER}/"
    try:
        names = [stored.name for stored in store.list_level(prefix).objects]
        if not names:
            return None
        return read_metadata_files(names, lambda name: _opened(store, prefix + name), read)
    except FileNotFoundError:
        return None


@contextmanager
def _opened(store: Store, key: str) -> Iterator[BytesOnDisk]:
    with closing(store.open(key)) as log:

        def read(position: int, size_bytes: int) -> Buffer:
            data = np.empty(max(0, min(size_bytes, log.end_position - position)), np.uint8)
            return data[: log.read_at(data, position)].tobytes()

        yield BytesOnDisk(read=read, size_bytes=log.end_position)
