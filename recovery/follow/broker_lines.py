"""What a line of a broker's log says of a load of logs: text in, values out.

The words are those of 2.8 to 4.4, and of this tool's `--progress log`, whose fields give sizes as well. They are looked
for anywhere in a line, whatever layout or collector put in front of them or behind.

    2.x       [Log partition=T-P, dir=D] Recovering unflushed segment B
    3.0       [LogLoader partition=T-P, dir=D] Recovering unflushed segment B
    3.3-3.9   ... B. x/y recovered for T-P.
    4.x       ... B. 0 recovered for T-P.           (a quotient, always 0)

Log dirs hold no comma, which separates them in `log.dirs`; topics are of letters, digits, `.`, `_` and `-`.

Kafka: LogManager.loadLogs, LogLoader.recoverLog (up to 2.8 Log.recoverLog), LogSegment.recover, UnifiedLog.toString.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Callable
from dataclasses import dataclass

from recovery.watch.events import Level


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerBegan:
    """A process of the broker has begun to log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRuns:
    """The broker has started: whatever it had to load is loaded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerEnded:
    """The broker has shut down, or says that it is about to die."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadBegan:
    """Logs are about to be loaded.

    Attributes:
        log_dirs: those that are not offline.
        has_java_log_manager: whether they are listed as Java lists them: 4.4 and later.
    """

    log_dirs: tuple[str, ...]
    has_java_log_manager: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirListed:
    """The logs of a log dir are counted.

    Attributes:
        log_count: None before 3.5, which does not say.
        unflushed_segments, unflushed_bytes: said by this tool alone.
    """

    log_dir: str
    had_clean_shutdown: bool
    log_count: int | None = None
    unflushed_segments: int | None = None
    unflushed_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogTouched:
    """The load of a log has got somewhere."""

    log_dir: str
    partition: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentBegan:
    """The recovery of a segment begins.

    Attributes:
        partition: T-P, whatever the folder's name.
        ordinal, count: x of y; None where the release does not say.
        size_bytes: said by this tool alone.
    """

    log_dir: str
    partition: str
    base_offset: int
    ordinal: int | None = None
    count: int | None = None
    size_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentCut:
    """A segment is cut; those behind it are deleted.

    Attributes:
        position: size in bytes that it is cut to, None where the line does not say.
    """

    log_dir: str
    partition: str
    base_offset: int
    text: str
    position: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLoaded:
    """A log is loaded, or could not be.

    Attributes:
        log_dir: the folder that the log lies in; after a `-stray` renaming too.
        folder: its name.
        partition: T-P.
        is_failed: whether it could not be loaded.
        finished_count, log_count: i of N.
        status, truncated_bytes, truncated_batches, reason: how it ended, and why; None, 0, 0 and "" from a broker,
            which does not say.
    """

    log_dir: str
    folder: str
    partition: str
    is_failed: bool = False
    status: str | None = None
    truncated_bytes: int = 0
    truncated_batches: int = 0
    reason: str = ""
    segment_count: int = 0
    log_start_offset: int = 0
    log_end_offset: int = 0
    duration_ms: int = 0
    finished_count: int = 0
    log_count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirFailed:
    """A log dir goes offline."""

    log_dir: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadEnded:
    """All logs are loaded, or, of this tool, the run has ended otherwise.

    Attributes:
        exit_code: of this tool's run; None from a broker.
    """

    log_count: int
    is_complete: bool = True
    exit_code: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Something about a load that has no figure."""

    level: Level
    text: str
    log_dir: str | None = None
    partition: str | None = None


Said = (
    BrokerBegan
    | BrokerRuns
    | BrokerEnded
    | LoadBegan
    | LogDirListed
    | LogTouched
    | SegmentBegan
    | SegmentCut
    | LogLoaded
    | LogDirFailed
    | LoadEnded
    | Trouble
)

_METADATA = "__cluster_metadata-"
_OF_LOADER = re.compile(
    r"\[Log(?:Loader)? partition=(?P<partition>[^,\]]+), dir=(?P<dir>.+?)\] (?P<words>"
    r"Recovering unflushed segment (?P<base>-?\d+)"
    r"(?:\. (?:(?P<x>\d+)/(?P<y>\d+)|\d+) recovered for .*?\.)?"
    r"|(?P<cut_words>Corruption found in segment (?P<cut>-?\d+), truncating to offset -?\d+)"
    r"|(?P<trouble>Found invalid offset during recovery|Deleting all segments because|Could not find offset index|"
    r"Found a corrupted index|Found an orphaned index)"
    r"|(?:Loading producer state|Reloading from producer|Producer state recovery|Found log file|Recovering file))"
)
_LOADED = re.compile(
    r"Completed load of Log\(dir=(?P<path>.+?)(?:, topicId=(?:Some\()?[\w-]+\)?)?, topic=(?P<topic>[^,]+), "
    r"partition=(?P<number>-?\d+), .*?logStartOffset=(?P<start>-?\d+), logEndOffset=(?P<end>-?\d+)\) "
    r"with (?P<segments>\d+) segments.*? in (?P<ms>\d+)ms \((?P<i>\d+)/(?P<n>\d+) (?:completed|loaded) in "
)
_NOT_LOADED = re.compile(
    r"Error while loading logs in (?P<path>.+?) in (?P<ms>\d+)ms \((?P<i>\d+)/(?P<n>\d+) (?:completed|loaded) in "
)
_BEGAN = re.compile(
    r"Loading logs from log dirs (?P<list>[A-Za-z]*[(\[])(?P<dirs>.*?)[)\]](?= [a-z(]|[\"\s]*$)"
)
_CLEAN = re.compile(
    r"Skipping recovery (?:of (?P<n>\d+) logs from|for all logs in) (?P<dir>.+?) since clean shutdown file was found"
)
_UNCLEAN = re.compile(
    r"(?:Recovering (?P<n>\d+) logs from|Attempting recovery for all logs in) (?P<dir>.+?) "
    r"since no clean shutdown file was found"
)
_WITHOUT_LOGS = re.compile(r"No logs found to be loaded in (?P<dir>.+?)(?= \([\w.$]+\)|[\"\s]*$)")
_ENDED = re.compile(r"Loaded (?P<n>\d+) logs in \d+ms")
_OWN_END = re.compile(r"Interrupted; start the same command again|Recovery ended early\.")
_DIR_FAILED = re.compile(
    r"(?:Error while loading log dir|Stopping serving logs in dir) (?P<dir>.+?)(?= error=| \([\w.$]+\)|[\"\s]*$)"
)
_INVALID = re.compile(
    r"Found invalid messages in log segment (?P<path>.+?)/(?P<base>-?\d+)\.log at byte offset (?P<position>\d+)"
)
_LAST_WORDS = re.compile(
    r"Exiting Kafka due to fatal exception|Exiting Kafka\.|Shutdown broker because [^(]*|Error starting LogManager"
    r"|\[(?:Broker|Kafka)Server id=-?\d+\] shut down completed|App info kafka\.server for \S+ unregistered"
    r"|Fatal error during (?:broker|KafkaServer) startup|Terminating process due to signal \w+"
)
_RUNS = re.compile(
    r"\[Broker(?:Server|LifecycleManager) id=-?\d+\] "
    r"(?:Transition from STARTING to STARTED|The broker has been unfenced)"
    r"|\[KafkaServer id=-?\d+\] started|Kafka Server started"
)
_BEGINS = re.compile(r"kafka\.Log4jController MBean|kafka:type=kafka\.Log4jController")
_FIELD = re.compile(
    r" (size_bytes|unflushed_segments|unflushed_bytes|truncated_bytes|truncated_batches|exit_code)=(\d+)"
)
_STATUS = re.compile(r" status=(\w+)")
_REASON = re.compile(r' reason=(?:"((?:[^"\\]|\\.)*)"|(\S+))')
_ESCAPED = re.compile(r"\\(.)")

KEYWORDS = tuple(
    text.encode()
    for text in (
        "[LogLoader partition=",
        "[Log partition=",
        "Completed load of",
        "oading logs",
        "shutdown file was found",
        "No logs found to be",
        " logs in ",
        "rror while loading log dir",
        "Stopping serving logs",
        "Found invalid messages",
        "start the same command again",
        "Recovery ended early",
        "Exiting Kafka",
        "Shutdown broker because",
        "Error starting LogManager",
        "shut down completed",
        "App info kafka.server for",
        "Fatal error during",
        "Terminating process due to signal",
        "Log4jController",
        "STARTING to STARTED",
        "has been unfenced",
        "Kafka Server started",
        "] started",
    )
)
"""A line that says anything has one of these: most lines of a log have none, and are not looked at closer."""


def said_in(text: str) -> Said | None:
    """Return what *text*, a line or the message of one, says of a load; None if nothing."""
    for words, pattern, read in _READERS:
        if words in text and (match := pattern.search(text)) is not None:
            said = read(match)
            if said is not None:
                return said
    return None


def _fields(text: str) -> dict[str, int]:
    return {name: int(value) for name, value in _FIELD.findall(text)}


def _of_loader(match: re.Match[str]) -> Said | None:
    if match["partition"].startswith(_METADATA):
        return None
    partition, log_dir = match["partition"], match["dir"]
    if match["base"] is not None:
        return SegmentBegan(
            log_dir=log_dir,
            partition=partition,
            base_offset=int(match["base"]),
            ordinal=None if match["x"] is None else int(match["x"]),
            count=None if match["y"] is None else int(match["y"]),
            size_bytes=_fields(match.string).get("size_bytes"),
        )
    if match["cut"] is not None:
        cut = int(match["cut"])
        return SegmentCut(log_dir=log_dir, partition=partition, base_offset=cut, text=match["cut_words"])
    words = match.string[match.start("words") :].rstrip()
    if match["trouble"] is not None:
        return Trouble(level="warning", text=words, log_dir=log_dir, partition=partition)
    return LogTouched(log_dir=log_dir, partition=partition)


def _invalid_messages(match: re.Match[str]) -> Said | None:
    log_dir, folder = os.path.split(match["path"])
    if folder.startswith(_METADATA):
        return None
    return SegmentCut(
        log_dir=log_dir,
        partition=partition_of(folder),
        base_offset=int(match["base"]),
        text=match[0],
        position=int(match["position"]),
    )


def _loaded(match: re.Match[str]) -> Said:
    log_dir, folder = os.path.split(match["path"])
    status, fields = _STATUS.search(match.string, match.end()), _fields(match.string)
    return LogLoaded(
        status=None if status is None else status[1],
        truncated_bytes=fields.get("truncated_bytes", 0),
        truncated_batches=fields.get("truncated_batches", 0),
        log_dir=log_dir,
        folder=folder,
        partition=f"{match['topic']}-{match['number']}",
        segment_count=int(match["segments"]),
        log_start_offset=int(match["start"]),
        log_end_offset=int(match["end"]),
        duration_ms=int(match["ms"]),
        finished_count=int(match["i"]),
        log_count=int(match["n"]),
    )


def _not_loaded(match: re.Match[str]) -> Said:
    log_dir, folder = os.path.split(match["path"])
    status, reason = (pattern.search(match.string, match.end()) for pattern in (_STATUS, _REASON))
    return LogLoaded(
        log_dir=log_dir,
        folder=folder,
        partition=partition_of(folder),
        is_failed=True,
        status=None if status is None else status[1],
        reason="" if reason is None else reason[2] or _ESCAPED.sub(r"\1", reason[1] or ""),
        duration_ms=int(match["ms"]),
        finished_count=int(match["i"]),
        log_count=int(match["n"]),
    )


def partition_of(folder: str) -> str:
    """Return T-P of a folder's name, whatever mark it has."""
    if folder.endswith(("-future", "-stray", "-delete")):
        return folder.rpartition(".")[0] or folder
    return folder


