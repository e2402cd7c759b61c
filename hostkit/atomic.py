"""Files that are whole or not there: written beside, synced, renamed, and the folder synced."""

import os
from pathlib import Path


def write(path: Path, text: str, mode: int = 0o644) -> None:
    """Put text at path so that a power cut leaves the old file or the new one, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.new")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            os.fchmod(file.fileno(), mode)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def link(path: Path, target: Path) -> None:
    """Point the symbolic link at target in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.new")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(target)
    temporary.rename(path)
    sync_folder(path.parent)


def exchange(first: Path, second: Path) -> None:
    """Let two paths change places in one step (renameat2(2), RENAME_EXCHANGE). Raises OSError."""
    import ctypes  # takes 10 ms, and the look never exchanges anything

    at_current_folder, exchange_flag = -100, 2
    libc = ctypes.CDLL(None, use_errno=True)
    names = (ctypes.c_char_p(os.fsencode(first)), ctypes.c_char_p(os.fsencode(second)))
    if libc.renameat2(at_current_folder, names[0], at_current_folder, names[1], exchange_flag):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(first), None, str(second))
    sync_folder(first.parent)


def sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
