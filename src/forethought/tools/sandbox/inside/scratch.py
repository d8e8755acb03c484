"""The folders that programs write to: how full they are, and how they are removed.

A program may have made them as deep, as many and as closed as it likes.
"""

import os
import stat


def exceeds(folder: str, most_bytes: int, most_files: int) -> bool:
    """Whether there is more below `folder`. What cannot be looked at counts as too much."""
    size, files, waiting = 0, 0, [folder]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    files += 1
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    size += entry.stat(follow_symlinks=False).st_blocks * 512
                    if files > most_files or size > most_bytes:
                        return True
        except FileNotFoundError:
            continue
        except OSError:
            return True
    return False


def remove(folder: str) -> None:
    """Remove a folder, going down and up one step at a time: its paths may be too long to name.

    Only for a folder in which nobody works any more, since it moves this process into it.
    """
    if not os.path.isdir(folder):
        return
    home = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
    os.chmod(folder, 0o700)
    os.chdir(folder)
    waiting = [_remove_files()]
    try:
        while len(waiting) > 1 or waiting[0]:
            if waiting[-1]:
                os.chmod(waiting[-1][-1], 0o700)
                os.chdir(waiting[-1][-1])
                waiting.append(_remove_files())
            else:
                waiting.pop()
                os.chdir("..")
                os.rmdir(waiting[-1].pop())
    finally:
        os.fchdir(home)
        os.close(home)
    os.rmdir(folder)


def _remove_files() -> list[str]:
    """Remove what is no folder here; the names of the folders that are left."""
    folders: list[str] = []
    for name in os.listdir():
        if stat.S_ISDIR(os.lstat(name).st_mode):
            folders.append(name)
        else:
            os.unlink(name)
    return folders
