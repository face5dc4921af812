"""Errors of the kernels' Python side. Damaged data never raises: it is a value of the scan."""

from __future__ import annotations


class NativeError(Exception):
    """The root of this package's errors."""


class UnsupportedCpuPathError(NativeError):
    """The requested CPU path does not exist, or this CPU cannot run it."""


class ScanUsageError(NativeError):
    """A scanner was misused: fed after it had finished, asked for a result before its end, and the like."""


class UnlinkableError(NativeError):
    """A kernel's object code cannot be kept, so each process compiles it."""


class UnknownKernelsError(NativeError):
    """The environment asks for an unknown kind of kernels."""
