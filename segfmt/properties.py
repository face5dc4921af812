r"""Java `.properties` files: `server.properties`, `meta.properties`.

    # comment              ! comment
    key = value            key: value            key value
    long = one, \
           two

ISO-8859-1, because Kafka reads them through a stream; `\uXXXX`, `\t`, `\n`, `\r`, `\f` are escapes, a backslash
before any other character is dropped, and one at the end of a line joins the next line to it, without its
leading blanks.

Java: java.util.Properties.load(InputStream), store. Kafka: Utils.loadProps, PropertiesUtils.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from segfmt.errors import MalformedPropertiesError

_BLANKS = " \t\f"
_LINE_END = re.compile(r"\r\n|\r|\n")
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_SAVED_ESCAPES = {"\t": r"\t", "\n": r"\n", "\r": r"\r", "\f": r"\f", "\\": r"\\"}
_HEX_DIGITS = frozenset("0123456789abcdefABCDEF")


def read_properties(data: bytes) -> dict[str, str]:
    r"""Return key and value of each entry; if a key repeats, the later one counts.

    Raises:
        MalformedPropertiesError: a `\u` without four hex digits, which Java does not accept either.

    Java: Properties.load(InputStream).
    """
    return dict(_entries(data))


def repeated_keys(data: bytes) -> list[str]:
    """Return the keys that have more than one value in *data*, in their order.

    Raises:
        MalformedPropertiesError: as `read_properties`.
    """
    values: dict[str, set[str]] = {}
    for key, value in _entries(data):
        values.setdefault(key, set()).add(value)
    return [key for key, different in values.items() if len(different) > 1]


def _entries(data: bytes) -> Iterator[tuple[str, str]]:
    for position, line in _logical_lines(data.decode("iso-8859-1")):
        key, value = _split(line)
        yield _unescape(key, position), _unescape(value, position)


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """Return *properties* in their order, one line each, readable by `read_properties`.

    Java: Properties.store(OutputStream), without its comment and date.
    """
    lines = [
        f"{_escape(key, is_key=True)}={_escape(value, is_key=False)}\n" for key, value in properties.items()
    ]
    return "".join(lines).encode("ascii")


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield each entry's line, continuations joined, with the position of its first byte."""
    position = start = 0
    joined = ""
    ends = [match.end() for match in _LINE_END.finditer(text)]
    for piece, end in zip(_LINE_END.split(text), [*ends, None], strict=True):
        line = piece.lstrip(_BLANKS)
        if not joined:  # an entry that has nothing yet may still turn out to be a comment
            start = position
            if not line or line[0] in "#!":
                position = end or 0
                continue
        position = end or 0
        is_continued = _is_continued(line)
        joined += line[:-1] if is_continued else line
        # A lone backslash at the end of the file is an empty entry, with or without another line feed after it.
        is_last = end is None or (end == len(text) and not text.endswith("\r\n"))
        if is_last or not is_continued:
            yield start, joined
            joined = ""


def _is_continued(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _split(line: str) -> tuple[str, str]:
    end = 0
    while end < len(line) and line[end] not in "=:" + _BLANKS:
        end += 2 if line[end] == "\\" else 1
    end = min(end, len(line))
    value = line[end:].lstrip(_BLANKS)
    if value[:1] in ("=", ":"):
        value = value[1:].lstrip(_BLANKS)
    return line[:end], value


def _unescape(text: str, position: int) -> str:
    if "\\" not in text:
        return text
    units: list[str] = []
    place = 0
    while place < len(text):
        character = text[place]
        place += 1
        if character != "\\" or place == len(text):
            units.append(character if character != "\\" else "")
            continue
        escaped = text[place]
        place += 1
        if escaped != "u":
            units.append(_ESCAPES.get(escaped, escaped))
            continue
        digits = text[place : place + 4]
        if len(digits) < 4 or not _HEX_DIGITS.issuperset(digits):
            raise MalformedPropertiesError(
                f"entry at byte {position}: malformed \\u{digits} escape, expected four hex digits",
                position=position,
            )
        units.append(chr(int(digits, 16)))
        place += 4
    return "".join(units).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def _escape(text: str, *, is_key: bool) -> str:
    escaped: list[str] = []
    for place, character in enumerate(text):
        if character == " ":
            escaped.append("\\ " if is_key or place == 0 else " ")
        elif character in _SAVED_ESCAPES:
            escaped.append(_SAVED_ESCAPES[character])
        elif character in "=:#!":
            escaped.append("\\" + character)
        elif " " <= character <= "~":
            escaped.append(character)
        else:
            units = character.encode("utf-16-be", "surrogatepass").hex().upper()
            escaped.extend(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
    return "".join(escaped)
