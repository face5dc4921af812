"""The marker of a clean shutdown at the output: it vouches for all logs beside it, so it is there only while it may.

It goes before anything else is sent, and comes back last, once all of the log dir is on disk there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from recovery.archive.copy.file_copy import CopyJob
from recovery.archive.copy.listing import is_wanted_key
from recovery.archive.copy.manifest import CopyManifest
from recovery.archive.stores.store import OutputStore
from recovery.errors import reason_text
from recovery.logdir.choice import PartitionChoice
from segfmt.filenames import CLEAN_SHUTDOWN_FILE

_WITHOUT = f"the copy has no {CLEAN_SHUTDOWN_FILE}: a broker, or recover, recovers its logs as after a crash"
NOT_WHOLE = f"not all of it was copied as it is, so {_WITHOUT}"
OTHERS_UNKNOWN = (
    f"the output has partitions that are not chosen now, and may be of before a crash, so {_WITHOUT}. Remedy: copy "
    "all of it"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanMarker:
    """The marker of one log dir.

    Attributes:
        key: at the output.
        job: None if none is to be sent: the log dir has none, or the output that very one.
        is_to_go: whether the output has one that the log dir does not have.
        may_vouch: whether a new one would not vouch for partitions at the output that had none, and are not chosen now.
    """

    key: str
    job: CopyJob | None
    is_to_go: bool
    may_vouch: bool

    def as_there(self) -> CleanMarker:
        """Return it if the output has that very one."""
        return replace(self, job=None, is_to_go=False)

    def take_away(self, store: OutputStore, manifest: CopyManifest) -> str:
        """Remove the one that the output has of before; return what there is to say if it does not let that be done.

        The rest is copied all the same: it may be on a dying disk.
        """
        if not self.is_to_go:
            return ""
        manifest.forget(self.key)  # whatever becomes of it: it vouches for nothing any more
        try:
            store.remove(self.key)
        except FileNotFoundError:
            pass
        except OSError as error:
            return (
                f"{store.url}/{self.key}: of before, and cannot be removed: {reason_text(error)}. Remedy: remove "
                "it before a broker, or recover, starts on the copy"
            )
        return ""


def marker_key(folder: str) -> str:
    """Return the key of the marker of the log dir that is *folder* at the output."""
    return f"{folder}/{CLEAN_SHUTDOWN_FILE}"


def has_others(folder: str, is_chosen: PartitionChoice, manifest: CopyManifest) -> bool:
    """Return whether the output has, or was to have, partitions of a log dir that are not chosen now."""
    known = (*manifest.keys(folder), *manifest.unfinished(folder))
    return not all(is_wanted_key(key, is_chosen) for key in known)
