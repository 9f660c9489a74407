"""Checkpoints come back bit for bit, damaged ones are passed over, foreign ones refused."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ubex.runs.checkpoint import KEEP, MAGIC, CheckpointFolder, pack
from ubex.runs.disk import checksum
from ubex.types import InputError


class State(NamedTuple):
    weights: jax.Array
    counts: np.ndarray
    key: jax.Array
    step: int
    rate: float
    done: bool


def state(scale: float = 1.0) -> State:
    return State(jnp.arange(3.0) * scale / 3, np.arange(4), jax.random.key(7), 5, 0.1 * scale, True)


def test_round_trip_is_exact(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path / "deep" / "down")
    assert folder.load(state()) is None
    folder.save(3, state(), {"name": "x", "values": [1.5, None]})
    found = folder.load(state(2.0))
    assert found is not None
    step, back, notes = found
    assert (step, notes) == (3, {"name": "x", "values": [1.5, None]})
    np.testing.assert_array_equal(back.weights, state().weights)
    assert isinstance(back.weights, jax.Array)
    assert isinstance(back.counts, np.ndarray)
    assert back.counts.dtype == state().counts.dtype
    assert (back.step, back.rate, back.done) == (5, 0.1, True)
    assert jax.random.uniform(back.key) == jax.random.uniform(state().key)


def test_same_state_same_bytes() -> None:
    assert pack(1, state(), {"a": 1}) == pack(1, state(), {"a": 1})


class Touch:
    """Makes a file when it comes out of a pickle."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return open, (str(self.path), "w")


def test_no_pickle_goes_in_or_comes_out(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="arrays and numbers only"):
        CheckpointFolder(tmp_path).save(0, {"f": np.array([object()])}, {})
    meta = json.dumps({"step": 0, "notes": {}, "leaves": [{"path": "['f']", "key": None}]})
    buffer, came_out = io.BytesIO(), tmp_path / "came-out"
    np.savez(buffer, meta=np.frombuffer(meta.encode(), np.uint8), leaf0=np.array([Touch(came_out)]))
    payload = buffer.getvalue()
    (tmp_path / "000000000001.ckpt").write_bytes(MAGIC + checksum(payload).encode() + b"\n" + payload)
    with pytest.raises(InputError, match="is not a checkpoint of this version"):
        CheckpointFolder(tmp_path).load({"f": np.zeros(1)})
    assert not came_out.exists()


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path)
    for step in range(5):
        folder.save(step, state(step), {})
    assert len(list(tmp_path.iterdir())) == KEEP
    assert folder.load(state())[0] == 4


@pytest.mark.parametrize("damage", ["truncate", "flip", "empty", "garbage"])
def test_a_damaged_one_is_detected_and_the_one_before_is_used(tmp_path: Path, damage: str) -> None:
    folder = CheckpointFolder(tmp_path)
    folder.save(1, state(1.0), {})
    newest = folder.save(2, state(2.0), {})
    data = bytearray(newest.read_bytes())
    if damage == "truncate":
        data = data[: len(data) // 2]
    elif damage == "flip":
        data[len(data) // 2] ^= 1
    elif damage == "empty":
        data = bytearray()
    else:
        data = bytearray(b"ubex checkpoint 1\nnonsense")
    newest.write_bytes(bytes(data))
    step, back, _ = folder.load(state())
    assert step == 1
    assert back.rate == 0.1
    assert folder.damaged == [newest]


def test_damaged_ones_are_said_and_do_not_push_out_new_ones(tmp_path: Path) -> None:
    """However large their steps are: the run begins anew, and its first checkpoints are the ones that count."""
    said = list[str]()
    folder = CheckpointFolder(tmp_path, said.append)
    old = [folder.save(step, state(), {}) for step in (8, 9)]
    old[1].write_bytes(b"")
    assert folder.load(state())[0] == 8
    assert said == [f"the checkpoint {old[1]} is damaged: it goes on from 000000000008.ckpt"]
    old[0].write_bytes(b"")
    said.clear()
    assert folder.load(state()) is None
    assert said == [f"the checkpoint {path} is damaged: it begins anew" for path in reversed(old)]
    assert [path.exists() for path in old] == [True, True], "whoever wants to look at them can"
    for step in (1, 2, 3):
        folder.save(step, state(), {})
        assert folder.load(state())[0] == step
    assert sorted(path.stem for path in tmp_path.iterdir()) == ["000000000002", "000000000003"]


def test_a_damaged_one_can_be_written_anew(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path)
    path = folder.save(4, state(), {})
    path.write_bytes(b"")
    assert folder.load(state()) is None
    folder.save(4, state(), {})
    assert folder.load(state())[0] == 4


def test_newest_by_step_not_by_clock(tmp_path: Path) -> None:
    import os

    folder = CheckpointFolder(tmp_path)
    folder.save(1, state(), {})
    newest = folder.save(2, state(), {})
    os.utime(newest, (0, 0))  # a clock that went backwards
    assert folder.load(state())[0] == 2


def test_other_settings_are_refused(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path)
    folder.save(1, state(), {})
    with pytest.raises(ValueError, match=r"settings or another version: \.weights is float32\[3\], not float32\[4\]"):
        folder.load(state()._replace(weights=jnp.zeros(4)))
    with pytest.raises(ValueError, match="does not hold the same quantities"):
        folder.load({"weights": jnp.zeros(3)})


@pytest.mark.parametrize("payload", [b"", b"no archive", b"PK\x03\x04"])
def test_a_sound_seal_around_something_else_is_one_line(tmp_path: Path, payload: bytes) -> None:
    path = tmp_path / "000000000001.ckpt"
    path.write_bytes(MAGIC + checksum(payload).encode() + b"\n" + payload)
    for read in (CheckpointFolder(tmp_path).notes, lambda: CheckpointFolder(tmp_path).load(state())):
        with pytest.raises(InputError, match=r"000000000001\.ckpt is not a checkpoint of this version") as caught:
            read()
        assert len(str(caught.value).splitlines()) == 1
