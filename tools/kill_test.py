"""Kills a run with SIGKILL at random moments, continues it each time, and compares the results with an undisturbed run.

    python tools/kill_test.py --kills 20

Exit code 0 when `results.csv` and `curves.csv` are identical to the last byte.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RUN = [
    *("run", "shrinkage", "--no-report", "--seeds", "2", "--methods", "exact-ube", "pombu"),
    *("--sizes", "4", "--episodes", "400", "--workers", "2"),
]


def command(out: Path) -> list[str]:
    return [sys.executable, "-m", "ubex", *RUN, "--out", str(out)]


def kill_test(kills: int, seed: int, folder: Path) -> bool:
    """Whether the results are the same; prints what happens."""
    begin = time.monotonic()
    subprocess.run(command(folder / "whole"), check=True, stdout=subprocess.DEVNULL)
    whole = time.monotonic() - begin
    print(f"undisturbed: {whole:.1f} s", flush=True)
    moments, done, rounds, same = random.Random(seed), 0, 0, True
    while done < kills:  # a run that finishes before the last kill is compared, and another begins
        rounds += 1
        out = folder / f"killed-{rounds}"
        done = kill_until_finished(out, kills, done, whole, moments)
        subprocess.run(command(out), check=True, stdout=subprocess.DEVNULL)
        names = ("results.csv", "curves.csv")
        same &= all((folder / "whole" / name).read_bytes() == (out / name).read_bytes() for name in names)
        print(f"run {rounds}, {done} kills so far: {'identical' if same else 'DIFFERENT'}", flush=True)
    return same


def kill_until_finished(out: Path, kills: int, done: int, whole: float, moments: random.Random) -> int:
    """Kills and continues one run until it finishes or there were enough kills; returns how many there were in all."""
    while done < kills:
        process = subprocess.Popen(command(out), stdout=subprocess.DEVNULL)
        try:
            process.wait(timeout=moments.uniform(0.3, whole * 0.9))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            done += 1
            finished = len(list(out.glob("cells/*/*/done.json")))
            saved = sorted(path.stem.lstrip("0") for path in out.glob("cells/*/*/*.ckpt"))
            print(f"kill {done}: {finished} finished, checkpoints at {', '.join(saved) or 'none'}", flush=True)
            continue
        if process.returncode:
            raise SystemExit(f"the run failed with exit code {process.returncode}")
        break
    return done


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0, help="of the random moments")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        same = kill_test(options.kills, options.seed, Path(folder))
    print("identical results" if same else "THE RESULTS DIFFER")
    raise SystemExit(0 if same else 1)


if __name__ == "__main__":
    main()
