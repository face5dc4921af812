"""What the kernels' Python side may raise. Damage in the data never raises: it is a value of the scan."""

from __future__ import annotations


class NativeError(Exception):
    """The root of this package's errors."""


class UnsupportedCpuPathError(NativeError):
    """A kernel was asked for that this CPU cannot run, or that does not exist."""


class ScanUsageError(NativeError):
    """A scanner was used out of order: fed when finished, asked for a result before its end, and the like."""


class UnlinkableError(NativeError):
    """A kernel's object code is not of a kind that can be kept: it is compiled by each process then."""


class UnknownKernelsError(NativeError):
    """The environment asks for kernels of a kind that there is not."""
