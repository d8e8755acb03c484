"""`python -m forethought`, and what the command `forethought` starts with."""

import sys

from forethought.app.stopping import stopped


def command() -> int:
    """Run the command that the process was started with; returns the exit code.

    Ctrl-C is also heard while the program is still being loaded.
    """
    try:
        # Only here, where Ctrl-C is heard: it takes most of a second.
        from forethought.app import cli  # noqa: PLC0415

        return cli.command()
    except KeyboardInterrupt:
        return stopped()


if __name__ == "__main__":
    sys.exit(command())
