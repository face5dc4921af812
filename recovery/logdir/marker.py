"""What the clean-shutdown marker of a log dir says of itself."""

from segfmt.clean_shutdown import read_clean_shutdown


def marker_doubt(data: bytes) -> str | None:
    """Return why no broker can have written the marker *data*, None if one may have; up to 3.6 they leave it empty.

    A broker takes for the marker whatever has its name.

    Kafka: CleanShutdownFileHandler.write.
    """
    if not data or (read_clean_shutdown(data) is not None and b'"version"' in data):
        return None
    return "it has no version or no broker epoch: no broker writes that"
