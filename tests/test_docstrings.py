"""What is public says what it is, with shapes and with an example that runs. `tools/docs_api.py` lists what is public."""

from __future__ import annotations

import dataclasses
import doctest
import importlib
import inspect
import re
import sys
from pathlib import Path
from typing import Any

import docs_api
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ubex

MODULES = docs_api.modules()
ENTRIES = [(module, entry) for module in MODULES for entry in module.entries() if callable(entry.thing)]
SHAPE = re.compile(r"\((\*?[a-zA-Z]\w*'?,?|\d)(, ?\w+'?)*\)|shape")
SHAPELESS = re.compile(r"\bArrayLike\b|(?<!\[)\bnp\.ndarray\b")
"""Annotations of arrays that leave the shape to the docstring."""


def ids(value: Any) -> str:
    return getattr(value, "name", "")


def namespace(thing: Any) -> dict[str, Any]:
    """What an example may use: the module that the thing is from, its module's example, and the usual imports."""
    home = sys.modules[thing.__module__]
    names = {**vars(home), "ubex": ubex, "np": np, "jax": jax, "jnp": jnp}
    run(home.__doc__ or "", names, home.__name__)
    return names


def run(doc: str, names: dict[str, Any], name: str) -> int:
    """Runs the examples of a docstring in these names and returns how many there were."""
    test = doctest.DocTestParser().get_doctest(inspect.cleandoc(doc), names, name, None, None)
    said: list[str] = []
    outcome = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=said.append, clear_globs=False)
    names.update(test.globs)
    assert outcome.failed == 0, "".join(said)
    return outcome.attempted


@pytest.mark.parametrize(("module", "entry"), ENTRIES, ids=ids)
def test_every_public_name_has_a_docstring_and_its_members_too(module: docs_api.Module, entry: docs_api.Entry) -> None:
    assert entry.doc
    for member in entry.members():
        assert member.doc or member.thing.__doc__, member.name
    made = vars(entry.thing).get("__init__") if inspect.isclass(entry.thing) else None
    generated = dataclasses.is_dataclass(entry.thing) or getattr(entry.thing, "_is_protocol", False)
    assert made is None or generated or made.__doc__


def with_examples() -> list[docs_api.Entry]:
    """Functions, everything that the root exports, and classes that people make."""
    return [
        entry
        for module, entry in ENTRIES
        if module.name == "ubex" or not inspect.isclass(entry.thing) or module.name == "ubex.callbacks"
    ]


@pytest.mark.parametrize("entry", with_examples(), ids=ids)
def test_every_public_function_has_an_example_that_runs(
    entry: docs_api.Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert re.search(r"^Example:", entry.doc, re.MULTILINE), f"{entry.name} has no example"
    assert run(entry.doc, namespace(entry.thing), entry.name) > 0


@pytest.mark.parametrize("entry", [entry for _, entry in ENTRIES if not inspect.isclass(entry.thing)], ids=ids)
def test_arrays_have_shapes_in_the_signature_or_in_words(entry: docs_api.Entry) -> None:
    if SHAPELESS.search(docs_api.signature("f", entry.thing)):
        assert SHAPE.search(entry.doc), f"{entry.name} takes or gives arrays and does not say of which shape"


def test_an_example_that_is_wrong_is_seen() -> None:
    with pytest.raises(AssertionError, match="Expected"):
        run(">>> 1 + 1\n3", {}, "wrong")
    assert SHAPELESS.search("f(policy: ArrayLike, x: np.ndarray)")
    assert not SHAPELESS.search('f(x: Float[np.ndarray, "N S"])')


def test_the_reference_covers_the_root_and_exists() -> None:
    shown = set(MODULES[0].documented())
    assert shown == {f"ubex.{name}" for name in ubex.__all__ if not name.startswith("_")}
    assert all(importlib.import_module(name).__doc__ for name in docs_api.MODULES)


def test_docstrings_become_readable_markdown() -> None:
    page = MODULES[0].markdown()
    start = page.index("## ubex.value_variance")
    part = page[start : page.index("\n## ", start + 1) if "\n## " in page[start + 1 :] else None]
    assert "value_variance(\n    source: MDP | Posterior,\n    policy: ArrayLike,\n    discount: float,\n    *,\n" in part
    assert "* **policy**: probabilities (S, A), or one action for each state (S,) as integers." in part
    assert "**Example:**\n\n```pycon\n>>> p = " in part
    assert '* **v** `Float[np.ndarray, " S"]`: Variance of the state values, by the V form of the equation.' in page
    assert "### Agent.predict" in page
