"""What a run leaves on disk, so that it can be killed at any moment and continued.

    DIR/spec.json                          what was asked for, written once, and again when seeds are added
    DIR/history.jsonl                      one line per invocation: versions, machine, command, how it ended
    DIR/cells/ID/seed-K/metrics.json       scalars and curves of one cell and seed
    DIR/cells/ID/seed-K/done.json          completion marker with the checksum of the metrics, written last
    DIR/cells/ID/seed-K/error.json         why it failed, where it did
    DIR/cells/ID/checkpoints-SEEDS/        see checkpoint.py
    DIR/cells/ID/checkpoints-SEEDS/so-far.json   what seeds had shown at the newest one, for experiments that say so
    DIR/artifacts/ID/seed-K/               files that the cell left while it ran: maps, animations
    DIR/results.csv, DIR/curves.csv        tidy tables, made anew from the cells
    DIR/tables.json                        the experiment's own tables

Every file is written by disk.py, so a reader never sees half of one.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import pandas as pd

from ubex.runs import schema
from ubex.runs.disk import StorageError, checksum, storage, write_atomically
from ubex.runs.folder import CURVES, HISTORY, RESULTS, SPEC, read_spec
from ubex.runs.records import SO_FAR, Cell, Outcome, from_json, to_json
from ubex.runs.schema import COLUMNS
from ubex.types import InputError

Outcomes = dict[tuple[str, int], Outcome]
"""By the id of a cell and the number of a seed."""
LOCK = ".lock"
ARTIFACTS = "artifacts"
ARTIFACT_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}", re.ASCII)
"""No folders, nothing that an address or a shell could stumble over; a leading dot marks files that are being written."""


def folder(path: Path) -> Path:
    """The folder of a run, made if need be."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise InputError(f"--out {path} is a file, not a folder") from None
    except OSError as error:
        raise InputError(f"--out {path} cannot be made: {error.strerror}") from None
    return path


class Store:
    """One run folder, held by one process at a time."""

    def __init__(self, root: Path, spec: Mapping[str, Any], lock: IO[str]) -> None:
        """Use `Store.open`."""
        self.root, self.spec, self._lock, self.cells = root, spec, lock, cells_of(spec)
        self.seeds: int = spec["seeds"]
        self._outcomes, self.damaged = finished(root, spec)

    @classmethod
    def open(cls, root: Path, spec: Mapping[str, Any]) -> Store:
        """Makes the folder or takes up an earlier run of the same settings, maybe with more seeds; others are refused."""
        folder(root)
        lock = hold(root)
        path = root / SPEC
        try:
            if path.exists():
                there = read_spec(root)
                wanted = with_seeds(there, spec)
                check_same(wanted, spec, root)
                if wanted is not there:
                    write_atomically(path, json.dumps(wanted, indent=1))
            elif any(entry.name != LOCK for entry in root.iterdir()):
                raise InputError(f"--out {root} has files in it but no {SPEC}: it is not a run folder; choose another")
            else:
                write_atomically(path, json.dumps(spec, indent=1))
        except BaseException:
            lock.close()
            raise
        return cls(root, read_spec(root), lock)

    def close(self) -> None:
        """Lets the next process in."""
        self._lock.close()

    def place(self, cell: Cell, seed: int) -> Path:
        """The folder of one cell and seed."""
        return self.root / "cells" / cell.id / f"seed-{seed}"

    def checkpoint_folder(self, cell: Cell, seeds: Sequence[int]) -> Path:
        """Where the checkpoints of seeds that run together are."""
        return self.root / "cells" / cell.id / f"checkpoints-{'-'.join(map(str, seeds))}"

    def begun(self, cell: Cell) -> list[tuple[int, ...]]:
        """Seeds that ran together and left checkpoints, the largest groups first."""
        folders = (self.root / "cells" / cell.id).glob("checkpoints-*")
        found = [tuple(int(seed) for seed in path.name.split("-")[1:] if seed.isdigit()) for path in folders]
        return sorted(found, key=lambda seeds: (-len(seeds), seeds))

    def artifact_folder(self, cell: Cell) -> Path:
        """Where the files are that a cell leaves; they stay when it has ended."""
        return self.root / ARTIFACTS / cell.id

    def finished(self, cell: Cell, seed: int) -> bool:
        """Whether this cell and seed is done."""
        return (cell.id, seed) in self._outcomes

    def finish(self, cell: Cell, outcomes: Mapping[int, Outcome], seconds: float) -> None:
        """Keeps the outcomes of seeds that ran together: metrics first, then the marker; their checkpoints can go."""
        for seed, outcome in outcomes.items():
            place = self._make(cell, seed)
            metrics = json.dumps(to_json(outcome)).encode()
            write_atomically(place / "metrics.json", metrics)
            write_atomically(place / "done.json", json.dumps({"metrics_sha256": checksum(metrics), "seconds": seconds}))
            with contextlib.suppress(OSError):
                (place / "error.json").unlink(missing_ok=True)
            self._outcomes[cell.id, seed] = outcome
        for seeds in self.begun(cell):  # those of these seeds, and those of groups in which a seed had failed
            if all(self.finished(cell, seed) for seed in seeds):
                shutil.rmtree(self.checkpoint_folder(cell, seeds), ignore_errors=True)

    def fail(self, cell: Cell, seeds: Sequence[int], error: str, trace: str) -> None:
        """Keeps why a cell failed; the next invocation tries it again."""
        for seed in seeds:
            write_atomically(self._make(cell, seed) / "error.json", json.dumps({"error": error, "traceback": trace}))

    def write_tables(self) -> None:
        """Writes the tidy tables from what is finished, in the order of the spec: same results, same bytes."""
        rows, points = tables(self.cells, self._outcomes)
        write_atomically(self.root / RESULTS, rows.to_csv(index=False))
        if len(points):
            write_atomically(self.root / CURVES, points.to_csv(index=False))

    def note(self, entry: Mapping[str, Any]) -> None:
        """Adds a line to the history."""
        with storage(f"write {self.root / HISTORY}"), open(self.root / HISTORY, "a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")

    def _make(self, cell: Cell, seed: int) -> Path:
        if not (self.root / SPEC).exists():
            raise StorageError(f"{self.root} was removed or emptied while the run was using it")
        place = self.place(cell, seed)
        with storage(f"make {place}"):
            place.mkdir(parents=True, exist_ok=True)
        return place


