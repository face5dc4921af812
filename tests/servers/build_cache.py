"""What tests fetch or build is kept between runs: jars, classes, the fault shim.

The cache is `$XDG_CACHE_HOME/kafka-log-recovery` (default `~/.cache`); its folders are keyed by a hash of what
they are made from: nothing built twice, nothing stale.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


def cache_dir() -> Path:
    """Where jars, classes and libraries are kept between runs."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "kafka-log-recovery"


def cached(name: str, sources: Sequence[Path], more: Sequence[str], build: Callable[[Path], None]) -> Path:
    """The folder that *build* has filled from *sources* and the words *more*; *build* is called where there is none."""
    digest = hashlib.sha256("\0".join(more).encode())
    for source in sources:
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    place = cache_dir() / f"{name}-{digest.hexdigest()[:16]}"
    if place.is_dir():
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    with _locked(place.parent / f".building-{name}"):
        if not place.is_dir():
            building = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=place.parent))
            try:
                build(building)
                building.rename(place)
            finally:
                shutil.rmtree(building, ignore_errors=True)
    return place


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
