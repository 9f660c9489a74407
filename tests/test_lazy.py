"""`import ubex` is quick: names and modules come when they are asked for, and what a call does not need is not imported."""

from __future__ import annotations

import ast
import importlib
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from public import MODULES

import ubex

HEAVY = ("jax", "scipy", "pandas", "matplotlib", "PIL", "equinox", "optax", "tyro", "rich")
MOST_PROGRAMS = 17
"""That two first variances compile, of samples and of a posterior; there were 39."""
FIRST_VARIANCE = """
import ubex
samples = ubex.MDP(p=[[[[0.3, 0.7]], [[0, 1]]], [[[0.5, 0.5]], [[0, 1]]]], r=[[1.0], [0.0]])
ubex.value_variance(samples, [0, 0], 0.9)
ubex.value_variance(ubex.DirichletNormal(2, 1), [0, 0], 0.9)
"""


def run(code: str, *names: str) -> tuple[set[str], int]:
    """Which of these modules a new process has after this code, and how many programs JAX has compiled for it."""
    code += f"\nimport sys; print([name for name in {names} if name in sys.modules])"
    environment = {**os.environ, "JAX_LOG_COMPILES": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(ast.literal_eval(done.stdout.splitlines()[-1])), done.stderr.count("Finished XLA compilation")


def imported(code: str, *names: str) -> set[str]:
    """Which of these modules a new process has after this code."""
    return run(code, *names)[0]


def test_importing_ubex_imports_next_to_nothing() -> None:
    assert imported("import ubex; ubex.ENVS, dir(ubex)", *HEAVY) == set()


def test_the_first_variance_leaves_out_what_it_does_not_need() -> None:
    """JAX itself imports scipy.linalg, as soon as it solves. Steps on small arrays are no programs of their own."""
    others = [name for name in HEAVY if name not in ("jax", "scipy")]
    found, programs = run(FIRST_VARIANCE, *others, "scipy.special", "scipy.sparse", "ubex.runs", "ubex.learn", "jax")
    assert found == {"jax"}
    assert 10 < programs <= MOST_PROGRAMS


def test_agents_are_imported_without_tables() -> None:
    assert imported("import ubex; ubex.train, ubex.Agent", "scipy", "pandas", "optax", "equinox", "ubex.deep") == set()


def test_what_takes_long_to_import_waits_until_it_is_needed() -> None:
    """Each command and each worker process imports its own experiment, and statistics and kernels where they are used."""
    slow = ("scipy.stats", "jax.experimental.pallas", "matplotlib")
    tables = "from ubex.experiments import EXPERIMENTS; EXPERIMENTS['deep-sea']; 'pendulum' in EXPERIMENTS"
    assert imported(tables, *slow, "ubex.deep", "equinox", "optax") == set()
    everything = "from ubex.experiments import EXPERIMENTS, training; list(EXPERIMENTS.values()); import ubex.learn.together"
    assert imported(everything, *slow) == set()
    assert imported("import ubex.learn.crew", *slow, "pandas", "scipy", "tyro", "rich", "ubex.runs.jobs") == set()


def test_the_help_needs_neither_jax_nor_tables() -> None:
    code = "from ubex import cli; cli.run(['--version']); cli.run(['--help'])"
    assert imported(code, *HEAVY) == {"tyro", "rich"}


def test_gymnasium_knows_our_environments_in_any_order() -> None:
    for code in ("import ubex, gymnasium", "import gymnasium, ubex"):
        assert imported(f"{code}\nassert 'ubex/DeepSea-v0' in gymnasium.registry", "jax") == set()


def for_type_checkers() -> dict[str, str]:
    """The names that type checkers see, and the modules that they find them in."""
    (block,) = (node for node in ast.parse(Path(ubex.__file__).read_text()).body if isinstance(node, ast.If))
    return {
        alias.name: str(node.module) for node in ast.walk(block) if isinstance(node, ast.ImportFrom) for alias in node.names
    }


def test_the_three_lists_of_names_are_one() -> None:
    homes = vars(ubex)["_HOMES"]
    assert for_type_checkers() == homes
    assert sorted([*homes, "__version__"]) == sorted(ubex.__all__)
    public = {name for name in dir(ubex) if not name.startswith("_") and not isinstance(getattr(ubex, name), ModuleType)}
    assert public == set(homes)


@pytest.mark.parametrize("name", ubex.__all__)
def test_every_name_is_the_one_of_its_module(name: str) -> None:
    home = importlib.import_module(vars(ubex)["_HOMES"].get(name, "ubex"))
    assert getattr(ubex, name) is getattr(home, name)


def test_modules_are_attributes_as_soon_as_ubex_is_imported() -> None:
    named = ", ".join([*MODULES, "ubex.closed_form", "ubex.learn.tabular", "ubex.runs.folder", "ubex.tabular.belief"])
    assert imported(f"import ubex; {named}", "jax") == {"jax"}


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    for package in (ubex, ubex.tabular):
        with pytest.raises(AttributeError, match=f"module '{package.__name__}' has no attribute 'vlaue'"):
            package.vlaue  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'vlaue' from 'ubex'"):
        exec("from ubex import vlaue")