def _began(match: re.Match[str]) -> Said:
    log_dirs = tuple(filter(None, match["dirs"].split(", ")))
    return LoadBegan(log_dirs=log_dirs, has_java_log_manager=match["list"] == "[")


def _listed(match: re.Match[str]) -> Said:
    fields = _fields(match.string)
    return LogDirListed(
        log_dir=match["dir"],
        had_clean_shutdown=match.re is _CLEAN,
        log_count=None if match["n"] is None else int(match["n"]),
        unflushed_segments=fields.get("unflushed_segments"),
        unflushed_bytes=fields.get("unflushed_bytes"),
    )


def _without_logs(match: re.Match[str]) -> Said:
    return LogDirListed(log_dir=match["dir"], had_clean_shutdown=False, log_count=0)


def _ended(match: re.Match[str]) -> Said:
    return LoadEnded(log_count=int(match["n"]), exit_code=_fields(match.string).get("exit_code"))


def _own_end(_: re.Match[str]) -> Said:
    return LoadEnded(log_count=0, is_complete=False)


def _dir_failed(match: re.Match[str]) -> Said:
    return LogDirFailed(log_dir=match["dir"], text=_to_the_end(match))


def _last_words(match: re.Match[str]) -> Said:
    return BrokerEnded(text=_to_the_end(match))


