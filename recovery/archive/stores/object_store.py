"""A bucket as a store: S3, GCS, Azure, through obstore. Read in ranges of 8 MiB, some of them in flight at a time.

Credentials come from where the usual tools have them: the environment (`AWS_*`, `GOOGLE_*`, `AZURE_*`), the instance's
role, and for S3 the profile files. The library retries throttling (503) and lost connections for minutes; a listing
that breaks off is retried here. What fails after that is an error of that object, or prefix.
"""

from __future__ import annotations

import configparser
import errno
import functools
import os
import re
import tempfile
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from recovery.archive.stores.archived import StoredObject
from recovery.archive.stores.segment_table import ObjectTable
from recovery.archive.stores.store import Level, Source
from recovery.errors import UsageError, WorkerError
from recovery.extras import ARCHIVE, needed_for
from recovery.threads import MORE_THREADS, PoolAhead

if TYPE_CHECKING:
    import obstore

RANGE_BYTES = 8 << 20
"""Size of one request."""
RANGES_AHEAD = 4
"""Requests in flight for one object."""
LISTING_WAITS_S = (0.2, 1.0, 5.0)
"""How long to wait before a broken listing is begun anew."""
LISTING_SECONDS = 60.0
"""After this time it is not begun anew."""
_LEAST_PART_BYTES = 8 << 20
_MOST_PARTS = 9_000
"""Of one object: S3 takes 10,000."""
_PARTS_AHEAD = 4
_S3_NAMES = {"s3a": "s3", "gcs": "gs", "azure": "az"}
_PROFILE_KEYS = {
    "aws_access_key_id": "access_key_id",
    "aws_secret_access_key": "secret_access_key",
    "aws_session_token": "session_token",
    "region": "region",
    "endpoint_url": "endpoint",
}
_INVALID_KEY = "invalid path"
"""In the error of a listing with a key that the library cannot address: it then returns nothing of it."""
_METADATA_SERVICE = "169.254.169.254"
"""In the error of a library that found no credentials, and asked the machine for some last."""
_NO_CREDENTIALS = (
    "no credentials were found in the environment, and this machine has none to give. Remedy: set those of the store "
    "(AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, GOOGLE_APPLICATION_CREDENTIALS, AZURE_STORAGE_ACCOUNT_NAME and "
    "AZURE_STORAGE_ACCOUNT_KEY), or AWS_SKIP_SIGNATURE=true for a public bucket"
)
_NO_BUCKET = re.compile("NoSuchBucket|specified bucket does not exist|ContainerNotFound")
"""In the answers of S3, GCS and Azure."""
_STATUS = re.compile(r"status code: ([0-9]{3})")
_ERRORS_OF_LISTINGS = {
    "401": (PermissionError, errno.EACCES),
    "403": (PermissionError, errno.EACCES),
    "404": (FileNotFoundError, errno.ENOENT),
}
"""By HTTP status: for a listing, the library gives the status only in the text of its error."""


