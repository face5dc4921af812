"""What can be wrong with bytes that claim to be one of Kafka's files.

One root, `FormatError`; every reader of this package raises it or one of its subclasses and nothing else,
whatever the bytes are. Each error has the position in the buffer and the Java exception that a broker
throws for the same bytes, so that a caller can tell what the broker would do.
"""

from __future__ import annotations

from typing import ClassVar


class FormatError(ValueError):
    """Bytes or a name that no reader of this package accepts.

    Attributes:
        position: bytes from the start of the buffer that was read; 0 if the whole value is meant.
        kafka: simple name of the Java exception that Kafka throws here.
    """

    default_kafka: ClassVar[str] = "KafkaException"

    def __init__(self, message: str, *, position: int = 0, kafka: str | None = None) -> None:
        super().__init__(message)
        self.position = position
        self.kafka = self.default_kafka if kafka is None else kafka


class BufferUnderflowError(FormatError):
    """Fewer bytes than a field needs."""

    default_kafka = "BufferUnderflowException"


class CorruptBatchError(FormatError):
    """An impossible size, magic or attributes of a batch."""

    default_kafka = "CorruptRecordException"


class ChecksumMismatchError(CorruptBatchError):
    """A stored CRC that is not that of the bytes.

    Attributes:
        expected: the CRC stored in the file, uint32.
        actual: the CRC of the bytes, uint32.
    """

    def __init__(self, message: str, *, position: int = 0, expected: int = 0, actual: int = 0) -> None:
        super().__init__(message, position=position)
        self.expected = expected
        self.actual = actual


class InvalidRecordError(FormatError):
    """Records that do not parse or disagree with their batch."""

    default_kafka = "InvalidRecordException"


class InvalidControlRecordError(FormatError):
    """A control record that ends the broker: Kafka does not catch this error while it recovers a segment."""

    default_kafka = "IllegalArgumentException"


class UnsupportedMagicError(FormatError):
    """A magic byte that the reader does not support."""

    default_kafka = "IllegalArgumentException"


class UnsupportedCodecError(FormatError):
    """A compression id that no Kafka version knows."""

    default_kafka = "IllegalArgumentException"


class DecompressionError(FormatError):
    """Compressed bytes that their codec rejects."""

    default_kafka = "KafkaException"


class ContentTooLargeError(DecompressionError):
    """Compressed bytes that hold more than the caller allows: refused for that alone, not for damage."""


class DecryptionError(FormatError):
    """Encrypted bytes that were changed."""

    default_kafka = "RemoteStorageException"


class MissingKeyError(DecryptionError):
    """Encrypted bytes whose key the caller does not have; nothing is known to be wrong with them."""


class WrongKeyError(MissingKeyError):
    """A data key that the caller's RSA key does not open: it was encrypted with another one, or is damaged."""


class CorruptIndexError(FormatError):
    """An index whose entries contradict its segment."""

    default_kafka = "CorruptIndexException"


class UnsupportedVersionError(FormatError):
    """A format version that Kafka does not know and gives up on."""

    default_kafka = "KafkaException"


class CorruptSnapshotError(FormatError):
    """A producer snapshot that the broker would delete when it reads it."""

    default_kafka = "CorruptSnapshotException"


class MalformedCheckpointError(FormatError):
    """A text checkpoint or a partition.metadata that Kafka does not accept.

    Attributes:
        line: 1-based number of the line at fault.
        takes_dir_offline: True if Kafka throws an IOException and queues the log dir as failed; False
            if it throws a RuntimeException. What that means depends on the file: fatal for
            `leader-epoch-checkpoint` and `partition.metadata`, an empty map for the offset checkpoints.
    """

    default_kafka = "IOException"

    def __init__(
        self,
        message: str,
        *,
        line: int = 1,
        takes_dir_offline: bool = True,
        position: int = 0,
        kafka: str | None = None,
    ) -> None:
        super().__init__(message, position=position, kafka=kafka)
        self.line = line
        self.takes_dir_offline = takes_dir_offline


class MalformedPropertiesError(FormatError):
    """A `.properties` text, or a value in one, that Java does not accept."""

    default_kafka = "IllegalArgumentException"


class MalformedMetadataError(FormatError):
    """A record of the KRaft metadata log that does not parse."""

    default_kafka = "MetadataParseException"


class MalformedRemoteMetadataError(FormatError):
    """A record of `__remote_log_metadata` that does not parse, or describes an impossible segment."""

    default_kafka = "MetadataParseException"


class MalformedManifestError(FormatError):
    """A segment's manifest, written by a tiered-storage plugin, that is malformed."""

    default_kafka = "RemoteStorageException"


class UnsupportedManifestError(MalformedManifestError):
    """A manifest of another version or mode of the plugin: it may be sound, but is not supported."""


class FileNameError(FormatError):
    """The name of a file or folder from which the broker cannot take an offset, topic or partition.

    The message says what is wrong with the name, not which it is.

    Attributes:
        name: of the file or folder.
    """

    default_kafka = "NumberFormatException"

    def __init__(self, message: str, *, name: str = "", position: int = 0, kafka: str | None = None) -> None:
        super().__init__(message, position=position, kafka=kafka)
        self.name = name