def cells_of(spec: Mapping[str, Any]) -> list[Cell]:
    """The cells of a run."""
    return [Cell(spec["experiment"], c["environment"], c["method"], c["settings"]) for c in spec["cells"]]


def finished(root: Path, spec: Mapping[str, Any]) -> tuple[Outcomes, list[str]]:
    """What the finished seeds of a run left, and in words what is damaged of it, which will be run again."""
    found, damaged = Outcomes(), list[str]()
    for cell in cells_of(spec):
        if not (root / "cells" / cell.id).is_dir():
            continue
        for seed in range(spec["seeds"]):
            place = root / "cells" / cell.id / f"seed-{seed}"
            if not (place / "done.json").exists():
                continue
            outcome = read_outcome(place)
            if outcome is None:
                damaged.append(f"the metrics of {cell.label}, seed {seed} are damaged")
            else:
                found[cell.id, seed] = outcome
    return found, damaged


def so_far(root: Path, spec: Mapping[str, Any]) -> Outcomes:
    """What seeds had shown at their newest checkpoint, of those that have not finished."""
    found, done = Outcomes(), finished(root, spec)[0]
    for cell in cells_of(spec):
        for path in sorted((root / "cells" / cell.id).glob(f"checkpoints-*/{SO_FAR}")):
            try:
                shown = {int(seed): from_json(one) for seed, one in json.loads(path.read_text()).items()}
                if not all(0 <= seed < spec["seeds"] and one.earlier and sound(one) for seed, one in shown.items()):
                    raise ValueError(path)
            except FileNotFoundError:  # its seeds have just finished
                continue
            except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
                raise InputError(f"{path} is damaged: continue the run, which makes it anew") from None
            for seed, one in shown.items():  # which may have run in several groups
                place = (cell.id, seed)
                if place not in done and (place not in found or max(one.earlier) > max(found[place].earlier)):
                    found[place] = one
    return found


