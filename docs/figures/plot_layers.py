"""Draws docs/figures/architecture.svg from the table of layers that tests/test_architecture.py holds the imports to.

Run it after a change of the table: python docs/figures/plot_layers.py
"""

from __future__ import annotations

import ast
from pathlib import Path

HERE = Path(__file__).resolve().parent
TABLE = HERE.parents[1] / "tests" / "test_architecture.py"
TARGET = HERE / "architecture.svg"
WORDS = {
    "types": "MDP, moments, answers",
    "lazy": "imported when asked for",
    "keys": "random keys by name",
    "precision": "64-bit inside calls",
    "checks": "what callers hand in",
    "fields": "one gate for settings",
    "imports": "module:name",
    "ube": "THE PAPER",
    "closed_form": "no sampling",
    "returns": "a row met again",
    "estimators": "one file each, ESTIMATORS",
    "envs": "one file each, ENVS",
    "tabular": "tables: exact moments, S A",
    "deep": "networks: sampled moments, B",
    "calls": "value_variance, value_covariance",
    "runs": "store, pool, Ray, statistics",
    "doctor": "is this machine fit?",
    "callbacks": "while an agent learns",
    "learn": "one driver; train, Agent",
    "bench": "what is measured",
    "experiments": "one file each, EXPERIMENTS",
    "report": "figures, tables, one page",
    "demo": "the main job on defaults",
    "cli": "the command line",
    "__main__": "python -m ubex",
}
"""What each part is, in a few words."""
WIDTH, MARGIN, GAP, HEIGHT = 900, 16, 12, 46
INK, SOFT, EDGE, FILL, ACCENT = "#1d2126", "#5b6470", "#b9c2cc", "#f4f6f8", "#0a5f94"


def layers() -> list[list[str]]:
    """The table, lowest layer first, names sorted within a layer."""
    for node in ast.parse(TABLE.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "LAYERS":
            return [sorted(members) for members in ast.literal_eval(node.value)]
    raise SystemExit(f"{TABLE} has no LAYERS")


def box(x: float, y: float, width: float, name: str) -> str:
    """One part of the package."""
    color = ACCENT if name == "ube" else EDGE
    middle = x + width / 2
    return (
        f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{HEIGHT}" rx="8" fill="{FILL}" stroke="{color}"/>\n'
        f'<text x="{middle:.1f}" y="{y + 19}" class="name">{name}</text>\n'
        f'<text x="{middle:.1f}" y="{y + 36}" class="words">{WORDS[name]}</text>\n'
    )


def draw(table: list[list[str]]) -> str:
    """The picture: the command line on top, the types at the bottom; whatever is lower may be imported."""
    inner = WIDTH - 2 * MARGIN - 40
    parts, y = [], MARGIN
    for members in reversed(table):
        width = (inner - GAP * (len(members) - 1)) / len(members)
        parts += [box(MARGIN + 40 + index * (width + GAP), y, width, name) for index, name in enumerate(members)]
        y += HEIGHT + GAP
    bottom = y - GAP
    arrow = (
        f'<path d="M{MARGIN + 14} {MARGIN} V{bottom - 8}" stroke="{SOFT}" fill="none"/>\n'
        f'<path d="M{MARGIN + 8} {bottom - 10} L{MARGIN + 14} {bottom} L{MARGIN + 20} {bottom - 10}" fill="{SOFT}"/>\n'
        f'<text class="words" transform="translate({MARGIN + 6} {bottom / 2:.0f}) rotate(-90)">imports</text>\n'
    )
    style = (
        f"text {{ font-family: system-ui, sans-serif; text-anchor: middle; fill: {INK}; }}\n"
        f".name {{ font-size: 14px; font-weight: 600; }}\n.words {{ font-size: 11px; fill: {SOFT}; }}"
    )
    title = "Layers of ubex: every part imports only from the rows below it"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + MARGIN}" role="img">'
    ground = f'<rect width="{WIDTH}" height="{bottom + MARGIN}" fill="#ffffff"/>'
    return f"{head}\n<title>{title}</title>\n<style>{style}</style>\n{ground}\n{arrow}{''.join(parts)}</svg>\n"


if __name__ == "__main__":
    TARGET.write_text(draw(layers()), encoding="utf-8")
