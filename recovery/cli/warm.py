"""`kafka-log-recovery warm`: compile the kernels beforehand, for images, packages and impatient operators."""

from __future__ import annotations

import argparse
import os
from typing import Any

from recovery.cli.session import print_result, tell_of_compiling
from recovery.errors import UsageError

_EPILOG = """\
examples:
  kafka-log-recovery warm --kernel-cache /var/cache/kafka-log-recovery

In an image or a package, as root. Every user then finds the kernels there,
on machines with the same type of CPU; on others they are compiled once more.

exit codes:
  0  all kernels are there
  1  they cannot be kept where they were to go
"""


def add_parser(commands: argparse._SubParsersAction[Any]) -> None:
    """Add this command to the command line."""
    parser = commands.add_parser(
        "warm",
        help="compile the kernels for this CPU beforehand",
        description="Compile all kernels for this machine's CPU now, and keep them; otherwise the first run does it.",
        epilog=_EPILOG,
    )
    parser.add_argument(
        "--kernel-cache",
        metavar="DIR",
        help="keep them there (default: the first of KAFKA_LOG_RECOVERY_KERNEL_CACHE and NUMBA_CACHE_DIR of the "
        "environment, $XDG_CACHE_HOME/kafka-log-recovery, "
        "/var/cache/kafka-log-recovery where this user may write to it, ~/.cache/kafka-log-recovery)",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run `warm` and return its exit code."""
    from native import kernels

    if arguments.kernel_cache is not None:
        from recovery.logdir.brokers_place import refuse_brokers_place

        refuse_brokers_place(f"--kernel-cache {arguments.kernel_cache}", arguments.kernel_cache)
        os.environ[kernels.CACHE_ENVIRONMENT] = os.path.abspath(arguments.kernel_cache)
    if kernels.is_numba_alone():
        raise UsageError(
            f"{kernels.ENVIRONMENT} or NUMBA_BOUNDSCHECK is set, with which no kernel is kept. Remedy: unset it"
        )
    if problem := kernels.kernel_cache().problem:  # not after compiling for 20 s
        raise UsageError(
            f"nothing can be kept: {problem}. Remedy: name another folder with --kernel-cache, which this user may "
            "write to and others may not"
        )
    kernels.before_compiling(tell_of_compiling)
    from native import cpu

    path = cpu.choose()
    kernels.make_all(path)
    account, folder = kernels.account(), kernels.kernel_cache().folder
    if account.origin is kernels.Origin.MEMORY:
        raise UsageError(account.remark or "not every kernel can be kept on this machine")
    how = f"compiled in {account.compile_s:.0f} s" if account.compile_s else "there already"
    print_result(f"{len(kernels.ALL)} kernels for {path.label}: {how}, in {folder}")
    return 0
