"""The members of JSON objects written by others, each with the type that it must have.

Every deviation is a `MalformedManifestError` that says where in the document it is; members that are not asked for
are ignored.
"""

from __future__ import annotations

import json
from typing import Any, Final

from segfmt.errors import MalformedManifestError

_REQUIRED: Final = object()


class JsonObject:
    """One object of a document.

    Args:
        members: by name.
        path: of the object in the document, for messages.
    """

    __slots__ = ("_members", "_path")

    def __init__(self, members: dict[str, Any], path: str = "") -> None:
        self._members = members
        self._path = path

    @property
    def members(self) -> dict[str, Any]:
        """All members as they were read."""
        return self._members

    def has(self, name: str) -> bool:
        """Return whether a member is present and not null."""
        return self._members.get(name) is not None

    def integer(self, name: str, low: int, high: int, *, default: int | None = None) -> int:
        """Return a whole number, low <= number <= high; *default* if it is missing or null."""
        if default is not None and not self.has(name):
            return default
        value = self._get(name)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise self.error(name, f"{_shown(value)} is no whole number from {low} to {high}")
        return value

    def text(self, name: str) -> str:
        """Return a string."""
        value = self._get(name)
        if not isinstance(value, str):
            raise self.error(name, f"{_shown(value)} is no string")
        if not value.isascii() and any("\ud800" <= char <= "\udfff" for char in value):
            raise self.error(name, "holds half of a surrogate pair")
        return value

    def flag(self, name: str, *, default: bool | None = None) -> bool:
        """Return true or false; *default* if it is missing or null."""
        if default is not None and not self.has(name):
            return default
        value = self._get(name)
        if not isinstance(value, bool):
            raise self.error(name, f"{_shown(value)} is neither true nor false")
        return value

    def child(self, name: str) -> JsonObject:
        """Return an object."""
        value = self._get(name)
        if not isinstance(value, dict):
            raise self.error(name, f"{_shown(value)} is no object")
        return JsonObject(value, f"{self._path}{name}.")

    def error(self, name: str, words: str) -> MalformedManifestError:
        """Return an error about the member *name*."""
        return MalformedManifestError(f"{self._path}{name}: {words}")

    def _get(self, name: str) -> object:
        value = self._members.get(name, _REQUIRED)
        if value is _REQUIRED:
            raise self.error(name, "missing")
        return value


def read_json_object(data: bytes) -> JsonObject:
    """Return the object in *data*.

    Raises:
        MalformedManifestError: not JSON in UTF-8, nested too deeply, or not an object.
    """
    try:
        value = json.loads(data.decode("utf-8"))
    except json.JSONDecodeError as error:
        raise MalformedManifestError(f"not JSON: {error.msg}", position=error.pos) from error
    except UnicodeDecodeError as error:
        raise MalformedManifestError(f"byte {error.start} is not UTF-8", position=error.start) from error
    except (RecursionError, ValueError) as error:
        raise MalformedManifestError(f"not JSON that can be read: {error}") from error
    if not isinstance(value, dict):
        raise MalformedManifestError(f"{_shown(value)} is no JSON object")
    return JsonObject(value)


def _shown(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 1 << 64:
        return "a number of more than 64 bits"
    return "an object" if isinstance(value, dict) else f"{value!r:.80}"
