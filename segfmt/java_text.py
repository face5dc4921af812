"""Text as Java reads it where that differs from Python: numbers, lines, white space, UTF-8 errors.

Kafka parses checkpoints, properties and file names with plain Java calls, whose tolerance decides whether a
log dir goes online. Every function here is total: it returns a value, or None if Java throws.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

INT_MIN, INT_MAX = -(2**31), 2**31 - 1
LONG_MIN, LONG_MAX = -(2**63), 2**63 - 1
"""Java's Long.MIN_VALUE and Long.MAX_VALUE."""

WHITE_SPACE = " \t\n\x0b\f\r"
"""The characters of `\\s` in a Java pattern; Python's own `\\s` knows many more."""

_LINE_END = re.compile(r"\r\n|\r|\n")
_WHITE_SPACES = re.compile(r"[ \t\n\x0b\f\r]+")
_READER_WINDOW_CHARS = 8192
_MOST_DIGITS = 20  # of nearly every number in practice


def parse_int(text: str) -> int | None:
    """Return the int32 that *text* spells, None if Java throws NumberFormatException.

    Kafka: Integer.parseInt. One sign is allowed, so are leading zeros and the decimal digits of any script in
    the Basic Multilingual Plane; blanks and underscores are not.
    """
    return _parse(text, INT_MIN, INT_MAX)


def parse_long(text: str) -> int | None:
    """Return the int64 that *text* spells, None if Java throws NumberFormatException.

    Kafka: Long.parseLong.
    """
    return _parse(text, LONG_MIN, LONG_MAX)


def _parse(text: str, minimum: int, maximum: int) -> int | None:
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not digits:
        return None
    is_plain = digits.isascii() and digits.isdecimal() and len(digits) <= _MOST_DIGITS
    value = int(digits) if is_plain else _decimal_value(digits, maximum)
    if value is None:
        return None
    if text[0] == "-":
        value = -value
    return value if minimum <= value <= maximum else None


def _decimal_value(digits: str, maximum: int) -> int | None:
    """Return what *digits* of any script spell, None if one is not a digit or the value is far too great."""
    value = 0
    for character in digits:
        digit = unicodedata.decimal(character, -1) if character <= "\uffff" else -1
        if digit < 0:
            return None
        value = value * 10 + digit
        if value > maximum + 1:  # this also bounds the work on a line of a million digits
            return None
    return value


def split_white_space(line: str) -> list[str]:
    r"""Split *line* as Java's `Pattern.compile("\\s+").split(line)` does.

    A leading blank gives a leading empty token; trailing empty tokens are dropped.
    """
    return drop_trailing_empty(_WHITE_SPACES.split(line))


def drop_trailing_empty(tokens: list[str]) -> list[str]:
    """Return *tokens* as `Pattern.split` leaves them: without empty ones at the end, a lone token kept."""
    if len(tokens) == 1:
        return tokens
    end = len(tokens)
    while end > 0 and not tokens[end - 1]:
        end -= 1
    return tokens[:end]


def read_lines(data: bytes) -> Iterator[str]:
    """Yield the lines of UTF-8 *data* as `BufferedReader.readLine` hands them out.

    Lines end with LF, CR or CR LF; an unfinished last line counts if it is not empty. The reader decodes 8192
    characters ahead, so lines before the window that holds the first invalid byte are still yielded; a
    character that is cut off by the end of the data is an error only there.

    Raises:
        UnicodeDecodeError: at the first window with invalid UTF-8 (Kafka: MalformedInputException, an
            IOException).
    """
    damage: UnicodeDecodeError | None = None
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        text, damage = _readable_text(data, error), error
    *lines, last = _LINE_END.split(text)
    yield from lines
    if damage is not None:
        raise damage
    if last:
        yield last


def _readable_text(data: bytes, error: UnicodeDecodeError) -> str:
    text = data[: error.start].decode("utf-8")
    if error.reason == "unexpected end of data":
        return text
    units = text.encode("utf-16-le")  # Java's window counts UTF-16 units
    readable_units = len(units) // 2 // _READER_WINDOW_CHARS * _READER_WINDOW_CHARS
    return units[: 2 * readable_units].decode("utf-16-le", "surrogatepass")
