"""As much of JSON Schema as docs/reference/report.md uses; an unknown keyword is an error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_TYPES = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "boolean": bool,
    "null": type(None),
}
_KEYWORDS = {
    "$schema",
    "$defs",
    "$ref",
    "title",
    "description",
    "type",
    "const",
    "enum",
    "properties",
    "required",
}
_KEYWORDS |= {"additionalProperties", "items", "minimum"}


def violations(
    value: object, schema: Mapping[str, Any], root: Mapping[str, Any] | None = None, at: str = "$"
) -> list[str]:
    """Where *value* is not as *schema* says, one line each."""
    root = schema if root is None else root
    assert set(schema) <= _KEYWORDS, set(schema) - _KEYWORDS
    if "$ref" in schema:
        return violations(value, root["$defs"][schema["$ref"].removeprefix("#/$defs/")], root, at)
    found = []
    if "const" in schema and value != schema["const"]:
        found.append(f"{at}: {value!r} is not {schema['const']!r}")
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{at}: {value!r} is none of {schema['enum']}")
    if "type" in schema and not _is_of(value, schema["type"]):
        return [*found, f"{at}: {value!r} is no {schema['type']}"]
    if "minimum" in schema and isinstance(value, int) and value < schema["minimum"]:
        found.append(f"{at}: {value} is less than {schema['minimum']}")
    if isinstance(value, dict):
        found += _object_violations(value, schema, root, at)
    if isinstance(value, list) and "items" in schema:
        for number, item in enumerate(value):
            found += violations(item, schema["items"], root, f"{at}[{number}]")
    return found


def _is_of(value: object, names: str | list[str]) -> bool:
    names = [names] if isinstance(names, str) else names
    if isinstance(value, bool):
        return "boolean" in names
    return any(isinstance(value, _TYPES[name]) for name in names)


def _object_violations(
    value: Mapping[str, object], schema: Mapping[str, Any], root: Mapping[str, Any], at: str
) -> list[str]:
    properties = schema.get("properties", {})
    found = [f"{at}.{key}: missing" for key in schema.get("required", ()) if key not in value]
    for key, item in value.items():
        if key in properties:
            found += violations(item, properties[key], root, f"{at}.{key}")
        elif schema.get("additionalProperties") is False:
            found.append(f"{at}.{key}: not in the schema")
    return found
