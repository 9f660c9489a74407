"""Figures against hand-computed means and standard errors, and looks that hold without colour."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from ubex.deep.methods import DEEP_METHODS
from ubex.estimators import ESTIMATORS
from ubex.report import charts, figures
from ubex.runs.records import FigureSpec
from ubex.tabular.agents import AGENTS
from ubex.types import InputError


def table(values: dict[tuple[str, Any], list[float]], x: str = "size", metric: str = "regret") -> pd.DataFrame:
    """Tidy rows from {(method, x): one value a seed}."""
    return pd.DataFrame(
        [
            {"experiment": "e", "environment": "sea", "method": m, "seed": seed, "metric": metric, "value": v, x: at}
            for (m, at), row in values.items()
            for seed, v in enumerate(row)
        ]
    )


def spec(kind: str, **fields: Any) -> FigureSpec:
    """A figure spec of the tables above."""
    metric, x = fields.pop("metric", "regret"), fields.pop("x", "size")
    return FigureSpec("name", "Title", kind, metric, "across", "up", x=x, **fields)


def bars_of(axes: Axes) -> list[Rectangle]:
    return [patch for patch in axes.patches if isinstance(patch, Rectangle)]


TWO = {("exact-ube", 10): [1.0, 3.0], ("exact-ube", 20): [4.0, 8.0], ("pombu", 10): [2.0, 2.0], ("pombu", 20): [5.0, 30.0]}


def test_bars_are_means_that_end_at_the_cap_while_their_numbers_do_not() -> None:
    figure = figures.draw(spec("bars", cap=10.0), table(TWO), None)
    axes = figure.axes[0]
    assert [bar.get_height() for bar in bars_of(axes)] == [2.0, 2.0, 6.0, 10.0]
    assert [text.get_text() for text in axes.texts] == ["2", "2", "6", "17.5"]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["10", "20"]
    whiskers = [line.get_ydata() for line in axes.lines if len(line.get_xdata()) == 2 and line.get_linewidth() == 0.9]
    np.testing.assert_allclose(whiskers, [[1.0, 3.0], [4.0, 8.0], [5.0, 10.0]])  # equal seeds have none; the cap holds here too
    assert figure.legends[0].get_title().get_text().startswith("Whiskers are one standard error")
    assert "Bars end at 10" in figure.legends[0].get_title().get_text()


def test_a_bar_that_would_leave_the_axis_has_a_break() -> None:
    axes = figures.draw(spec("bars", cap=10.0), table(TWO), None).axes[0]
    marked = {float(line.get_xdata()[0]) for line in axes.lines if line.get_gid() == figures.BREAK}
    ended = [bar.get_x() + bar.get_width() / 2 for bar in bars_of(axes) if bar.get_height() == 10.0]
    assert sorted(marked) == pytest.approx(ended)
    assert len(ended) == 1
    whole = figures.draw(spec("bars"), table(TWO), None).axes[0]
    assert not [line for line in whole.lines if line.get_gid() == figures.BREAK]


@pytest.mark.parametrize("kind", ["lines", "curves"])
def test_lines_of_one_place_are_dots_next_to_each_other_from_zero(kind: str) -> None:
    rows = table({("pombu", 10): [101.0, 103.0], ("psrl", 10): [104.0, 106.0]})
    content = charts.chart(spec(kind), rows, rows)
    assert content.spec.kind == charts.DOTS
    assert content.groups == ["10"]
    assert content.notes == ["Whiskers are one standard error of the mean over seeds."]
    axes = figures.draw_chart(content).axes[0]
    dots = [line for line in axes.lines if line.get_marker() not in ("None", "")]
    assert [float(line.get_ydata()[0]) for line in dots] == [102.0, 105.0]
    assert dots[0].get_xdata()[0] < dots[1].get_xdata()[0]
    assert axes.get_ylim()[0] == 0.0
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["10"]
    assert charts.chart(spec(kind), table(TWO), table(TWO)).spec.kind == kind


def test_groups_of_bars_are_in_the_order_of_their_numbers() -> None:
    rows = table({("pombu", 20): [1.0], ("psrl", 10): [2.0], ("psrl", 20): [2.0]})
    assert charts.chart(spec("bars"), rows).groups == ["10", "20"]
    assert charts.by_size(["b", "20", "a", "3"]) == ["3", "20", "b", "a"]


def test_bars_of_one_group_stand_side_by_side_around_its_label() -> None:
    bars = bars_of(figures.draw(spec("bars"), table(TWO), None).axes[0])
    middles = [bar.get_x() + bar.get_width() / 2 for bar in bars]
    np.testing.assert_allclose(middles, [-0.2, 0.2, 0.8, 1.2])
    assert all(bar.get_width() < 0.4 for bar in bars)


def test_lines_show_means_and_standard_errors_in_the_order_of_x() -> None:
    rows = table({("pombu", 30): [9.0], ("pombu", 10): [1.0, 3.0], ("pombu", 20): [4.0, 8.0]})
    axes = figures.draw(spec("lines"), rows, None).axes[0]
    line = axes.containers[0][0]
    assert list(line.get_xdata()) == [10.0, 20.0, 30.0]
    assert list(line.get_ydata()) == [2.0, 6.0, 9.0]
    segments = axes.collections[0].get_segments()
    np.testing.assert_allclose([segment[:, 1] for segment in segments], [[1.0, 3.0], [4.0, 8.0], [9.0, 9.0]])
    assert list(axes.get_xticks()) == [10.0, 20.0, 30.0]


def test_curves_have_a_mean_line_and_a_band_of_one_standard_error() -> None:
    curves = table({("psrl", 0): [0.0, 2.0], ("psrl", 1): [1.0, 5.0]}, x="episode", metric="return")
    axes = figures.draw(spec("curves", metric="return", x="episode"), table(TWO), curves).axes[0]
    assert list(axes.lines[0].get_ydata()) == [1.0, 3.0]
    band = next(c for c in axes.collections if isinstance(c, PolyCollection)).get_paths()[0].vertices
    assert {(float(a), float(b)) for a, b in np.asarray(band)} >= {(0.0, 0.0), (0.0, 2.0), (1.0, 1.0), (1.0, 5.0)}


def test_curves_of_seeds_with_other_places_are_put_on_one_grid() -> None:
    """Seed 0 is 1 everywhere and seed 1 is 3, at other steps: the mean is 2 wherever both are, and never jumps."""
    steps = {0: [0, 10, 20, 30], 1: [0, 7, 18, 29], 2: [0, 9]}
    rows = [
        {
            "experiment": "toy",
            "environment": "e",
            "method": "sac",
            "seed": seed,
            "metric": "return",
            "value": 1.0 + 2 * seed,
            "step": at,
        }
        for seed, places in steps.items()
        for at in places
    ]
    (panel,) = charts.chart(
        FigureSpec("c", "C", "curves", "return", "step", "return"), pd.DataFrame(), pd.DataFrame(rows)
    ).panels
    (line,) = panel.series
    assert [point.x for point in line.points] == [0, 7, 9, 10, 18, 20, 29, 30]
    assert [point.mean for point in line.points] == [3.0] * 5 + [2.0] * 3, "the third seed was stopped: it counts to 9 + 9"
    assert [point.seeds for point in line.points] == [3] * 5 + [2] * 3
    assert all(point.standard_error > 0 for point in line.points)


def test_scatter_sets_one_metric_against_another_of_the_same_cell_and_seed() -> None:
    """The other metric's rows come in another order; a point is one cell and seed, and nothing connects them."""
    errors = table({("pombu", 10): [1.0, 3.0], ("pombu", 20): [4.0, 8.0]})
    causes = table({("pombu", 20): [0.7, 0.5], ("pombu", 10): [0.6, 0.1]}, metric="cause")
    figure = figures.draw(spec("scatter", x="cause", cap=5.0), pd.concat([errors, causes]), None)
    (line,) = figure.axes[0].lines
    assert list(zip(line.get_xdata(), line.get_ydata(), strict=True)) == [(0.1, 3.0), (0.5, 5.0), (0.6, 1.0), (0.7, 4.0)]
    assert line.get_linestyle() == "None"
    assert line.get_marker() != "None"
    assert figure.legends[0].get_title().get_text() == "A point is one case and seed. Points end at 5."
    assert charts.chart(spec("scatter", x="nothing"), errors).panels == ()


