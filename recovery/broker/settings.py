"""Settings as Kafka reads them: text in layers, and the types and limits that turn it into values.

A layer is one place that can hold settings: the properties file, `--property`, dynamic records. The first
layer that has a key decides. Values are trimmed and parsed as Kafka's ConfigDef does it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from recovery.errors import UsageError
from segfmt.java_text import LONG_MIN, parse_int, parse_long

_COMMA = re.compile(r"[ \t\n\x0b\f\r]*,[ \t\n\x0b\f\r]*")
_JAVA_BLANKS = "".join(map(chr, range(33)))

_T_co = TypeVar("_T_co", covariant=True)


class Kind(Protocol[_T_co]):
    """A type with its limits."""

    @property
    def expected(self) -> str:
        """What a valid value is, as the text after 'expected'."""

    def read(self, text: str) -> _T_co | None:
        """Return the value of *text*, None if Kafka throws a ConfigException."""


@dataclass(frozen=True, slots=True)
class IntKind:
    """An int32 of at least *minimum*. Kafka: ConfigDef.Type.INT, Range.atLeast."""

    minimum: int

    @property
    def expected(self) -> str:
        """The type and its lower limit."""
        return f"an int32 of at least {self.minimum}"

    def read(self, text: str) -> int | None:
        """Return the number in *text*, None if it is not an int32 or too small."""
        value = parse_int(text.strip(_JAVA_BLANKS))
        return value if value is not None and value >= self.minimum else None


@dataclass(frozen=True, slots=True)
class LongKind:
    """An int64 of at least *minimum*. Kafka: ConfigDef.Type.LONG, Range.atLeast."""

    minimum: int

    @property
    def expected(self) -> str:
        """The type and its lower limit."""
        return "an int64" if self.minimum == LONG_MIN else f"an int64 of at least {self.minimum}"

    def read(self, text: str) -> int | None:
        """Return the number in *text*, None if it is not an int64 or too small."""
        value = parse_long(text.strip(_JAVA_BLANKS))
        return value if value is not None and value >= self.minimum else None


@dataclass(frozen=True, slots=True)
class BooleanKind:
    """Kafka: ConfigDef.Type.BOOLEAN."""

    expected: str = "true or false"

    def read(self, text: str) -> bool | None:
        """Return the boolean in *text*, in any case of letters, None if it is not one."""
        return {"true": True, "false": False}.get(text.strip(_JAVA_BLANKS).lower())


@dataclass(frozen=True, slots=True)
class TextKind:
    """Kafka: ConfigDef.Type.STRING."""

    expected: str = "a text"

    def read(self, text: str) -> str | None:
        """Return *text*, trimmed."""
        return text.strip(_JAVA_BLANKS)


@dataclass(frozen=True, slots=True)
class ListKind:
    """Names between commas, each counted once. Kafka: ConfigDef.Type.LIST, ValidList.

    Attributes:
        is_empty_allowed: whether the list may have no entry; an entry may never be empty.
        choices: the only entries allowed; if empty, any are.
    """

    is_empty_allowed: bool = True
    choices: tuple[str, ...] = ()

    @property
    def expected(self) -> str:
        """What the list may hold."""
        entries = f"out of {', '.join(self.choices)}" if self.choices else "that are not empty"
        return f"{'' if self.is_empty_allowed else 'one or more '}entries {entries}, separated by commas"

    def read(self, text: str) -> tuple[str, ...] | None:
        """Return the entries in *text*, None if one is not allowed or a required one is missing."""
        entries = tuple(dict.fromkeys(list_entries(text)))
        if not entries:
            return () if self.is_empty_allowed else None
        if "" in entries or (self.choices and not set(self.choices).issuperset(entries)):
            return None
        return entries


def list_entries(text: str) -> list[str]:
    """Return the entries of a list as written, repeated ones repeatedly. Kafka: ConfigDef.parseType."""
    trimmed = text.strip(_JAVA_BLANKS)
    return _COMMA.split(trimmed) if trimmed else []


@dataclass(frozen=True, slots=True)
class Key(Generic[_T_co]):
    """A setting's name and kind."""

    name: str
    kind: Kind[_T_co]


@dataclass(frozen=True, slots=True)
class Layer:
    """Settings from one place.

    Attributes:
        origin: where they come from, as the user knows it: a file name, an option, a record.
        values: text by key.
    """

    origin: str
    values: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Settings:
    """Layers of settings, the one that takes precedence first.

    Attributes:
        override: the option that wins over all layers, with `KEY` for the key.
    """

    layers: tuple[Layer, ...]
    override: str = "--property KEY=..."

    def find(self, key: Key[_T_co]) -> _T_co | None:
        """Return the value of *key* from the first layer that has it, None if none does.

        Raises:
            UsageError: that value is not of its kind, or is a reference to another one (`${provider:...}`).
        """
        layer = self.layer_with(key)
        return None if layer is None else self._read(key, layer)

    def layer_with(self, key: Key[object]) -> Layer | None:
        """Return the layer that decides *key*, None if there is none."""
        return next((layer for layer in self.layers if key.name in layer.values), None)

    def _read(self, key: Key[_T_co], layer: Layer) -> _T_co:
        text = layer.values[key.name]
        override = self.override.replace("KEY", key.name)
        is_override = layer.origin.startswith(self.override.split()[0])
        remedy = "correct it" if is_override else f"correct it there, or override it with {override}"
        if "${" in text and any("config.providers" in other.values for other in self.layers):
            raise UsageError(
                f"{layer.origin}: {key.name}={text} refers to a config provider, and those are not run here; "
                f"{'give its value' if is_override else f'override it with {override}'}"
            )
        value = key.kind.read(text)
        if value is None:
            raise UsageError(f"{layer.origin}: {key.name}={text}: expected {key.kind.expected}; {remedy}")
        return value


def valid_entries(values: Mapping[str, str], keys: tuple[Key[object], ...]) -> dict[str, str]:
    """Return those of *values* that belong to *keys* and are valid; a broker ignores the rest.

    Kafka: DynamicBrokerConfig.removeInvalidConfigs.
    """
    return {
        key.name: values[key.name]
        for key in keys
        if key.name in values and key.kind.read(values[key.name]) is not None
    }