def sound(outcome: Outcome) -> bool:
    """Whether an outcome that was read has numbers where there must be numbers."""
    scalars = [value for some in (outcome.scalars, *outcome.earlier.values()) for value in some.values()]
    along = [value for curve in outcome.curves.values() for value in (*curve.index, *curve.values)]
    even = all(len(curve.index) == len(curve.values) for curve in outcome.curves.values())
    return even and all(isinstance(value, int | float) for value in (*scalars, *along))


def tables(cells: Sequence[Cell], outcomes: Outcomes) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The tidy tables of scalars and of curves, in the order of the cells."""
    rows: list[dict[str, Any]] = []
    points: list[dict[str, Any]] = []
    order = {cell.id: number for number, cell in enumerate(cells)}
    for (place, seed), outcome in sorted(outcomes.items(), key=lambda item: (order[item[0][0]], item[0][1])):
        cell = cells[order[place]]
        head = {"experiment": cell.experiment, "environment": cell.environment, "method": cell.method, "seed": seed}
        rows += [{**head, "metric": m, "value": v, **cell.settings} for m, v in outcome.scalars.items()]
        for number, scalars in outcome.earlier.items():
            settings = {**cell.settings, outcome.earlier_unit: number}
            rows += [{**head, "metric": m, "value": v, **settings} for m, v in scalars.items()]
        for metric, curve in outcome.curves.items():
            points += [
                {**head, curve.unit: i, "metric": metric, "value": v, **cell.settings}
                for i, v in zip(curve.index, curve.values, strict=True)
            ]
    return tidy(rows), tidy(points)


def hold(root: Path) -> IO[str]:
    """Locks the folder, or says who holds it. The lock goes with the process, however it ends."""
    try:
        lock = open(root / LOCK, "a+", encoding="utf-8")  # noqa: SIM115  (it stays open as long as the store)
    except OSError as error:
        raise InputError(f"--out {root} cannot be written to: {error.strerror}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.seek(0)
        holder = lock.read().strip() or "another process"
        lock.close()
        raise InputError(f"--out {root} is in use by {holder}; wait for it or choose another folder") from None
    lock.seek(0)
    lock.truncate()
    lock.write(f"process {os.getpid()} on {socket.gethostname()}")
    lock.flush()
    return lock


def with_seeds(there: dict[str, Any], here: Mapping[str, Any]) -> dict[str, Any]:
    """The spec of a folder with the seeds and the command of a run that wants more of them; the spec itself if it does not."""
    before, now = there["settings"].get("seeds"), here["settings"].get("seeds")
    if not (isinstance(before, int) and isinstance(now, int) and before < now):
        return there
    return {**there, "settings": {**there["settings"], "seeds": now}, "seeds": here["seeds"], "command": here["command"]}


def check_same(there: Mapping[str, Any], here: Mapping[str, Any], root: Path) -> None:
    """Refuses to mix two runs in one folder, and shows in what they differ."""
    if there["experiment"] != here["experiment"]:
        raise InputError(f"--out {root} holds the experiment {there['experiment']}, not {here['experiment']}")
    before, now = dict(there["settings"]), json.loads(json.dumps(here["settings"]))
    different = [
        f"{name} {before.get(name, 'absent')} there, {now.get(name, 'absent')} here"
        for name in sorted({*before, *now})
        if before.get(name) != now.get(name)
    ]
    if different:
        raise InputError(f"--out {root} holds a run with other settings ({'; '.join(different)}); choose another folder")
    if [c["id"] for c in there["cells"]] != [c["id"] for c in here["cells"]]:
        raise InputError(f"--out {root} was written by a version of ubex whose cells differ; choose another folder")


def read_outcome(place: Path) -> Outcome | None:
    """What a finished cell and seed left, or nothing where it is damaged."""
    try:
        metrics = (place / "metrics.json").read_bytes()
        if schema.json_at(place / "done.json")["metrics_sha256"] != checksum(metrics):
            return None
        return from_json(json.loads(metrics))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def tidy(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """The fixed columns first, then the cells' own fields."""
    table = pd.DataFrame(list(rows), columns=None if rows else list(COLUMNS))
    return table[[*COLUMNS, *(column for column in table.columns if column not in COLUMNS)]]
