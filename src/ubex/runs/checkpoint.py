"""The state of a running cell on disk: arrays and JSON, never pickle; checksummed, and the one before is kept.

A file is a magic line, the SHA-256 of the rest, and a NumPy archive that holds the leaves of the state and a JSON note.
"""

from __future__ import annotations

import contextlib
import io
import json
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ubex.keys import is_typed_key
from ubex.runs.disk import checksum, storage, write_atomically
from ubex.types import InputError

MAGIC = b"ubex checkpoint 1\n"
KEEP = 2
SUFFIX = ".ckpt"


class CheckpointFolder:
    """Checkpoints of one cell and the seeds that run together, newest last."""

    def __init__(self, root: Path, say: Callable[[str], None] = lambda line: None) -> None:
        """Nothing is made on disk before the first `save`. `say` is given a line for each damaged file."""
        self.root, self.say = root, say
        self.damaged: list[Path] = []
        """Files that `load` found broken and passed over. They are there until the next `save`."""

    def save(self, step: int, state: Any, notes: Mapping[str, Any]) -> Path:
        """Writes a checkpoint in one step, then drops the damaged ones and, of the others, all but the newest two."""
        with storage(f"make {self.root}"):
            self.root.mkdir(parents=True, exist_ok=True)
        path = self.root / f"{step:012d}{SUFFIX}"
        write_atomically(path, sealed(step, state, notes))
        broken, self.damaged = {*self.damaged} - {path}, []
        sound = [one for one in self._newest_first() if one not in broken]
        for old in (*broken, *sound[KEEP:]):
            with contextlib.suppress(OSError):
                old.unlink()
        return path

    def load(self, like: Any) -> tuple[int, Any, dict[str, Any]] | None:
        """The newest sound checkpoint as (step, state, notes), in the structure of `like`; nothing if there is none.

        Raises InputError where a sound checkpoint does not fit `like`: it was made with other settings.
        """
        self.damaged, found, then = [], None, "it begins anew"
        for path in self._newest_first():
            payload = read_sound(path)
            if payload is not None:
                found, then = unpack(payload, like, path), f"it goes on from {path.name}"
                break
            self.damaged.append(path)
        for path in self.damaged:
            self.say(f"the checkpoint {path} is damaged: {then}")
        return found

    def notes(self) -> dict[str, Any] | None:
        """The notes of the newest sound checkpoint, for states whose shapes depend on what happened before."""
        for path in self._newest_first():
            payload = read_sound(path)
            if payload is not None:
                return notes_of(payload, path)
        return None

    def leave(self, name: str, text: str) -> None:
        """Leaves a file beside the states, in place of an earlier one of that name; it goes with them."""
        write_atomically(self.root / name, text)

    def _newest_first(self) -> list[Path]:
        """By step, not by time stamp: a clock may go backwards."""
        return sorted(self.root.glob(f"*{SUFFIX}"), reverse=True)


def sealed(step: int, state: Any, notes: Mapping[str, Any]) -> bytes:
    """A whole checkpoint file."""
    payload = pack(step, state, notes)
    return MAGIC + checksum(payload).encode() + b"\n" + payload


@contextlib.contextmanager
def opened(payload: bytes, path: Path) -> Iterator[Mapping[str, np.ndarray]]:
    """The archive of a checkpoint, or one line where it is none, although its checksum holds."""
    try:
        with np.load(io.BytesIO(payload), allow_pickle=False) as archive:
            yield archive
    except (ValueError, KeyError, EOFError, zipfile.BadZipFile):
        raise InputError(f"{path} is not a checkpoint of this version") from None


def notes_of(payload: bytes, path: Path) -> dict[str, Any]:
    """The notes alone, for states whose shapes they tell."""
    with opened(payload, path) as archive:
        notes: dict[str, Any] = json.loads(archive["meta"].tobytes())["notes"]
    return notes


def read_sound(path: Path) -> bytes | None:
    """The payload of a checkpoint file whose checksum holds, else nothing."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    head = len(MAGIC) + 65
    if not data.startswith(MAGIC) or data[len(MAGIC) : head - 1] != checksum(data[head:]).encode():
        return None
    return data[head:]


def pack(step: int, state: Any, notes: Mapping[str, Any]) -> bytes:
    """A state as bytes: same state, same bytes."""
    leaves, described = [], []
    for path, leaf in jax.tree_util.tree_flatten_with_path(state)[0]:
        typed = is_typed_key(leaf)
        array = np.asarray(jax.random.key_data(leaf) if typed else leaf)
        if array.dtype.kind == "O":
            raise TypeError(f"a checkpoint holds arrays and numbers only, but {jax.tree_util.keystr(path)} is {type(leaf)}")
        leaves.append(array)
        described.append({"path": jax.tree_util.keystr(path), "key": str(jax.random.key_impl(leaf)) if typed else None})
    meta = json.dumps({"step": step, "notes": dict(notes), "leaves": described}, sort_keys=True)
    buffer = io.BytesIO()
    np.savez(
        buffer, allow_pickle=False, meta=np.frombuffer(meta.encode(), np.uint8), **{f"leaf{i}": a for i, a in enumerate(leaves)}
    )
    return buffer.getvalue()


def unpack(payload: bytes, like: Any, path: Path) -> tuple[int, Any, dict[str, Any]]:
    """The inverse of `pack`, checked leaf by leaf against `like`."""
    with opened(payload, path) as archive:
        meta = json.loads(archive["meta"].tobytes())
        arrays = [archive[f"leaf{i}"] for i in range(len(meta["leaves"]))]
    expected, structure = jax.tree_util.tree_flatten_with_path(like)
    if [entry["path"] for entry in meta["leaves"]] != [jax.tree_util.keystr(place) for place, _ in expected]:
        raise InputError(f"{path} was made with other settings or another version: it does not hold the same quantities")
    leaves = []
    for entry, array, (_, template) in zip(meta["leaves"], arrays, expected, strict=True):
        wanted = np.asarray(jax.random.key_data(template) if entry["key"] else template)
        if array.shape != wanted.shape or array.dtype != wanted.dtype:
            raise InputError(
                f"{path} was made with other settings or another version: {entry['path']} is {array.dtype}{list(array.shape)}, "
                f"not {wanted.dtype}{list(wanted.shape)}"
            )
        leaves.append(_as(template, array, entry["key"]))
    return meta["step"], jax.tree_util.tree_unflatten(structure, leaves), meta["notes"]


def _as(template: Any, array: np.ndarray, key: str | None) -> Any:
    """The array as the kind of leaf that the template has."""
    if key is not None:
        return jax.random.wrap_key_data(jax.numpy.asarray(array), impl=key)
    if isinstance(template, bool | int | float):
        return type(template)(array)
    return jax.numpy.asarray(array) if isinstance(template, jax.Array) else array
