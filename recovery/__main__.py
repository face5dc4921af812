"""`python -m recovery` is `kafka-log-recovery`."""

import sys

# Python looks for modules in the working folder first, which may be anyone's: a `numpy.py` there would be run.
if not sys.flags.safe_path and sys.path[0] != __file__.removesuffix("/recovery/__main__.py"):
    del sys.path[0]

from recovery.cli.main import main

sys.exit(main())