def _to_the_end(match: re.Match[str]) -> str:
    return match.string[match.start() :].rstrip()


def _runs(_: re.Match[str]) -> Said:
    return BrokerRuns()


def _begins(_: re.Match[str]) -> Said:
    return BrokerBegan()


_READERS: tuple[tuple[str, re.Pattern[str], Callable[[re.Match[str]], Said | None]], ...] = (
    ("Completed load of", _LOADED, _loaded),
    ("partition=", _OF_LOADER, _of_loader),
    ("while loading logs in", _NOT_LOADED, _not_loaded),
    ("Loading logs from", _BEGAN, _began),
    ("shutdown file was found", _CLEAN, _listed),
    ("shutdown file was found", _UNCLEAN, _listed),
    ("No logs found", _WITHOUT_LOGS, _without_logs),
    ("Loaded ", _ENDED, _ended),
    ("log dir ", _DIR_FAILED, _dir_failed),
    ("logs in dir ", _DIR_FAILED, _dir_failed),
    ("Found invalid messages", _INVALID, _invalid_messages),
    ("STARTED", _RUNS, _runs),
    ("unfenced", _RUNS, _runs),
    ("started", _RUNS, _runs),
    ("Log4jController", _BEGINS, _begins),
    ("", _LAST_WORDS, _last_words),
    ("e", _OWN_END, _own_end),
)
"""Words without which a pattern finds nothing, the most frequent first; a text that many loads print comes early."""
