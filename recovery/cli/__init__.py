"""The command line: one module for each command. Argv is read only here. Begin with `main`, then `recover`."""

import sys

from recovery.errors import UsageError
from recovery.own_process import refuse_foreign_packages

try:
    refuse_foreign_packages()  # before any module of these packages is imported
except UsageError as error:
    sys.exit(f"kafka-log-recovery: {error}")
