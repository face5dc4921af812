"""`python -m recovery` is `kafka-log-recovery`."""

import sys

from recovery.cli.main import main

sys.exit(main())
