"""`python -m forethought`: the same as the command `forethought`."""

import sys

from forethought.app.cli import command

if __name__ == "__main__":
    sys.exit(command())
