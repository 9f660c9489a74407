"""Writing files: next to their place, forced to disk and renamed; and one line where the file system refuses."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path


class StorageError(Exception):
    """The disk did not do what it was asked to: one line that says what, and that what was finished is kept."""


@contextlib.contextmanager
def storage(what: str) -> Iterator[None]:
    """Turns errors of the file system into one line."""
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"cannot {what}: {error.strerror or error}; everything finished before is kept, "
            "and the same command continues once this is mended"
        ) from error


def write_atomically(path: Path, text: str | bytes) -> None:
    """Writes next to the target, forces it to disk and renames; on failure the target is as it was."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    data = text.encode() if isinstance(text, str) else text
    with storage(f"write {path}"):
        try:
            with open(temporary, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)


def checksum(data: bytes) -> str:
    """SHA-256 in hexadecimal."""
    return hashlib.sha256(data).hexdigest()
