r"""`/jolokia/read/<MBean or pattern>[/<attribute>]`: the gauges by the names of KIP-831, as Jolokia's agent has them.

    GET /jolokia/read/kafka.log:type=LogManager,*
    {"request":{"mbean":"kafka.log:type=LogManager,*","attribute":[],"type":"read"},
     "value":{"kafka.log:type=LogManager,name=remainingLogsToRecover,dir=\"/d1\"":{"Value":5}, ...},
     "status":200,"timestamp":1795456864}

Only MBeans `kafka.log:type=LogManager` are there; any other is answered as by an agent whose JVM has none of that
name. In a path `!` escapes `/` and itself, and `"` is %22. Shape, errors and the order of keys in names are those of
the agent's version 2; version 1 sorts the keys of names.

Differs: a thread that has not recovered anything yet has 0, where a broker has null (see `gauges`); a path within a
value is always null; a malformed name is refused in words of our own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from recovery.watch.figures import OF_ARCHIVES, GaugeValues

_PROPERTY = re.compile(r'([^,=:"*?]+)=("(?:[^"\\\n]|\\[\\"*?n])*"|[^,=:"]*)(?:,|$)')
_REST = re.compile(r"\*(?:,|$)")
_ESCAPED = re.compile(r"!(.)", re.DOTALL)
_IN_QUOTES = str.maketrans({"\\": r"\\", '"': r"\"", "*": r"\*", "?": r"\?", "\n": r"\n"})


class MalformedNameError(ValueError):
    """The path has no name of an MBean; the message says why."""


class _Name(NamedTuple):
    """An ObjectName.

    Attributes:
        properties: quotes of values included, in the order given.
        has_more: `*` among the properties: others may follow.
    """

    text: str
    domain: str
    properties: dict[str, str]
    has_more: bool

    @property
    def is_pattern(self) -> bool:
        return self.has_more or any(_wildcards(text) for text in (self.domain, *self.properties.values()))

    @property
    def canonical(self) -> str:
        """The name with its keys sorted. Java: ObjectName.getCanonicalName."""
        sorted_properties = [f"{key}={value}" for key, value in sorted(self.properties.items())]
        return f"{self.domain}:{','.join([*sorted_properties, *['*'] * self.has_more])}"

    def matches(self, other: _Name) -> bool:
        """Return whether *other*, which is no pattern, is one of these. Java: ObjectName.apply."""
        if not _matches(self.domain, other.domain):
            return False
        if not self.has_more and self.properties.keys() != other.properties.keys():
            return False
        return all(
            key in other.properties and _matches(value, other.properties[key])
            for key, value in self.properties.items()
        )


def read(path: str, values: GaugeValues, *, now_s: int) -> dict[str, Any]:
    """Return the agent's answer to *path*, what follows `/jolokia/read/`, with escapes of URLs undone.

    Raises:
        MalformedNameError: the path begins with no name of an MBean, or with none that Java accepts.
    """
    mbean, *more = _parts(path)
    name = _name(mbean)
    attribute, inner = (more[0] if more else ""), more[1:]
    request: dict[str, Any] = {"path": "/".join(inner)} if inner else {}
    request |= {
        "mbean": name.canonical if name.is_pattern else name.text,
        "attribute": [] if not attribute else attribute.split(",") if "," in attribute else attribute,
        "type": "read",
    }
    found = {bean.text: int(value) for bean, value in _beans(values) if name.matches(bean)}
    wanted = attribute.split(",") if attribute else ["Value"]
    if error := _error(name, found, wanted):
        return {"request": request} | error
    if inner:
        value: Any = None
    elif name.is_pattern:
        value = {text: {"Value": gauge} for text, gauge in found.items()}
    else:
        (gauge,) = found.values()
        value = gauge if len(wanted) == 1 and attribute else {"Value": gauge}
    return {"request": request, "value": value, "status": 200, "timestamp": now_s}


def _error(name: _Name, found: dict[str, int], wanted: list[str]) -> dict[str, Any] | None:
    """Return what is wrong: no such MBean, or no such attribute; a pattern takes what is there."""
    missing = [attribute for attribute in wanted if attribute != "Value"]
    if not found:
        kind = "InstanceNotFoundException"
        text = f"No MBean with pattern {name.text} found for READ request" if name.is_pattern else name.text
    elif missing and not name.is_pattern:
        kind, text = "AttributeNotFoundException", f"No such attribute: {missing[0]}"
    elif len(missing) == len(wanted):
        kind = "AttributeNotFoundException"
        text = f"No attribute found for any MBean matching {name.text} pattern"
    else:
        return None
    kind = f"javax.management.{kind}"
    return {"error_type": kind, ".error": True, "error_type_jmx": kind, "error": text, "status": 404}


def _beans(values: GaugeValues) -> Iterator[tuple[_Name, int]]:
    """Yield a broker's gauges, with their values. Kafka: LogManager, its addLogRecoveryMetrics."""
    for log_dir in values.log_dirs:
        of_dir = {"dir": _quoted(log_dir.log_dir)}
        if log_dir.remaining_logs is not None:
            yield _bean({"name": "remainingLogsToRecover"} | of_dir), log_dir.remaining_logs
        for thread_num, remaining in enumerate(log_dir.remaining_segments):
            of_thread = {"name": "remainingSegmentsToRecover"} | of_dir | {"threadNum": str(thread_num)}
            yield _bean(of_thread), remaining
    if values.command in OF_ARCHIVES:
        return
    for one, count, states in (
        ("LogDirectoryOffline", "OfflineLogDirectoryCount", [one.is_offline for one in values.log_dirs]),
        ("LogDirectoryCordoned", "CordonedLogDirectoryCount", [one.is_cordoned for one in values.log_dirs]),
    ):
        known = [state for state in states if state is not None]
        for log_dir, state in zip(values.log_dirs, states, strict=True):
            if state is not None:
                yield _bean({"name": one, "logDirectory": _quoted(log_dir.log_dir)}), state
        if known:
            yield _bean({"name": count}), sum(known)