def test_facets_make_a_panel_each_with_its_own_numbers() -> None:
    figure = figures.draw(spec("bars", x="environment", facet="size"), table(TWO), None)
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["size = 10", "size = 20"]
    assert [[bar.get_height() for bar in bars_of(axes)] for axes in figure.axes] == [[2.0, 2.0], [6.0, 17.5]]


def test_what_varies_besides_is_averaged_within_a_seed_and_said() -> None:
    rows = pd.concat([table({("pombu", 10): [1.0, 3.0]}).assign(gain=g) for g in (0.5, 1.0)])
    rows.loc[rows["gain"] == 1.0, "value"] += 2.0
    content = charts.chart(spec("bars"), rows)
    point = content.panels[0].series[0].points[0]
    assert (point.mean, point.standard_error, point.seeds) == pytest.approx((3.0, 1.0, 2))
    assert "Averaged over gain." in content.notes


def test_values_that_are_not_finite_are_left_out_and_said() -> None:
    rows = table({("pombu", 10): [1.0, math.nan, math.inf, 3.0], ("psrl", 10): [math.nan]})
    content = charts.chart(spec("bars"), rows)
    pombu, psrl = (series.points[0] for series in content.panels[0].series)
    assert (pombu.mean, pombu.standard_error, pombu.seeds, pombu.missing) == (2.0, 1.0, 2, 2)
    assert psrl.seeds == 0
    assert "3 values are not finite and left out." in content.notes
    axes = figures.draw(spec("bars"), rows, None).axes[0]
    assert [text.get_text() for text in axes.texts] == ["2", "none"]
    assert charts.chart(spec("lines"), rows).panels[0].series[1].points == []


