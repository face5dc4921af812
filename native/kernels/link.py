"""Machine code from an ELF object: one run of bytes that works at the start of any page.

LLVM writes a kernel as a relocatable object. A kernel is self-contained: it calls nothing, has no variables,
and its constants are next to its code. So linking is laying sections out one after another and filling in
the distances between them. An object that needs more than that is refused.

ELF for AMD64 and for 64-bit Arm: relocations, but no dynamic linking.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final, NamedTuple

from native.errors import UnlinkableError
from native.kernels.machine_code import MachineCode

_MACHINE_POSITION, _SECTION_TABLE_POSITION, _SECTION_COUNT_POSITION = 0x12, 0x28, 0x3C
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
_PROGBITS, _SYMTAB, _RELA = 1, 2, 4
_WRITABLE, _ALLOCATED = 1, 2
_UNWIND_TABLES: Final = frozenset({".eh_frame"})  # nothing is thrown through a kernel


class _Section(NamedTuple):
    name: int
    kind: int
    flags: int
    address: int
    position: int
    size: int
    link: int
    info: int
    alignment: int
    entry_size: int


class _Symbol(NamedTuple):
    name: int
    info: int
    other: int
    section: int
    value: int
    size: int


def _add_int32(code: bytearray, place: int, target: int) -> None:
    distance = target - place
    if not -(1 << 31) <= distance < 1 << 31:
        raise UnlinkableError(f"a distance of {distance} does not fit 32 bits")
    struct.pack_into("<i", code, place, distance)


def _patch(code: bytearray, place: int, bits: int) -> None:
    (instruction,) = struct.unpack_from("<I", code, place)
    struct.pack_into("<I", code, place, instruction | bits)


def _branch(code: bytearray, place: int, target: int) -> None:
    _patch(code, place, (target - place >> 2) & 0x3FFFFFF)


def _page(code: bytearray, place: int, target: int) -> None:
    pages = (target >> 12) - (place >> 12)
    _patch(code, place, (pages & 3) << 29 | (pages >> 2 & 0x7FFFF) << 5)


def _in_page(shift: int) -> Callable[[bytearray, int, int], None]:
    """Return a function that fills in a position within a page, counted in units of 2**shift bytes."""

    def fill_in(code: bytearray, place: int, target: int) -> None:
        _patch(code, place, (target & 0xFFF) >> shift << 10)

    return fill_in


_RELOCATIONS: Final[dict[int, dict[int, Callable[[bytearray, int, int], None]]]] = {
    62: {2: _add_int32, 4: _add_int32},  # x86-64: PC32, PLT32
    183: {  # AArch64
        261: _add_int32,  # PREL32
        275: _page,  # ADR_PREL_PG_HI21
        277: _in_page(0),  # ADD_ABS_LO12_NC
        278: _in_page(0),  # LDST8_ABS_LO12_NC
        282: _branch,  # JUMP26
        283: _branch,  # CALL26
        284: _in_page(1),  # LDST16_ABS_LO12_NC
        285: _in_page(2),  # LDST32_ABS_LO12_NC
        286: _in_page(3),  # LDST64_ABS_LO12_NC
        299: _in_page(4),  # LDST128_ABS_LO12_NC
    },
}
"""By machine and kind: what writes the distance from *place* to *target*."""


def link(object_code: bytes, symbol: str) -> MachineCode:
    """Return the code of an ELF object, to be entered at *symbol*.

    Raises:
        UnlinkableError: it is not an ELF object of a known machine, or not self-contained.
    """
    return _Object(object_code).link(symbol)


class _Object:
    """A relocatable object, and where its sections go."""

    def __init__(self, data: bytes) -> None:
        (self._machine,) = struct.unpack_from("<H", data, _MACHINE_POSITION)
        if data[:6] != b"\x7fELF\x02\x01" or self._machine not in _RELOCATIONS:
            raise UnlinkableError("no ELF object of x86-64 or AArch64")
        self._data = data
        (table,) = struct.unpack_from("<Q", data, _SECTION_TABLE_POSITION)
        count, names = struct.unpack_from("<HH", data, _SECTION_COUNT_POSITION)
        self._sections = [
            _Section(*_SECTION.unpack_from(data, table + n * _SECTION.size)) for n in range(count)
        ]
        self._section_names = self._sections[names].position
        (symbols,) = (section for section in self._sections if section.kind == _SYMTAB)
        self._symbol_names = self._sections[symbols.link].position
        self._symbols = [_Symbol(*fields) for fields in _SYMBOL.iter_unpack(self._bytes(symbols))]
        self._code = bytearray()
        self._places: dict[int, int] = {}

    def link(self, symbol: str) -> MachineCode:
        self._lay_out()
        self._fill_in()
        for one in self._symbols:
            if self._text(self._symbol_names + one.name) == symbol:
                return MachineCode(bytes(self._code), self._place(one))
        raise UnlinkableError(f"there is no {symbol}")

    def _lay_out(self) -> None:
        """Lay out code and constants one after another."""
        for number, section in enumerate(self._sections):
            name = self._text(self._section_names + section.name)
            if not section.flags & _ALLOCATED or not section.size or name in _UNWIND_TABLES:
                continue
            if section.kind != _PROGBITS or section.flags & _WRITABLE:
                raise UnlinkableError(f"section {name} is neither code nor constants")
            self._code += bytes(-len(self._code) % max(section.alignment, 1))
            self._places[number] = len(self._code)
            self._code += self._bytes(section)

    def _fill_in(self) -> None:
        """Fill in the distance from each place in the code to what it refers to."""
        fill_in_of = _RELOCATIONS[self._machine]
        for section in self._sections:
            if section.kind != _RELA or section.info not in self._places:
                continue
            for position, info, addend in _RELOCATION.iter_unpack(self._bytes(section)):
                kind = info & 0xFFFFFFFF
                if kind not in fill_in_of:
                    raise UnlinkableError(f"relocation {kind} of machine {self._machine} is not known here")
                target = self._place(self._symbols[info >> 32]) + addend
                fill_in_of[kind](self._code, self._places[section.info] + position, target)

    def _place(self, symbol: _Symbol) -> int:
        if symbol.section not in self._places:
            name = self._text(self._symbol_names + symbol.name)
            raise UnlinkableError(f"{name} is not part of the kernel")
        return self._places[symbol.section] + symbol.value

    def _bytes(self, section: _Section) -> bytes:
        return self._data[section.position : section.position + section.size]

    def _text(self, position: int) -> str:
        return self._data[position : self._data.index(b"\0", position)].decode()
