"""Memory that ends where it ends: bytes with a page on either side that no one may touch.

A load behind the last byte, or before the first, is a SIGSEGV at once. The kernels may touch what lies in
`window[slack_before:]` and nothing else: masked loads name addresses outside of it, but do not access them
(see SegmentScanner.feed). What stands in the slack is therefore garbage here.
"""

from __future__ import annotations

import ctypes
import mmap

import numpy as np

_PAGE_BYTES = mmap.PAGESIZE
_NO_ACCESS = 0  # PROT_NONE

Bytes = np.ndarray[tuple[int], np.dtype[np.uint8]]


class GuardedPages:
    """Some pages between two that cannot be accessed.

    They stay mapped for good: a view may outlive whoever asked for it.
    """

    def __init__(self, size_bytes: int) -> None:
        inside = -(-size_bytes // _PAGE_BYTES) * _PAGE_BYTES
        self._memory = mmap.mmap(-1, inside + 2 * _PAGE_BYTES)
        whole = np.frombuffer(self._memory, np.uint8)
        self._inside: Bytes = whole[_PAGE_BYTES : _PAGE_BYTES + inside]
        protect = ctypes.CDLL(None, use_errno=True).mprotect
        protect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        for start in (0, _PAGE_BYTES + inside):
            if protect(whole.ctypes.data + start, _PAGE_BYTES, _NO_ACCESS) != 0:
                raise OSError(ctypes.get_errno(), "mprotect")

    def place(self, data: bytes, *, slack: int = 0, at_start: bool = False) -> Bytes:
        """Return a view of *data* with *slack* bytes of garbage before it.

        It ends where the pages end, or, with *at_start*, begins where they begin. Good until the next call.
        """
        size_bytes = slack + len(data)
        if size_bytes > self._inside.size:
            raise ValueError(f"{size_bytes} bytes do not fit into {self._inside.size}")
        view = self._inside[:size_bytes] if at_start else self._inside[self._inside.size - size_bytes :]
        view[:slack] = 0xA5
        view[slack:] = np.frombuffer(data, np.uint8)
        return view
