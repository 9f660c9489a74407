"""Draws docs/figures/truth.svg: the variance of values by brute force and by four estimates, without and with cycles.

`python docs/figures/plot_truth.py` computes truth.csv anew and draws it. The two posteriors are made as those of `ubex run
calibration`, by NumPy's generator with seed 0; none was chosen for its picture.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import ubex
from ubex.experiments import calibration_cases
from ubex.report import charts
from ubex.tabular import truth

HERE = Path(__file__).resolve().parent
TABLE, PICTURE = HERE / "truth.csv", HERE / "truth.svg"
KINDS = {
    "acyclic-random": "no state is visited twice: the paper's assumptions hold",
    "cyclic-sparse": "states are visited again: they do not",
}
SIZE, COUNT, DISCOUNT = 25, 1.0, 0.95
"""States, pseudo-counts of a possible next state, discount."""
TRUTH_SAMPLES, SAMPLES, MEMBERS, DRAWS = 20_000, 1000, 5, 200
"""Of brute force, of exact-ube and pombu, of an ensemble, and of ensembles behind its range."""

WIDTH, HEIGHT, TOP, BOTTOM, LEFT, GAP = 880, 350, 84, 44, 52, 62
COLUMN = (WIDTH - LEFT - GAP - 12) / 2
NARROW, LARGER = 560, 2
"""Where the picture is shown no wider than so many pixels, as on a phone, it has the second panel alone, so much larger."""
SERIES = ("closed-form", "exact-ube", "pombu")
LEGEND = {
    "truth": ("truth", "brute force, 20,000 samples"),
    "closed-form": ("closed-form", "no samples"),
    "exact-ube": ("exact-ube", "1,000 samples"),
    "pombu": ("pombu", "1,000 samples"),
    "ensemble-var": ("ensemble-var", "5 samples: median, 10 to 90%"),
}
STYLE = """
text { font: 12px system-ui, sans-serif; fill: #1f2328 } .small { font-size: 11px; fill: #59636e } .title { font-size: 13px }
.axis { stroke: #8c959f } .grid { stroke: #8c959f; opacity: .25 } .truth { stroke: #1f2328; stroke-width: 2.5; fill: none }
.ensemble-var { stroke-width: 7; opacity: .35 } .median { stroke-width: 1.5; opacity: 1 }
.closed-form, .exact-ube, .pombu { fill: none; stroke-width: 1.8 }
@media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .small { fill: #9198a1 } .truth { stroke: #e6edf3 } }
.narrow { display: none }
"""
ON_A_PHONE = f"@media (max-width: {NARROW}px) {{ .wide {{ display: none }} .narrow {{ display: inline }} }}"


class Box(NamedTuple):
    """Where a panel is drawn, without its title and the numbers of its axis."""

    left: float
    width: float
    high: float
    low: float


def colours() -> str:
    """The report's colours of the methods, on light and on dark ground."""
    looks = charts.method_looks(name for name in LEGEND if name != "truth").items()
    light = " ".join(f".{name} {{ stroke: {look.color} }}" for name, look in looks)
    dark = " ".join(f".{name} {{ stroke: {look.dark} }}" for name, look in looks)
    return f"{light}\n@media (prefers-color-scheme: dark) {{ {dark} }}\n"


def case_of(kind: str) -> calibration_cases.Case:
    """The posterior and the policy of one panel."""
    return calibration_cases.make(kind, COUNT, SIZE, 0, np.random.default_rng(0))


def estimate(case: calibration_cases.Case, name: str) -> NDArray[np.float64]:
    """By one of `SERIES`; nothing is clipped, so that exact-ube is the equation itself. The closed form ignores the samples."""
    return ubex.value_variance(
        case.posterior, case.policy, DISCOUNT, estimator=name, key=1, num_models=SAMPLES, u_min=-np.inf
    ).v


def ensembles(case: calibration_cases.Case, draws: int) -> NDArray[np.float64]:
    """The variance by many ensembles of five: a row each."""
    return np.stack(
        [
            ubex.value_variance(case.posterior, case.policy, DISCOUNT, estimator="ensemble-var", key=key, num_models=MEMBERS).v
            for key in range(draws)
        ]
    )


def numbers() -> pd.DataFrame:
    """The table behind the picture: a row per state, in the order of the true variance."""
    parts = []
    for kind in KINDS:
        case = case_of(kind)
        true = truth.brute_force(truth.sample_chains(case.posterior, case.policy, 0, TRUTH_SAMPLES), DISCOUNT)
        low, middle, high = np.percentile(ensembles(case, DRAWS), (10, 50, 90), axis=0)
        columns = {"truth": true.variance, "standard_error": true.standard_error}
        columns |= {name: estimate(case, name) for name in SERIES}
        columns |= {"ensemble_low": low, "ensemble_median": middle, "ensemble_high": high}
        part = pd.DataFrame({"kind": kind, "state": np.arange(SIZE), **columns})
        parts.append(part.sort_values("truth", kind="stable"))
    return pd.concat(parts, ignore_index=True).round(6)


def mark(name: str, x: float, y: float) -> str:
    """The sign of an estimate: they differ in shape too."""
    if name == "closed-form":
        return f'<circle class="{name}" cx="{x:.1f}" cy="{y:.1f}" r="4"/>'
    if name == "pombu":
        return f'<rect class="{name}" x="{x - 3:.1f}" y="{y - 3:.1f}" width="6" height="6"/>'
    return f'<path class="{name}" d="M{x - 3.5:.1f} {y - 3.5:.1f}l7 7m0-7l-7 7"/>'


def panel(rows: pd.DataFrame, title: str, box: Box) -> list[str]:
    """One posterior, and an axis from 0 with some lines."""
    largest = float(rows[["truth", "pombu", "closed-form", "ensemble_high"]].to_numpy().max())
    step = 10.0 ** np.floor(np.log10(largest)) * (0.5 if largest / 10.0 ** np.floor(np.log10(largest)) < 4.0 else 1.0)
    top, (left, width, high, low) = float(step * np.ceil(largest / step)), box

    def place(value: float) -> float:
        return low - (low - high) * value / top

    xs = [left + width * (i + 0.5) / len(rows) for i in range(len(rows))]
    drawn = [f'<text class="title" x="{left:.0f}" y="{high - 14:.0f}">{title}</text>']
    for tick in np.arange(0.0, top + step / 2, step):
        y = place(tick)
        drawn.append(f'<path class="{"grid" if tick else "axis"}" d="M{left:.0f} {y:.1f}h{width:.0f}"/>')
        drawn.append(f'<text class="small" text-anchor="end" x="{left - 6:.0f}" y="{y + 4:.1f}">{tick:g}</text>')
    for x, below, half, above in zip(xs, rows["ensemble_low"], rows["ensemble_median"], rows["ensemble_high"], strict=True):
        drawn.append(f'<path class="ensemble-var" d="M{x:.1f} {place(below):.1f}V{place(above):.1f}"/>')
        drawn.append(f'<path class="ensemble-var median" d="M{x - 4:.1f} {place(half):.1f}h8"/>')
    line = " ".join(f"{x:.1f},{place(y):.1f}" for x, y in zip(xs, rows["truth"], strict=True))
    drawn.append(f'<polyline class="truth" points="{line}"/>')
    drawn += [mark(name, x, place(y)) for name in reversed(SERIES) for x, y in zip(xs, rows[name], strict=True)]
    below = f'<text class="small" x="{left + width / 2:.0f}" y="{low + 30:.0f}" text-anchor="middle">'
    return [*drawn, f"{below}{len(rows)} states, in the order of their true variance</text>"]


def legend(x: float, y: float, notes: bool) -> list[str]:
    """The signs and their names in a row, with or without how many samples each takes."""
    drawn = []
    for name, (label, note) in LEGEND.items():
        if name == "truth":
            drawn.append(f'<path class="truth" d="M{x - 7:.0f} {y:.0f}h14"/>')
        elif name == "ensemble-var":
            drawn.append(f'<path class="ensemble-var" d="M{x:.0f} {y - 10:.0f}v20"/>')
            drawn.append(f'<path class="ensemble-var median" d="M{x - 4:.0f} {y:.0f}h8"/>')
        else:
            drawn.append(mark(name, x, y))
        drawn.append(f'<text x="{x + 12:.0f}" y="{y - 2 if notes else y + 4:.0f}">{label}</text>')
        if notes:
            drawn.append(f'<text class="small" x="{x + 12:.0f}" y="{y + 12:.0f}">{note}</text>')
        x += 34.0 + 6.2 * max(len(label), len(note) if notes else 0)
    return drawn


def picture(table: pd.DataFrame) -> str:
    """The picture as SVG, which follows the reader's light or dark scheme, and the width at which it is shown."""
    parts = [(table[table["kind"] == kind], title) for kind, title in KINDS.items()]
    wide = ['<text class="small" x="12" y="18">variance of the value of a state</text>', *legend(16.0, 38.0, True)]
    for number, (rows, title) in enumerate(parts):
        wide += panel(rows, title, Box(LEFT + number * (COLUMN + GAP), COLUMN, TOP, HEIGHT - BOTTOM))
    rows, _ = parts[-1]
    width, height = WIDTH / LARGER, HEIGHT / LARGER
    alone = "variance of values where states are visited again"
    narrow = [*legend(12.0, 10.0, False), *panel(rows, alone, Box(24.0, width - 30.0, 44.0, height - 33.0))]
    says = "True variance of values and four estimates of it, for a posterior without cycles and one with cycles"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{says}">'
    style = f"<style>{STYLE}{ON_A_PHONE}{colours()}</style>"
    body = ['<g class="wide">', *wide, "</g>", f'<g class="narrow" transform="scale({LARGER})">', *narrow, "</g>"]
    return "\n".join([head, f"<title>{says}</title>", style, *body, "</svg>", ""])


def main() -> None:
    """Computes and draws."""
    numbers().to_csv(TABLE, index=False)
    PICTURE.write_text(picture(pd.read_csv(TABLE)))


if __name__ == "__main__":
    main()
