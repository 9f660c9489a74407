"""Trains every method on every locomotion task, kills each run with SIGKILL, continues it and films an episode; a line each.

    python tools/locomotion_check.py --steps 2000 --out runs/locomotion-check

Networks are far too small to learn. Pairs that are in OUT/table.csv already are not run again. Exit code 0 when all went well.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import time
from pathlib import Path

FIELDS = (
    "task",
    "method",
    "steps",
    "killed_after",
    "checkpoint_at",
    "resumed",
    "evaluations",
    "final_return",
    "film_kb",
    "seconds",
)
HORIZON = 100
"""Steps of an episode here: checkpoints are made between episodes."""
QUICK = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
"""Programs here are compiled in half the time and run once."""
LONGEST = 900.0
"""Seconds after which a process that makes no checkpoint, or does not end, counts as failed."""


def work(task: str, method: str, steps: int, folder: Path) -> None:
    """Trains to the end, from the last checkpoint if there is one; runs in a process of its own."""
    from ubex.experiments import locomotion, train_deep
    from ubex.runs.checkpoint import CheckpointFolder
    from ubex.runs.jobs import JobContext
    from ubex.runs.records import Outcome

    train_deep.CHECKPOINT_SECONDS = 0.5
    physics, _, body = task.partition("-")
    kind = locomotion.Locomotion if physics == "pybullet" else locomotion.LocomotionMujoco
    chosen = kind(tasks=(body,), methods=(method,), steps=steps, preset="smoke", num_models=2, horizon=HORIZON, seeds=1)
    (cell,) = chosen.cells()
    steps_so_far = folder / "steps"

    def report(done: int, total: int, unit: str) -> None:
        steps_so_far.write_text(str(done))

    context = JobContext(CheckpointFolder(folder / "checkpoints"), report, folder)
    outcome = chosen.run(cell, [0], context)[0]
    assert isinstance(outcome, Outcome), outcome
    found = {**outcome.scalars, "evaluations": len(outcome.curves["return"].index)}
    (folder / "outcome.json").write_text(json.dumps(found))


def check(task: str, method: str, steps: int, folder: Path) -> dict[str, object]:
    """One pair: trained, killed, continued, filmed."""
    begin = time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, __file__, "--work", task, method, "--steps", str(steps), "--out", str(folder)]
    environment = {**os.environ, "JAX_COMPILATION_CACHE_DIR": str(folder.parent / "compiled")}
    environment["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    environment.setdefault("XLA_FLAGS", QUICK)
    first = subprocess.Popen(command, env=environment)
    while time.monotonic() - begin < LONGEST and first.poll() is None:
        done = int((folder / "steps").read_text() or 0) if (folder / "steps").exists() else 0
        if done >= steps // 2 and any((folder / "checkpoints").glob("*.ckpt")):
            break
        time.sleep(0.02)
    first.kill()
    first.wait()
    saved = sorted(int(path.stem) for path in (folder / "checkpoints").glob("*.ckpt"))
    assert saved, f"{task} {method}: no checkpoint when it was killed"
    assert not (folder / "outcome.json").exists(), f"{task} {method}: it ended before it was killed"
    killed = (folder / "steps").read_text()
    subprocess.run(command, check=True, timeout=LONGEST, env=environment)
    found = json.loads((folder / "outcome.json").read_text())
    assert found["times_resumed"] == 1.0
    film = folder / "seed-0" / "last-evaluation.gif"
    size = film.stat().st_size / 1024 if film.exists() else 0.0
    assert size > 1.0, f"{task} {method}: no film"
    row = (task, method, steps, killed, saved[-1], 1, found["evaluations"], f"{found['final_return']:.1f}", f"{size:.0f}")
    return dict(zip(FIELDS, (*row, f"{time.monotonic() - begin:.0f}"), strict=True))


def main() -> int:
    from ubex.deep.config import DEEP_AGENTS
    from ubex.envs.locomotion import LOCOMOTION

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--out", type=Path, default=Path("runs/locomotion-check"))
    parser.add_argument("--tasks", nargs="+", default=list(LOCOMOTION), choices=list(LOCOMOTION))
    parser.add_argument("--methods", nargs="+", default=list(DEEP_AGENTS), choices=list(DEEP_AGENTS))
    parser.add_argument("--work", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        task, method = options.work
        work(task, method, options.steps, options.out)
        return 0
    options.out.mkdir(parents=True, exist_ok=True)
    table, failed = options.out / "table.csv", 0
    done = {(row["task"], row["method"]) for row in csv.DictReader(table.open())} if table.exists() else set()
    for task in options.tasks:
        for method in options.methods:
            if (task, method) in done:
                continue
            try:
                row = check(task, method, options.steps, options.out / f"{task}-{method}")
            except (AssertionError, subprocess.SubprocessError) as error:
                print(f"FAILED {task} {method}: {error}", flush=True)
                failed += 1
                continue
            new = not table.exists()
            with table.open("a", newline="") as file:
                writer = csv.DictWriter(file, FIELDS)
                if new:
                    writer.writeheader()
                writer.writerow(row)
            print(" ".join(f"{name}={value}" for name, value in row.items()), flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
