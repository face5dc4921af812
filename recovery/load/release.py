"""The releases of Kafka whose brokers do not load a log alike, and all the rules in which they differ.

Nothing in a log dir says which release will start on it. Where nobody does (`UNKNOWN`), each rule goes the way that
is right, or harmless, for every release.
"""

from __future__ import annotations

from enum import Enum

from segfmt.producer_snapshot import MOST_ENTRIES


class Release(Enum):
    """A release, by its name on the command line; all before 4.4 load as 4.3 does."""

    KAFKA_4_3 = "4.3"
    KAFKA_4_4 = "4.4"
    UNKNOWN = "unknown"

    @property
    def trims_all_opened_indexes(self) -> bool:
        """Whether closing a log cuts every index that was opened to whole entries; from 4.4 on, the active ones alone.

        Unknown: yes. Every release loads either.

        Kafka: AbstractIndex.close; from 4.4 on UnifiedLog.prepareActiveSegmentForClose.
        """
        return self is not Release.KAFKA_4_4

    @property
    def halts_on_any_txn_version(self) -> bool:
        """Whether any version but 0 in a `.txnindex` stops a broker; up to 4.3 it reads the high byte alone.

        Unknown: yes, because no marker must lie over a file on which the coming broker halts.

        Kafka: TransactionIndex.sanityCheck, storage.log.AbortedTxn.version; from 4.4 on the generated
        common.message.AbortedTxn.
        """
        return self is not Release.KAFKA_4_3

    @property
    def most_snapshot_entries(self) -> int | None:
        """How many entries a producer snapshot may have to be loaded, None for any number; from 4.4 on a million.

        Unknown: any number. A broker of 4.4 discards a longer one itself, and one of 4.3 would miss it.

        Kafka: from 4.4 on the generated ProducerSnapshot.read, ProducerStateManager.readSnapshot.
        """
        return MOST_ENTRIES if self is Release.KAFKA_4_4 else None