class ObjectStore:
    """The objects below one URL.

    Args:
        url: `s3://bucket/prefix`, `gs://`, `az://`.
    """

    def __init__(self, url: str) -> None:
        self._url = usual_url(url)
        self._client = _client(self._url)

    def __reduce__(self) -> tuple[type[ObjectStore], tuple[str]]:
        return ObjectStore, (self._url,)

    @property
    def url(self) -> str:
        """The URL, without a slash at its end."""
        return self._url

    def list_level(self, prefix: str) -> Level:
        """Return prefixes and objects directly below *prefix*."""
        listing = self._listed(prefix)
        start = len(prefix)
        rows = [(meta["path"][start:], meta["size"], _version(meta)) for meta in listing["objects"]]
        return Level(
            prefixes=sorted(f"{child.rstrip('/')}/" for child in listing["common_prefixes"]),
            objects=ObjectTable.of_rows(prefix, sorted(row for row in rows if row[0])),
        )

    def stat(self, key: str) -> StoredObject:
        """Return an object as it is now."""
        import obstore

        with _errors(self._url, key):
            meta = obstore.head(self._client, key)
        return StoredObject(key=meta["path"], size_bytes=meta["size"], version=_version(meta))

    def read(self, key: str, *, most_bytes: int) -> bytes:
        """Return the first bytes of an object."""
        size = self.stat(key).size_bytes
        if not size or not most_bytes:
            return b""
        return bytes(self._range(key, 0, min(size, most_bytes)))

    def read_into(self, key: str, target: memoryview) -> int:
        """Fill *target* from the beginning of an object on; return how many bytes there were."""
        data = self.read(key, most_bytes=len(target))
        target[: len(data)] = data
        return len(data)

    def open(self, key: str) -> RangedObject:
        """Open an object for reading."""
        return RangedObject(functools.partial(self._range, key), self.stat(key).size_bytes)

    def create(self, key: str, data: bytes) -> bool:
        """Write an object that does not exist, by a conditional put."""
        import obstore

        try:
            with _errors(self._url, key):
                obstore.put(self._client, key, data, mode="create", use_multipart=False)
        except FileExistsError:
            return False
        return True

    def replace(self, key: str, data: bytes | Iterable[bytes]) -> None:
        """Write an object, replacing what is there."""
        import obstore

        if isinstance(data, bytes):
            with _errors(self._url, key):
                obstore.put(self._client, key, data)
            return
        # The pieces may come from a bucket, too, and obstore cannot read while it iterates over them.
        with tempfile.TemporaryFile(prefix="kafka-log-recovery-") as whole:
            _collect(data, whole)
            with _errors(self._url, key):
                obstore.put(self._client, key, whole)

    def send(
        self, key: str, source: Source, size_bytes: int, *, part_key: Callable[[], str] = lambda: ""
    ) -> str:
        """Write an object in parts, a few of which are in memory; it is there once the last one is."""
        import obstore

        part_bytes = max(_LEAST_PART_BYTES, -(-size_bytes // _MOST_PARTS))
        if size_bytes <= part_bytes:
            data = b"".join(iter(lambda: source.read(part_bytes), b""))
            key = key if len(data) == size_bytes else part_key()
            if key:
                with _errors(self._url, key):
                    obstore.put(self._client, key, data, use_multipart=False)
            return key
        pieces = _Pieces(source, part_bytes, size_bytes)
        try:
            with _errors(self._url, key):
                obstore.put(
                    self._client,
                    key,
                    pieces,
                    use_multipart=True,
                    chunk_size=part_bytes,
                    max_concurrency=_PARTS_AHEAD,
                )
        except OSError:
            if not pieces.is_short:
                raise
            return ""
        finally:
            if pieces.error is not None:
                raise pieces.error
        return key

    def keep(self, key: str, others: Iterable[str]) -> str:
        """Have the bucket copy an object.

        Another thread asks for it: this one may be in the midst of sending, where the library takes no other request.
        """
        return _requests().submit(self._keep, key, others).result()

    def _keep(self, key: str, others: Iterable[str]) -> str:
        import obstore

        version = self.stat(key).version
        for other in others:
            try:
                if self.stat(other).version == version:
                    return other
            except FileNotFoundError:
                with _errors(self._url, other):
                    obstore.copy(self._client, key, other)
                return other
        raise OSError(errno.EEXIST, "all names for a copy of it are taken", f"{self._url}/{key}")

    def sync(self, keys: Collection[str]) -> None:
        """Do nothing: what a bucket has taken it keeps."""

    def held(self) -> AbstractContextManager[None]:
        """Do nothing."""
        return nullcontext()

    def remove(self, key: str) -> None:
        """Remove an object."""
        import obstore

        with _errors(self._url, key):
            obstore.delete(self._client, key)

    def _listed(self, prefix: str) -> Any:  # noqa: ANN401 - obstore.ListResult, a dict
        """List a prefix; a listing that breaks off is begun anew, which the library does only for single objects."""
        import obstore

        give_up_s = time.monotonic() + LISTING_SECONDS
        for wait_s in LISTING_WAITS_S:
            try:
                with _errors(self._url, prefix):
                    return obstore.list_with_delimiter(self._client, prefix or None)
            except (FileNotFoundError, PermissionError):
                raise
            except OSError as error:
                if error.errno == errno.EINVAL or time.monotonic() + wait_s > give_up_s:
                    raise  # it stays so, or the library has retried long enough
            time.sleep(wait_s)
        with _errors(self._url, prefix):
            return obstore.list_with_delimiter(self._client, prefix or None)

    def _range(self, key: str, start: int, end: int) -> Any:  # noqa: ANN401 - obstore.Bytes, a buffer
        import obstore

        with _errors(self._url, key):
            return obstore.get_range(self._client, key, start=start, end=end)


class _Pieces:
    """The bytes of a source, piece by piece; keeps the error that ended them, which the library reports as its own.

    All but the last one are of one size. If there are too few bytes it raises, so that the library gives up.
    """

    def __init__(self, source: Source, piece_bytes: int, size_bytes: int) -> None:
        self._source = source
        self._piece_bytes = piece_bytes
        self._left_bytes = size_bytes
        self.is_short = False
        self.error: BaseException | None = None

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        try:
            piece = self._next_piece()
            self._left_bytes -= len(piece)
        except BaseException as error:
            self.error = error
            raise
        if piece:
            return piece
        if self._left_bytes:
            self.is_short = True
            raise OSError(errno.EIO, "the source has fewer bytes than were to be sent")
        raise StopIteration

    def _next_piece(self) -> bytes:
        parts: list[bytes] = []
        left = self._piece_bytes
        while left and (part := self._source.read(left)):
            parts.append(part)
            left -= len(part)
        return b"".join(parts)


def _collect(pieces: Iterable[bytes], whole: IO[bytes]) -> None:
    """Write *pieces* into a temporary file, and go back to its beginning.

    Raises:
        OSError: there is no room for it; names the folder and the remedy.
    """
    for piece in pieces:
        try:
            whole.write(piece)
            whole.flush()
        except OSError as error:
            remedy = "an object waits there; set TMPDIR to a folder with more room"
            raise OSError(error.errno, f"{error.strerror}: {remedy}", tempfile.gettempdir()) from error
    whole.seek(0)


def usual_url(url: str) -> str:
    """Return *url* with the usual name of its scheme, and without a slash at its end."""
    scheme, _, rest = url.partition("://")
    return f"{_S3_NAMES.get(scheme, scheme)}://{rest.rstrip('/')}"


class RangedObject:
    """One object, read forwards in ranges that are asked for ahead.

    Args:
        read_range: returns the bytes from a position up to another.
        size_bytes: of the object.
    """

    def __init__(self, read_range: Callable[[int, int], Any], size_bytes: int) -> None:
        self._read_range = read_range
        self._size_bytes = size_bytes
        self._ranges: OrderedDict[int, Future[Any]] = OrderedDict()

    @property
    def end_position(self) -> int:
        """Size of the object when it was opened."""
        return self._size_bytes

    def read_at(self, target: npt.NDArray[np.uint8], position: int) -> int:
        """Fill *target* from *position* on; return how many bytes there were."""
        done, wanted = 0, min(len(target), self._size_bytes - position)
        while done < wanted:
            start = (position + done) // RANGE_BYTES * RANGE_BYTES
            data = np.frombuffer(self._range(start).result(), np.uint8)
            part = data[position + done - start :][: wanted - done]
            if not part.size:
                raise OSError(errno.EIO, "the object became shorter while it was read")
            target[done : done + part.size] = part
            done += part.size
        return max(0, done)

    def approach(self, position: int) -> None:
        """Request the ranges from *position* on."""
        first = position // RANGE_BYTES * RANGE_BYTES
        for start in range(first, min(first + RANGES_AHEAD * RANGE_BYTES, self._size_bytes), RANGE_BYTES):
            self._range(start)

    def leave(self, position: int) -> None:
        """Forget the ranges before *position*."""
        for start in [start for start in self._ranges if start + RANGE_BYTES <= position]:
            self._ranges.pop(start).cancel()

    def close(self) -> None:
        """Forget all ranges."""
        self.leave(self._size_bytes + RANGE_BYTES)

    def _range(self, start: int) -> Future[Any]:
        pending = self._ranges.get(start)
        if pending is None:
            end = min(start + RANGE_BYTES, self._size_bytes)
            pending = self._ranges[start] = _requests().submit(self._read_range, start, end)
        return pending


@functools.cache
def _requests() -> PoolAhead:
    return PoolAhead(RANGES_AHEAD, thread_name_prefix="archive-read")


def _client(url: str) -> obstore.store.ObjectStore:
    scheme, _, rest = url.partition("://")
    if scheme != "memory" and not rest.partition("/")[0]:
        raise UsageError(f"{url}: it names no bucket: give {scheme}://BUCKET or {scheme}://BUCKET/PREFIX")
    with needed_for(url, extras=ARCHIVE):
        from obstore.store import from_url
    config = _profile() if url.startswith("s3://") else {}
    endpoint = (
        config.get("endpoint") or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    )
    if url.startswith("s3://") and endpoint:
        config["endpoint"] = endpoint
    options: dict[str, Any] = {"allow_http": True} if (endpoint or "").startswith("http://") else {}
    try:
        return from_url(_escaped(url), config=config or None, client_options=options or None)  # type: ignore[arg-type]  # by name
    except Exception as error:  # the library's errors for a URL have no other common class
        raise UsageError(f"{url}: {_short(error)}") from error


def _escaped(url: str) -> str:
    """Return *url* for the library, which reads it by the rules of URLs; keys may have these characters as they are."""
    return url.replace("%", "%25").replace("#", "%23").replace("?", "%3F")


def _profile() -> dict[str, str]:
    """Return what the profile files say of S3, nothing if the environment has keys of its own."""
    if "AWS_ACCESS_KEY_ID" in os.environ:
        return {}
    name = os.environ.get("AWS_PROFILE", "default")
    home = os.path.expanduser("~/.aws")
    config: dict[str, str] = {}
    for variable, file, section in (
        ("AWS_CONFIG_FILE", "config", name if name == "default" else f"profile {name}"),
        ("AWS_SHARED_CREDENTIALS_FILE", "credentials", name),
    ):
        parser = configparser.RawConfigParser()
        parser.read(os.environ.get(variable, os.path.join(home, file)))
        if parser.has_section(section):
            config |= {
                _PROFILE_KEYS[key]: value for key, value in parser.items(section) if key in _PROFILE_KEYS
            }
    return config


def _version(meta: Any) -> str:  # noqa: ANN401 - obstore.ObjectMeta, a dict
    version: str = meta.get("e_tag") or (
        meta["last_modified"].isoformat() if meta.get("last_modified") else ""
    )
    return version.strip('"')


@contextmanager
def _errors(url: str, key: str) -> Iterator[None]:
    """Turn what obstore raises into an OSError that names the object."""
    from obstore import exceptions

    path = f"{url}/{key}"
    try:
        yield
    except FileNotFoundError as error:
        detail = "no such bucket" if _NO_BUCKET.search(str(error)) else "no such object"
        raise FileNotFoundError(errno.ENOENT, detail, path) from error
    except exceptions.AlreadyExistsError as error:
        raise FileExistsError(errno.EEXIST, "the object exists", path) from error
    except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
        raise PermissionError(errno.EACCES, _short(error), path) from error
    except ValueError as error:
        raise OSError(
            errno.EINVAL, f"no key for the library that reads buckets: {_short(error)}", path
        ) from error
    except exceptions.BaseError as error:
        if _METADATA_SERVICE in str(error):
            raise PermissionError(errno.EACCES, _NO_CREDENTIALS, path) from error
        if _INVALID_KEY in str(error):
            detail = f"{_short(error)}. Name the archive's other objects with --files-from"
            raise OSError(errno.EINVAL, detail, path) from error
        if _NO_BUCKET.search(str(error)):
            raise FileNotFoundError(errno.ENOENT, "no such bucket", path) from error
        status = _STATUS.search(str(error))
        kind, number = _ERRORS_OF_LISTINGS.get(status[1] if status else "", (OSError, errno.EIO))
        raise kind(number, _short(error), path) from error
    except BaseException as error:  # the library's own class for a panic is not an Exception
        if type(error).__name__ == "PanicException" and "thread" in str(error):
            raise WorkerError(f"{path}: {_short(error)}. Remedy: {MORE_THREADS}") from error
        raise


def _short(error: BaseException) -> str:
    """Return the first line of what the library says, without a server's XML; the rest is a dump of its own values."""
    return str(error).partition("\n")[0].partition("<?xml")[0].rstrip(" :")[:300]