def _bean(properties: dict[str, str]) -> _Name:
    properties = {"type": "LogManager"} | properties
    text = "kafka.log:" + ",".join(f"{key}={value}" for key, value in properties.items())
    return _Name(text, "kafka.log", properties, has_more=False)


def _quoted(path: str) -> str:
    """Return *path* in quotes. Kafka: Sanitizer.jmxSanitize, for which a slash is enough; Java: ObjectName.quote."""
    return f'"{path.translate(_IN_QUOTES)}"'


def _parts(path: str) -> list[str]:
    """Return the parts of *path* between slashes; `!` takes the special meaning from what follows it."""
    parts = re.findall(r"(?:[^!/]|!.|!$)+", path, re.DOTALL)
    if not parts:
        raise MalformedNameError(
            "Read GET requests require at least 1 path element for ObjectName to read from"
        )
    return [_ESCAPED.sub(r"\1", part) for part in parts]


def _name(text: str) -> _Name:
    """Return *text* as a name. Java: ObjectName(String)."""
    domain, colon, rest = text.partition(":")
    if not colon or not rest:
        raise MalformedNameError("Key properties cannot be empty")
    properties: dict[str, str] = {}
    has_more = False
    position = 0
    while position < len(rest):
        if _REST.match(rest, position) and not has_more:
            has_more = True
            position += 2
            continue
        found = _PROPERTY.match(rest, position)
        if found is None:
            raise MalformedNameError(f"Invalid key property: {rest[position:]}")
        if found[1] in properties:
            raise MalformedNameError(f"key `{found[1]}' already defined")
        properties[found[1]] = found[2]
        position = found.end()
    if rest.endswith(","):
        raise MalformedNameError("Invalid ending comma")
    return _Name(text, domain, properties, has_more)


def _wildcards(text: str) -> bool:
    return (
        re.search(r"(?<!\\)[*?]", text) is not None if text.startswith('"') else bool(set(text) & set("*?"))
    )


def _matches(pattern: str, text: str) -> bool:
    """Return whether *text* is one of *pattern*: `*` any characters, `?` any one; in quotes not behind a backslash."""
    escape = r"\\.|" if pattern.startswith('"') else ""
    parts = re.findall(rf"{escape}.", pattern, re.DOTALL)
    expression = "".join({"*": ".*", "?": "."}.get(part, re.escape(part)) for part in parts)
    return re.fullmatch(expression, text, re.DOTALL) is not None
