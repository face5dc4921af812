"""The first step of each task: keep Python workers from repeating work that an earlier task has done.

A Spark worker serves many tasks. Two things cost it up to 150 ms of CPU in each of them:

** Before 4.2, Spark invalidates the import caches before each task, and zipimport then reads the directories of
  pyspark.zip and of a jar again (SPARK-54744, cpython gh-103200). From 4.2 on it does so only if paths were added.
  `zipimporter.invalidate_caches` is replaced, only in the worker, by a function that reads the directory of an archive
  if its file has changed.
** The daemon collects garbage after each task, through all objects of all modules. These never become garbage, so they
  are moved out of the collector's sight (`gc.freeze`).

With KAFKA_LOG_RECOVERY_WORKER_TUNING=0 in the environment of the executors nothing is done.
"""

from __future__ import annotations

import gc
import os
import sys
import weakref
import zipimport

SWITCH = "KAFKA_LOG_RECOVERY_WORKER_TUNING"
_FIRST_SPARK_WITHOUT_THE_NEED = (4, 2)

_Identity = tuple[int, int, int]
_read_archives: weakref.WeakKeyDictionary[zipimport.zipimporter, _Identity | None] = (
    weakref.WeakKeyDictionary()
)
_python_reads = zipimport.zipimporter.invalidate_caches
_frozen_modules = 0


def prepare_worker() -> None:
    """Tune the Python worker that this task runs in. Call it only in tasks; repeated calls cost next to nothing."""
    if os.environ.get(SWITCH, "1") == "0":
        return
    if _spark_version() < _FIRST_SPARK_WITHOUT_THE_NEED:
        _keep_zip_directories()
    _freeze_modules()


def _keep_zip_directories() -> None:
    if zipimport.zipimporter.invalidate_caches is _read_if_changed:
        return
    for importer in sys.path_importer_cache.values():  # Spark has just made it read them all
        if isinstance(importer, zipimport.zipimporter):
            _read_archives[importer] = _identity(importer.archive)
    zipimport.zipimporter.invalidate_caches = _read_if_changed  # type: ignore[method-assign, assignment]  # what this is for


def _read_if_changed(importer: zipimport.zipimporter) -> None:
    """Replace `zipimporter.invalidate_caches`: reread an archive only if its file has changed since."""
    identity = _identity(importer.archive)
    if identity is None or _read_archives.get(importer) != identity:
        _python_reads(importer)
        _read_archives[importer] = identity


def _identity(path: str) -> _Identity | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _spark_version() -> tuple[int, int]:
    """Return major and minor version of the pyspark in this worker; a development build has those of its release."""
    import pyspark

    major, minor = pyspark.__version__.split(".")[:2]
    return int(major), int("".join(filter(str.isdigit, minor)) or 0)


def _freeze_modules() -> None:
    """Take the modules' objects out of the collector's sight whenever there are more modules than before."""
    global _frozen_modules
    if len(sys.modules) != _frozen_modules:
        gc.collect()
        gc.freeze()
        _frozen_modules = len(sys.modules)
