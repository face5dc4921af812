"""The map step: scan the bytes of one segment in one forward pass, window by window.

Each batch is treated exactly as LogSegment.recover does; see `native._scan_kernel`. The scan opens nothing,
knows nothing of the state before the segment, never raises on damage, releases the GIL, and costs no Python per
batch.

Importing this module does not import numba; the first `feed` does, once on a machine.

Kafka: LogSegment.recover; without CRC check and index also the walk of FileRecords.batches, as
UnifiedLog.loadProducersFromRecords and LogSegment.readNextOffset use it.
Differs: a leader epoch that starts at a negative offset is only reported; whether it ends Kafka depends
on its cache.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from native import _scan_state, cpu, kernels
from native.address import address_of
from native.cpu_path import CpuPath
from native.errors import ScanUsageError
from native.raw_scan import (
    PRODUCER_DTYPE,
    TIME_INDEX_ROW_DTYPE,
    TXN_EVENT_DTYPE,
    ControlKind,
    RawScan,
    Stop,
    TxnEventKind,
)
from segfmt import byte_layout
from segfmt.record_batch import wrap_long

__all__ = [
    "PRODUCER_DTYPE",
    "TIME_INDEX_ROW_DTYPE",
    "TXN_EVENT_DTYPE",
    "ControlKind",
    "RawScan",
    "SegmentScanner",
    "Stop",
    "TxnEventKind",
    "warm_up",
]

_FIRST_ROWS: Final = 64
"""Initial rows of a table whose size cannot be foreseen; it doubles when it is full."""
_FIRST_PRODUCERS: Final = 256
_SMALL_BYTES: Final = 64 << 10
"""A file this small begins with fewer rows for producers, too: making the tables costs more than scanning it."""
_NO_INDEX_INTERVAL: Final = 1 << 62
_INDEX_OF: Final = {name: index for index, name in enumerate(_scan_state.STATE_NAMES)}
_POSITION: Final = _INDEX_OF["position"]
_TABLES: Final = tuple(
    (f"_{name}", _INDEX_OF[f"{name}_address"], _INDEX_OF[f"{name}_rows"])
    for name in ("offset_index", "time_index", "epochs", "producers", "slots", "events")
)
"""Attribute of the scanner, and the fields of the state that hold its address and length."""
_RESULTS: Final = tuple(
    name for name in RawScan._fields if name in _INDEX_OF and name not in ("stop_position", "txns_in_order")
)
"""The integers of a result that are copied from the state."""
_FIRST_STATE: Final = np.array(
    [_scan_state.FIRST_VALUES.get(name, 0) for name in _scan_state.STATE_NAMES], np.int64
)
"""What is the same for every scan."""
_STOPS_WITH_FINAL_TIME_ENTRY: Final = frozenset(
    {Stop.END, Stop.TORN, Stop.BAD_LENGTH, Stop.CRC_MISMATCH, Stop.INVALID_CONTROL}
)


class SegmentScanner:
    """Scan of one segment, fed with windows of its bytes in order.

    ::

        scanner = SegmentScanner(base_offset=0, size_bytes=size)
        while not scanner.finished:
            scanner.feed(window of at least scanner.needed_bytes bytes from scanner.position on)
            if scanner.paused_control:
                scanner.resume_control(decode(the batch at scanner.control_position))
        scan = scanner.result()
    """

    def __init__(
        self,
        *,
        base_offset: int,
        size_bytes: int,
        start_position: int = 0,
        index_interval_bytes: int = 4096,
        max_index_entries: int = 1310720,
        max_time_index_entries: int = 873813,
        check_crc: bool = True,
        build_index: bool = True,
        settles_txns: bool = True,
        cpu_path: CpuPath | None = None,
    ) -> None:
        """Prepare a scan.

        Args:
            base_offset: of the segment.
            size_bytes: where the walk ends: the size of the file, or a position in it.
            start_position: where it begins: 0, or the position of a batch.
            index_interval_bytes: Kafka's index.interval.bytes.
            max_index_entries: segment.index.bytes // 8.
            max_time_index_entries: segment.index.bytes // 12.
            check_crc: False for Kafka's walks without ensureValid: neither checksums nor the range of
                offsets are checked, and a record batch shorter than its header is read past its end.
            build_index: False: neither index entries nor their errors.
            settles_txns: False: events of settled transactions are kept, too.
            cpu_path: how to compute CRC-32C; the fastest way by default.

        Raises:
            UnsupportedCpuPathError: the CPU lacks *cpu_path*.
        """
        self._cpu_path = None if cpu_path is None else cpu.choose(cpu_path)
        self._build_index = build_index
        states = _FIRST_STATE.copy()
        # Its integers one by one: a thousand windows make some thousand accesses, and numpy's are slow.
        self._state = state = states.data
        self._state_address = address_of(states)
        state[_INDEX_OF["base_offset"]] = state[_INDEX_OF["max_timestamp_offset"]] = base_offset
        state[_POSITION] = state[_INDEX_OF["max_timestamp_position"]] = start_position
        state[_INDEX_OF["last_indexed_position"]] = start_position
        state[_INDEX_OF["size_bytes"]] = size_bytes
        state[_INDEX_OF["index_interval_bytes"]] = index_interval_bytes if build_index else _NO_INDEX_INTERVAL
        state[_INDEX_OF["max_index_entries"]] = max_index_entries
        state[_INDEX_OF["max_time_index_entries"]] = max_time_index_entries
        state[_INDEX_OF["check_crc"]] = check_crc
        state[_INDEX_OF["check_range"]] = check_crc or build_index
        state[_INDEX_OF["txns_in_order"]] = settles_txns
        # As many index entries as there can be, and one more: memory that is not written to costs nothing.
        index_rows = (size_bytes - start_position) // (index_interval_bytes + 1) + 2 if build_index else 1
        index_rows = max(1, min(index_rows, max_index_entries + 1))
        self._offset_index = np.empty((index_rows, 2), np.int32)
        self._time_index = np.empty(index_rows, TIME_INDEX_ROW_DTYPE)
        self._epochs = np.empty((_FIRST_ROWS, 3), np.int64)
        producer_rows = _FIRST_PRODUCERS if size_bytes - start_position > _SMALL_BYTES else _FIRST_ROWS
        self._producers = np.empty(producer_rows, _scan_state.PRODUCER_ROW_DTYPE)
        self._slots = _scan_state.new_slots(producer_rows)
        self._events = np.empty(_FIRST_ROWS, TXN_EVENT_DTYPE)
        self._locate_tables()
        self._stop: Stop | None = None
        self._paused = False
        if start_position >= size_bytes - byte_layout.HEADER_UP_TO_MAGIC_BYTES:
            self._stop = Stop.END
            self._write("stop_position", start_position)

    @property
    def position(self) -> int:
        """Position in the file of the first byte not consumed: where the next window begins."""
        return self._state[_POSITION]

    @property
    def needed_bytes(self) -> int:
        """Bytes that the next window must have at least for the scan to continue; 0 when it is finished.

        A record batch's header, or the whole batch at `position`; never more than the file has left.
        """
        if self.finished:
            return 0
        return min(self._read("needed_bytes"), self._read("size_bytes") - self.position)

    @property
    def finished(self) -> bool:
        """The scan has ended."""
        return self._stop is not None

    @property
    def paused_control(self) -> bool:
        """The scan waits for `resume_control`."""
        return self._paused

    @property
    def control_position(self) -> int:
        """While paused: position in the file of the control batch to decode; it ends at `position`."""
        return self._read("control_position")

    def feed(self, window: npt.NDArray[np.uint8], slack_before: int = 0) -> None:
        """Scan all whole batches of *window*.

        Args:
            window: uint8, shape (n,), C-contiguous; ``window[slack_before:]`` are the file's bytes from
                `position` on. Not written, may be read-only. What follows the last whole batch must be
                fed again.
            slack_before: bytes at the front that precede `position`. Their content is never used. But a batch's
                first load, 256 bytes wide and masked, names addresses before the batch, and takes a hundred times
                as long if these have no page.

        Raises:
            ScanUsageError: the scan has ended or waits for `resume_control`.
        """
        if self._stop is not None or self._paused:
            raise ScanUsageError(
                "feed() after the scan has ended, or while a control batch waits for its decision"
            )
        if window.dtype != np.uint8 or window.ndim != 1 or not window.flags.c_contiguous:
            raise ScanUsageError(
                f"a window is contiguous uint8 of one dimension, not {window.dtype} {window.shape}"
            )
        self._run(address_of(window) + slack_before, window.size - slack_before)

    def resume_control(
        self, kind: ControlKind, marker_type: int = 0, coordinator_epoch: int = 0, timestamp_ms: int = 0
    ) -> None:
        """Resume after a control batch that the kernel could not decode.

        Args:
            kind: what it is.
            marker_type: 0 abort, 1 commit; for MARKER.
            coordinator_epoch: for MARKER.
            timestamp_ms: of the record, for MARKER.

        Raises:
            ScanUsageError: the scan is not paused.
        """
        if not self._paused:
            raise ScanUsageError("resume_control() without a control batch that waits")
        self._paused = False
        if kind in (ControlKind.INVALID, ControlKind.FATAL):
            self._stop = Stop.INVALID_CONTROL if kind is ControlKind.INVALID else Stop.CONTROL_FATAL
            return
        self._write("control_kind", kind)
        self._write("control_marker_type", marker_type)
        self._write("control_coordinator_epoch", coordinator_epoch)
        self._write("control_timestamp_ms", timestamp_ms)
        self._run(0, 0)

    def end_here(self) -> None:
        """End the scan at `position`, as if the file ended there.

        Raises:
            ScanUsageError: it has ended or waits for `resume_control`.
        """
        if self._stop is not None or self._paused:
            raise ScanUsageError("end_here() after the scan has ended, or while a control batch waits")
        self._stop = Stop.END
        self._write("stop_position", self.position)

    def result(self) -> RawScan:
        """Return the scan.

        Raises:
            ScanUsageError: it has not ended.
        """
        if self._stop is None and not self._paused:
            raise ScanUsageError(f"the scan has not ended: it needs bytes from position {self.position} on")
        stop = Stop.CONTROL_PAUSED if self._stop is None else self._stop
        stop_position = self._read("stop_position")
        detail = (self._read("detail_0"), self._read("detail_1"))
        if stop in _STOPS_WITH_FINAL_TIME_ENTRY and self._build_index and not self._append_final_time_entry():
            stop = Stop.TIME_INDEX_INVALID_OFFSET
            stop_position = self._read("max_timestamp_position")
            detail = (self._read("max_timestamp_offset"), self._read("last_time_index_offset"))
        epochs = self._epochs[: self._read("epoch_count")]
        return RawScan(
            stop=stop,
            valid_bytes=self.position,
            stop_position=stop_position,
            stop_detail=detail,
            offset_index=self._offset_index[: self._read("index_count")].copy(),
            time_index=_scan_state.copy_of(self._time_index[: self._read("time_index_count")]),
            epochs=epochs[:, :2].copy(),
            epoch_positions=epochs[:, 2].copy(),
            producers=_scan_state.public_producers(self._producers[: self._read("producer_count")]),
            txn_events=_scan_state.in_log_order(self._events[: self._read("event_count")]),
            txns_in_order=self._read("txns_in_order") != 0,
            **{name: self._read(name) for name in _RESULTS},
        )

    def _read(self, name: str) -> int:
        return self._state[_INDEX_OF[name]]

    def _write(self, name: str, value: int) -> None:
        self._state[_INDEX_OF[name]] = value

    def _locate_tables(self) -> None:
        """Tell the kernel where the tables are."""
        for name, address_index, rows_index in _TABLES:
            table: npt.NDArray[Any] = getattr(self, name)
            self._state[address_index] = address_of(table)
            self._state[rows_index] = len(table)

    def _run(self, address: int, window_bytes: int) -> None:
        if self._cpu_path is None:
            self._cpu_path = cpu.choose()
        scan = kernels.entry(kernels.SCAN, self._cpu_path)
        while True:
            position = self._state[_POSITION]
            status = scan(self._state_address, address, window_bytes)
            if status != _scan_state.FULL:
                break
            self._grow()
            consumed = self._state[_POSITION] - position
            address += consumed
            window_bytes -= consumed
        self._paused = status == _scan_state.PAUSED
        if status >= 0:
            self._stop = Stop(status)

    def _grow(self) -> None:
        """Double every table that is more than half full, so that one kernel call adds many rows."""
        self._offset_index = _scan_state.with_room(self._offset_index, self._read("index_count"))
        self._time_index = _scan_state.with_room(self._time_index, self._read("time_index_count"))
        self._epochs = _scan_state.with_room(self._epochs, self._read("epoch_count"))
        self._events = _scan_state.with_room(self._events, self._read("event_count"))
        producers = _scan_state.with_room(self._producers, self._read("producer_count"))
        if producers is not self._producers:
            self._producers = producers
            self._slots = _scan_state.new_slots(producers.size)
            kernels.entry(kernels.REBUILD_SLOTS)(
                address_of(producers),
                producers.size,
                self._read("producer_count"),
                address_of(self._slots),
                self._slots.size,
            )
        self._locate_tables()

    def _append_final_time_entry(self) -> bool:
        """Append the greatest timestamp if it is newer than the last entry; False if its offset is refused.

        Kafka: TimeIndex.maybeAppend(maxTimestampSoFar, shallowOffsetOfMaxTimestampSoFar, skipFullCheck=true).
        """
        count = self._read("time_index_count")
        timestamp_ms, offset = self._read("max_timestamp_ms"), self._read("max_timestamp_offset")
        if count > 0 and offset < self._read("last_time_index_offset"):
            return False
        if timestamp_ms > self._read("last_time_index_ms"):
            if count == self._time_index.size:
                self._time_index = _scan_state.with_room(self._time_index, count)
            relative_offset = wrap_long(offset - self._read("base_offset"))
            self._time_index[count] = (timestamp_ms, relative_offset)
            self._write("time_index_count", count + 1)
            self._write("last_time_index_ms", timestamp_ms)
            self._write("last_time_index_offset", offset)
        return True


def warm_up(cpu_path: CpuPath | None = None) -> CpuPath:
    """Make the kernels of a recovery ready; return the path that they take.

    Kernels are also made ready by their first call, which takes some seconds the first time on a machine.

    Raises:
        UnsupportedCpuPathError: the CPU lacks *cpu_path*.
    """
    path = cpu.choose(cpu_path)
    kernels.entry(kernels.SCAN, path)
    kernels.entry(kernels.CHECKSUM, path)
    kernels.entry(kernels.REBUILD_SLOTS)
    return path