def test_a_method_looks_the_same_in_every_figure() -> None:
    both = figures.draw(spec("bars"), table(TWO), None).axes[0]
    alone = table({key: row for key, row in TWO.items() if key[0] == "pombu"})
    bar, line = bars_of(figures.draw(spec("bars"), alone, None).axes[0])[0], figures.draw(spec("lines"), alone, None).axes[0]
    assert (bar.get_hatch(), bar.get_facecolor()) == (bars_of(both)[1].get_hatch(), bars_of(both)[1].get_facecolor())
    assert to_hex(line.containers[0][0].get_color()) == to_hex(bar.get_facecolor())
    mine = charts.chart(spec("bars"), table({("mine", 1): [1.0]}), methods=["other", "mine", "exact-ube"])
    assert mine.panels[0].series[0].look == charts.method_looks(["mine", "exact-ube", "other"])["mine"]


def test_looks_differ_without_colour() -> None:
    looks = charts.method_looks([*charts.KNOWN, *(f"own-{i}" for i in range(30))])
    known = [looks[name] for name in charts.KNOWN]
    assert len({look.hatch for look in known}) == len({look.marker for look in known}) == len(known)
    assert len({(look.color, look.hatch) for look in looks.values()}) == len(looks)
    few = charts.method_looks(["exact-ube", "mine"])
    assert few["exact-ube"] == looks["exact-ube"]
    assert few["mine"].color != few["exact-ube"].color


