"""Batches with what is known besides their headers, from which both kinds of rows are made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from native.batch_headers import HeaderRows
from recovery.check.finding import Rule
from segfmt import byte_layout

Flags = npt.NDArray[np.bool_]
"""Bool, shape (n,)."""


class Fault(NamedTuple):
    """Why a batch cannot be read, or is not to be trusted."""

    rule: Rule
    detail: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.detail}"


CHECKSUM_FAULT = Fault("checksum", "the stored checksum is not that of the bytes")


@dataclass(frozen=True, slots=True)
class BatchHeads:
    """The headers of some batches.

    Attributes:
        rows: HEADER_ROW_DTYPE, shape (n,).
        is_valid: whether their checksums are right.
        is_aborted: whether their transaction was aborted.
        codes: int32, shape (n,): 0 without a fault, else the number of its reason, from 1 on.
        reasons: why batches are not to be trusted, a wrong checksum among them.
    """

    rows: HeaderRows
    is_valid: Flags
    is_aborted: Flags
    codes: npt.NDArray[np.int32]
    reasons: Sequence[Fault]

    def __len__(self) -> int:
        return len(self.rows)

    def at(self, chosen: slice | Flags) -> BatchHeads:
        """Return some of them."""
        return BatchHeads(
            self.rows[chosen],
            self.is_valid[chosen],
            self.is_aborted[chosen],
            self.codes[chosen],
            self.reasons,
        )

    def one(self, number: int) -> BatchHeads:
        """Return one of them."""
        return self.at(slice(number, number + 1))

    def fault(self, number: int) -> Fault:
        """Return the fault of one of them, which has one."""
        return self.reasons[int(self.codes[number]) - 1]

    @property
    def is_faulty(self) -> Flags:
        """Whether they are not to be trusted."""
        flags: Flags = self.codes != 0
        return flags

    @property
    def is_v2(self) -> Flags:
        """Whether they are record batches, not messages."""
        flags: Flags = self.rows["magic"] >= byte_layout.MAGIC_V2
        return flags

    @property
    def is_compressed(self) -> Flags:
        """Whether they are compressed, or of an unknown codec."""
        return self.has(byte_layout.COMPRESSION_CODEC_MASK)

    @property
    def is_wrapper(self) -> Flags:
        """Whether they are compressed messages: base offset and count are known only inside."""
        return self.is_compressed & ~self.is_v2

    @property
    def is_control(self) -> Flags:
        """Whether they are control batches."""
        return self.has(byte_layout.CONTROL_MASK) & self.is_v2

    @property
    def is_stamped(self) -> Flags:
        """Whether they have LogAppendTime, which does not exist in magic 0."""
        has_type: Flags = self.rows["magic"] != byte_layout.MAGIC_V0
        return self.has(byte_layout.TIMESTAMP_TYPE_MASK) & has_type

    def has(self, mask: int) -> Flags:
        """Return whether any of the attributes in *mask* is set."""
        flags: Flags = self.rows["attributes"] & mask != 0
        return flags
