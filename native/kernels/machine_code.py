"""Machine code as a function: bytes are put into executable memory, and ctypes calls them.

The memory is never writable and executable at once. ctypes releases the GIL around each call.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
from collections.abc import Callable
from typing import Final, NamedTuple

_ENTRY = struct.Struct("<Q")
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_kept: Final[list[mmap.mmap]] = []
"""What has been loaded stays, because somebody may still hold a function of it."""


class MachineCode(NamedTuple):
    """Code that runs at the start of any page, and the position in it at which the function begins."""

    code: bytes
    entry: int

    def to_bytes(self) -> bytes:
        """Return the form that `from_bytes` reads."""
        return _ENTRY.pack(self.entry) + self.code

    @classmethod
    def from_bytes(cls, data: bytes) -> MachineCode:
        """Return the code that `to_bytes` has written."""
        return cls(data[_ENTRY.size :], *_ENTRY.unpack_from(data))

    def load(self, argument_count: int) -> Callable[..., int]:
        """Return a function of *argument_count* int64s that returns one; it lives as long as the process.

        Raises:
            OSError: the system does not allow new code in this process.
        """
        memory = mmap.mmap(
            -1,
            len(self.code),
            flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS,
            prot=mmap.PROT_READ | mmap.PROT_WRITE,
        )
        memory.write(self.code)
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        if _libc.mprotect(address, len(self.code), mmap.PROT_READ | mmap.PROT_EXEC) != 0:
            errno = ctypes.get_errno()
            raise OSError(errno, f"compiled kernels cannot be run in this process: {os.strerror(errno)}")
        _kept.append(memory)
        prototype = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * argument_count)
        return prototype(address + self.entry)
