"""`python -m forethought`: the same as the command `forethought`."""

import sys

from forethought.app.cli import main

if __name__ == "__main__":
    sys.exit(main())
