"""What a command says when Ctrl-C has ended it. Importing this takes no time."""

import sys

INTERRUPTED = 130


def stopped() -> int:
    """Say that the command was stopped; returns the exit code."""
    sys.stdout.write("\nStopped. What is finished is kept; the same command goes on from there.\n")
    return INTERRUPTED