def lab(color: str) -> np.ndarray:
    """A colour in CIE Lab, under the light D65: there, distances are about as large as they look."""
    channels = np.array([int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)])
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    matrix = [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
    share = np.array(matrix) @ linear / [0.95047, 1.0, 1.08883]
    x, y, z = np.where(share > 216 / 24389, np.cbrt(share), (24389 / 27 * share + 16) / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def test_every_two_methods_have_colours_that_are_far_apart() -> None:
    """25 in CIE Lab is ten times what can just be seen; exact-ube and closed-form were 18 apart, both blue."""
    np.testing.assert_allclose(lab("#ff0000"), [53.24, 80.09, 67.20], atol=0.05)
    looks = charts.method_looks([*AGENTS, *DEEP_METHODS, *ESTIMATORS, "brute-force"])
    assert len(looks) >= 15
    for (first, one), (second, other) in itertools.combinations(looks.items(), 2):
        assert np.linalg.norm(lab(one.color) - lab(other.color)) >= 25.0, (first, second)
        assert np.linalg.norm(lab(one.dark) - lab(other.dark)) >= 25.0, (first, second)
        assert one.marker != other.marker, (first, second)


def test_series_other_than_methods_are_sorted_numbers() -> None:
    rows = table({("pombu", 20): [1.0], ("pombu", 10): [2.0]})
    content = charts.chart(spec("bars", x="environment", series="size"), rows)
    assert content.names == ["10", "20"]
    assert len({series.look for series in content.panels[0].series}) == 2


def test_long_curves_are_thinned_evenly() -> None:
    points = [charts.Point(float(i), 0.0, 0.0, 1, 0) for i in range(5001)]
    kept = [point.x for point in charts.thin(points)]
    assert len(kept) == charts.MAX_POINTS
    assert (kept[0], kept[-1]) == (0.0, 5000.0)
    assert set(np.diff(kept)) <= {5.0, 6.0}


def test_log_axes_take_values_that_are_not_positive(tmp_path: Path) -> None:
    rows = table({("pombu", 10): [0.0], ("psrl", 10): [5.0], ("sac", 10): [500.0]})
    figure = figures.draw(spec("bars", log=True), rows, None)
    assert figure.axes[0].get_yscale() == "log"
    assert [bar.get_height() for bar in bars_of(figure.axes[0])] == [5.0, 500.0]
    assert [text.get_text() for text in figure.axes[0].texts] == ["0", "5", "500"]
    figures.save(figure, tmp_path / "log.png")


def test_names_are_taken_as_they_are(tmp_path: Path) -> None:
    rows = table({("_hidden $x$", 10): [1.0], ("\u65b9\u6cd5 <b>", 10): [2.0]})
    figures.save(figures.draw(spec("bars"), rows, None), tmp_path / "names.png")
    text = (tmp_path / "names.svg").read_text(encoding="utf-8")
    assert " _hidden $x$</text>" in text  # as one piece: mathematics would be cut up
    assert "\u65b9\u6cd5 &lt;b&gt;</text>" in text


@pytest.mark.parametrize("kind", charts.KINDS)
def test_both_files_are_written_and_the_same_numbers_give_the_same_bytes(kind: str, tmp_path: Path) -> None:
    curves = table(TWO, x="episode")
    rows = table(TWO) if kind != "curves" else curves
    chosen = spec(kind, x="episode" if kind == "curves" else "size")
    first = figures.save(figures.draw(chosen, rows, curves), tmp_path / "a.png")
    second = figures.save(figures.draw(chosen, rows, curves), tmp_path / "b.png")
    assert [path.name for path in first] == ["a.png", "a.svg"]
    assert first[0].read_bytes().startswith(b"\x89PNG")
    assert "<svg" in first[1].read_text()
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_nothing_to_draw_is_said(tmp_path: Path) -> None:
    empty = pd.DataFrame(columns=["experiment", "environment", "method", "seed", "metric", "value"])
    for kind, rows in (("bars", empty), ("bars", table(TWO, metric="other")), ("curves", table(TWO))):
        figure = figures.draw(spec(kind), rows, None)
        assert "nothing to draw yet" in [text.get_text() for text in figure.texts]


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (spec("pie"), "unknown kind 'pie'"),
        (spec("bars", x=""), "horizontal axis"),
        (spec("bars", facet="nope"), "no column 'nope'"),
        (spec("lines", x="environment"), "does not hold numbers"),
    ],
)
def test_specs_that_make_no_sense_are_refused_in_one_line(bad: FigureSpec, said: str) -> None:
    with pytest.raises(InputError, match=said) as caught:
        figures.draw(bad, table(TWO), None)
    assert "\n" not in str(caught.value)
