"""Files mapped into memory whose faults do not end the process.

Reading a mapped page fails with SIGBUS if the disk has a bad sector, or if somebody has cut the file; by default that
ends the process. Here a handler puts zeros under the rest of the mapping and marks it as faulted. The thread that was
reading continues over zeros; its caller sees the mark, discards the result and reads again with `pread`, which gives
an errno.

The handler is a ctypes callback. It runs in the thread that faulted, inside a kernel that holds neither the GIL nor
any lock of the C library, so waiting for the GIL there is safe. A fault anywhere else goes to the previous handler.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import signal
import threading
from types import TracebackType

import numpy as np
import numpy.typing as npt

_SI_ADDR_OFFSET = 16  # siginfo_t on 64-bit Linux: signo, errno, code, padding, then the address
_SA_SIGINFO = 4
_SA_NODEFER = 0x40000000
_MAP_FAILED = ctypes.c_void_p(-1).value

_PAGE_BYTES = mmap.PAGESIZE


class MappedFile:
    """The first bytes of an open file as a read-only view.

    Args:
        descriptor: open for reading; may be closed once the file is mapped.
        size_bytes: how much to map; more than 0, and not more than the file has now.
    """

    def __init__(self, descriptor: int, size_bytes: int) -> None:
        _guard.install()
        self._mapping = mmap.mmap(descriptor, size_bytes, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)
        self._view: npt.NDArray[np.uint8] | None = np.frombuffer(self._mapping, dtype=np.uint8)
        address = self._view.ctypes.data
        self._range = _Range(address, address + -(-size_bytes // _PAGE_BYTES) * _PAGE_BYTES)
        _guard.add(self._range)

    def __enter__(self) -> MappedFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _guard.remove(self._range)
        self._view = None
        with contextlib.suppress(BufferError):  # held by an exception: the mapping goes with it
            self._mapping.close()

    @property
    def view(self) -> npt.NDArray[np.uint8]:
        """uint8, shape (size_bytes,), read-only; gone after the `with`. Not to be kept beyond it."""
        assert self._view is not None
        return self._view

    @property
    def has_faulted(self) -> bool:
        """Whether a page could not be read: what was computed from the view is worthless."""
        return self._range.has_faulted


class _Range:
    __slots__ = ("end", "has_faulted", "start")

    def __init__(self, start: int, end: int) -> None:
        self.start = start
        self.end = end
        self.has_faulted = False


class _SigAction(ctypes.Structure):
    """glibc's struct sigaction on 64-bit Linux."""

    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_ubyte * 128),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


class _Guard:
    """The process's handler for SIGBUS, and the mappings that it protects."""

    def __init__(self) -> None:
        self._ranges: tuple[_Range, ...] = ()
        self._lock = threading.Lock()
        self._pid = 0
        self._previous = _SigAction()
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.mmap.restype = ctypes.c_void_p
        self._libc.mmap.argtypes = [
            ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long,
        ]  # fmt: skip
        self._callback = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(
            self._on_fault
        )

    def install(self) -> None:
        """Install the handler for SIGBUS, once a process."""
        with self._lock:
            if self._pid == os.getpid():
                return
            action = _SigAction()
            action.handler = ctypes.cast(self._callback, ctypes.c_void_p).value
            action.flags = _SA_SIGINFO | _SA_NODEFER
            if self._libc.sigaction(signal.SIGBUS, ctypes.byref(action), ctypes.byref(self._previous)) != 0:
                raise OSError(ctypes.get_errno(), "sigaction(SIGBUS)")
            self._pid = os.getpid()

    def add(self, added: _Range) -> None:
        with self._lock:
            self._ranges = (*self._ranges, added)

    def remove(self, removed: _Range) -> None:
        with self._lock:
            self._ranges = tuple(mapped for mapped in self._ranges if mapped is not removed)

    def _on_fault(self, number: int, info: int, _context: int) -> None:
        address = ctypes.c_uint64.from_address(info + _SI_ADDR_OFFSET).value
        for mapped in self._ranges:  # a tuple that is replaced, never changed: no lock is needed here
            if mapped.start <= address < mapped.end:
                mapped.has_faulted = True
                page = address // _PAGE_BYTES * _PAGE_BYTES
                flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x10  # MAP_FIXED
                placed = self._libc.mmap(page, mapped.end - page, mmap.PROT_READ, flags, -1, 0)
                if placed not in (None, _MAP_FAILED):
                    return
        # Not ours: the faulting instruction runs again
        self._libc.sigaction(number, ctypes.byref(self._previous), None)


_guard = _Guard()
