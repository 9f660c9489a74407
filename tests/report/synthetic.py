"""A run folder as the engine leaves it, with made-up numbers, names that try to break the page, and a cell that failed."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ubex.runs import pictures, schema, store
from ubex.runs.records import Cell, FigureSpec

NAME = "<script>alert(1)</script>"
METHODS = ("exact-ube", "pombu", "psrl", "my </script> & own")
SIZES = (10, 20, 30, 40)
EPISODES = 120
FIGURES = (
    FigureSpec("regret", "Total regret", "bars", "total_regret", "size", "total regret", x="size", facet="noise", cap=400.0),
    FigureSpec(
        "scaling", "Regret against <b>size</b>", "lines", "total_regret", "size", "total regret", x="size", facet="noise"
    ),
    FigureSpec("learning", "Return along the run", "curves", "return", "episode", "return", x="episode", facet="size"),
    FigureSpec("time", "Learning time", "lines", "learning_time", "size", "episodes", x="size", log=True),
    FigureSpec("later", "What no cell has", "bars", "absent", "size", "nothing", x="size"),
)


def write_run(
    folder: Path, name: str = NAME, seeds: int = 5, figures: Sequence[FigureSpec] = FIGURES, failed: bool = True
) -> Path:
    """Writes the folder and returns it; the last method's largest cell fails where that is asked for."""
    folder.mkdir(parents=True)
    grid = [(method, size, noise) for size in SIZES for noise in (0.1, 0.5) for method in METHODS]
    cells = [
        Cell(name, "deep-sea", method, {"size": size, "noise": noise, "num_models": 5, "gain": 1.0, "episodes": 1000})
        for method, size, noise in grid
    ]
    rows: list[dict[str, Any]] = []
    points: list[dict[str, Any]] = []
    generator = np.random.default_rng(0)
    for cell in cells:
        settings: dict[str, Any] = dict(cell.settings)
        broken = failed and cell.method == METHODS[-1] and settings["size"] == SIZES[-1] and settings["noise"] == 0.5
        for seed in range(seeds):
            place = folder / "cells" / cell.id / f"seed-{seed}"
            place.mkdir(parents=True)
            if broken and seed > 1:
                said = {
                    "error": "ValueError: <img src=x onerror=alert(2)>",
                    "traceback": "Traceback:\n  <script>alert(3)</script>",
                }
                (place / "error.json").write_text(json.dumps(said))
                continue
            (place / "done.json").write_text(json.dumps({"metrics_sha256": "", "seconds": 2.5 + seed}))
            head = {"experiment": name, "environment": "deep-sea", "method": cell.method, "seed": seed}
            slow = settings["size"] * (1 + METHODS.index(cell.method)) * (1 + settings["noise"])
            scalars = {"total_regret": 5.0 * slow, "learning_time": 4.0 * slow, "final_return": 1.0}
            for metric, value in scalars.items():
                rows.append({**head, "metric": metric, "value": value * generator.normal(1.0, 0.04), **settings})
            noise = generator.normal(0.0, 0.03, EPISODES).cumsum() / 4
            for episode in range(EPISODES):
                value = 1.0 - np.exp(-episode / slow) + noise[episode]
                points.append({**head, "episode": episode, "metric": "return", "value": value, **settings})
    store.tidy(rows).to_csv(folder / "results.csv", index=False)
    store.tidy(points).to_csv(folder / "curves.csv", index=False)
    write_papers(folder, name, cells, seeds, figures)
    return folder


def write_papers(folder: Path, name: str, cells: Sequence[Cell], seeds: int, figures: Sequence[FigureSpec]) -> None:
    """Spec, history with a last line cut short, and the experiment's own tables."""
    machine = {
        "system": "Linux",
        "processor": "some processor",
        "cores": 8,
        "devices": ["one accelerator", "another"],
        "memory_gib": None,
    }
    versions = {"python": "3.11.2", "jax": "0.10.1", "ubex": "0.1.0"}
    command = ["/some/where/bin/ubex", "run", name, "--out", "runs/a folder", "--seeds", str(seeds)]
    spec = {
        "format": schema.FORMAT,
        "experiment": name,
        "summary": "Deep sea of growing size: how many episodes until <i>it</i> is solved",
        "settings": {"seeds": seeds, "sizes": list(SIZES), "note": "<u>x</u>", "correlated": False, "u_min": 0.0},
        "figures": [dataclasses.asdict(figure) for figure in figures],
        "cells": [{"id": c.id, "environment": c.environment, "method": c.method, "settings": dict(c.settings)} for c in cells],
        "seeds": seeds,
        "versions": versions,
        "machine": machine,
        "git": {"commit": "0123456789abcdef0123456789abcdef01234567", "dirty": True},
        "created": "2030-01-02T03:04:05+00:00",
        "command": command,
    }
    (folder / "spec.json").write_text(json.dumps(spec))
    entry = {"started": spec["created"], "command": command, "versions": versions, "machine": machine, "seconds": 3725.0}
    ended = {"finished": 157, "failed": 3, "status": "failed cells"}
    (folder / "history.jsonl").write_text(json.dumps({**entry, **ended}) + "\n" + json.dumps(entry)[:40])
    table = {
        "title": "Own <table>",
        "columns": ["method", "regret"],
        "rows": [[METHODS[0], "1.5"], ["<b>bold</b>", "2.5"]],
        "note": "A note & more.",
    }
    (folder / "tables.json").write_text(json.dumps([table]))


def keep(folder: Path, cell: int, seed: int, name: str, data: bytes) -> Path:
    """A file that a cell of the spec left while it ran."""
    place = folder / "artifacts" / json.loads((folder / "spec.json").read_text())["cells"][cell]["id"] / f"seed-{seed}"
    place.mkdir(parents=True, exist_ok=True)
    (place / name).write_bytes(data)
    return place / name


def maps(episode: int, names: Sequence[str] = ("mean value", "standard deviation"), points: int = 21) -> bytes:
    """Maps that move with the episode."""
    x, y = np.linspace(-3.0, 3.0, points), np.linspace(-8.0, 8.0, points)
    layer = np.exp(-((x[None, :] - episode / 10) ** 2) - (y[:, None] / 4) ** 2)
    return pictures.maps_file(x, y, "angle", "velocity <b>", {name: (i + 1) * layer for i, name in enumerate(names)}, episode)


def gif(frames: int = 6, size: int = 240, noise: int = 0) -> bytes:
    """A square that wanders; with noise it takes room."""
    generator, drawn = np.random.default_rng(0), []
    for frame in range(frames):
        picture = generator.integers(0, noise + 1, (size, size, 3)).astype(np.uint8)
        picture[frame * 8 : frame * 8 + 30, 20:50] = (200, 40, 40)
        drawn.append(picture)
    return pictures.animation(drawn, 10.0)


def add_pictures(folder: Path) -> Path:
    """Two seeds of the first cell left maps and animations, one of the second an animation."""
    for seed in (0, 1):
        for episode in (5, 10):
            keep(folder, 0, seed, f"maps-{episode}.npz", maps(episode))
        for name in ("episode-10.gif", "episode-2.gif"):
            keep(folder, 0, seed, name, gif())
    keep(folder, 1, 0, "episode-2.gif", gif())
    return folder
