"""Options of the data source as texts, read by name in upper or lower case."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import TypeVar

from recovery.archive.layouts.aiven_cipher import NO_KEYS, AivenKeys, load_aiven_keys
from recovery.errors import UsageError
from segfmt.java_text import LONG_MAX

_DATE = re.compile(r"(19|20)[0-9]{2}(0[1-9]|1[0-2])(0[1-9]|[12][0-9]|3[01])")
"""A day in the basic format of ISO 8601. As ms it would be of the first hours of 1970."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_Value = TypeVar("_Value", bound=Enum)


class OptionReader:
    """Reads values, and says which option has an invalid one.

    Args:
        options: as Spark passes them.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self._values = {name.lower(): value for name, value in options.items()}

    def text(self, name: str) -> str:
        """Return the text of an option, empty without it."""
        return (self._values.get(name.lower()) or "").strip()

    def several(self, name: str) -> tuple[str, ...]:
        """Return the parts of a text with commas."""
        return tuple(part.strip() for part in self.text(name).split(",") if part.strip())

    def one_of(self, name: str, values: tuple[str, ...], default: str) -> str:
        """Return the text of an option that must be one of *values*."""
        value = self.text(name) or default
        if value not in values:
            raise UsageError(f"{name}={value}: expected one of {', '.join(values)}")
        return value

    def member(self, name: str, kind: type[_Value], default: _Value) -> _Value:
        """Return the member of an enumeration that has the option's value."""
        names = tuple(value.value for value in kind)
        return kind(self.one_of(name, names, default.value))

    def flag(self, name: str, *, is_default: bool) -> bool:
        """Return whether an option is true; as in Spark, its case does not matter."""
        value = self.text(name).lower() or ("true" if is_default else "false")
        if value not in ("true", "false"):
            raise UsageError(f"{name}={self.text(name)}: expected one of true, false")
        return value == "true"

    def number(self, name: str, default: int, least: int, most: int) -> int:
        """Return a number from *least* to *most*."""
        text = self.text(name) or str(default)
        if not text.isascii() or not text.isdigit() or not least <= int(text) <= most:
            raise UsageError(f"{name}={text}: expected a number from {least} to {most}")
        return int(text)

    def offset(self, name: str) -> int | None:
        """Return an offset, None without the option."""
        return self.number(name, 0, 0, LONG_MAX) if self.text(name) else None

    def time_ms(self, name: str) -> int | None:
        """Return a time, in ISO 8601 or in ms since the epoch, rounded up to ms."""
        text = self.text(name)
        if _DATE.fullmatch(text):
            raise UsageError(
                f"{name}={text}: a day, or ms since the epoch? Write {text[:4]}-{text[4:6]}-{text[6:]} for the day"
            )
        if not text or (text.isascii() and text.isdigit()):
            return int(text) if text else None
        try:
            time = datetime.fromisoformat(text)
        except ValueError:
            raise UsageError(
                f"{name}={text}: expected a time such as 2026-11-22T06:00:00Z, or ms since the epoch"
            ) from None
        utc = time.replace(tzinfo=time.tzinfo or UTC)
        return -((_EPOCH - utc) // timedelta(milliseconds=1))

    def keys(self) -> AivenKeys:
        """Return the RSA keys of `aivenKeys`."""
        pairs = [part.partition("=") for part in self.several("aivenKeys")]
        return load_aiven_keys({key_id: path for key_id, _, path in pairs}) if pairs else NO_KEYS
