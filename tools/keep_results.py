"""Keeps the small part of a run folder under `results/`: the tidy tables and what was asked for, without this machine's paths.

python tools/keep_results.py runs/deep-sea results/deep-sea
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

FILES = ("results.csv", "curves.csv", "tables.json")


def keep(run: Path, target: Path) -> None:
    """Copies the tables, and the spec with the command as one would type it."""
    target.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        if (run / name).is_file():
            shutil.copyfile(run / name, target / name)
    spec = json.loads((run / "spec.json").read_text(encoding="utf-8"))
    spec["command"] = typed(spec.get("command", []))
    if spec.get("git", {}).get("dirty") is not False:
        spec.pop("git", None)  # a commit that the code was not at says nothing
    (target / "spec.json").write_text(json.dumps(spec, indent=1) + "\n", encoding="utf-8")


def typed(command: list[str]) -> list[str]:
    """The command without the folders of this machine."""
    words = ["ubex", *command[1:]]
    return [word for i, word in enumerate(words) if word != "--out" and (i == 0 or words[i - 1] != "--out")]


if __name__ == "__main__":
    keep(Path(sys.argv[1]), Path(sys.argv[2]))
