"""What is public says what it is, with shapes and with an example that runs. `public.py` says what is public."""

from __future__ import annotations

import dataclasses
import doctest
import importlib
import inspect
import re
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from public import ENTRIES, MODULES, Entry

import ubex

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


@pytest.mark.parametrize("entry", ENTRIES, ids=ids)
def test_every_public_name_has_a_docstring_and_its_members_too(entry: Entry) -> None:
    assert entry.doc
    for name, member in entry.members():
        assert member.__doc__, name
    made = vars(entry.thing).get("__init__") if inspect.isclass(entry.thing) else None
    generated = dataclasses.is_dataclass(entry.thing) or getattr(entry.thing, "_is_protocol", False)
    assert made is None or generated or made.__doc__


def with_examples() -> list[Entry]:
    """Functions, everything that the root exports, and classes that people make."""
    return [entry for entry in ENTRIES if entry.module in ("ubex", "ubex.callbacks") or not inspect.isclass(entry.thing)]


@pytest.mark.parametrize("entry", with_examples(), ids=ids)
def test_every_public_function_has_an_example_that_runs(entry: Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert re.search(r"^Example:", entry.doc, re.MULTILINE), f"{entry.name} has no example"
    assert run(entry.doc, namespace(entry.thing), entry.name) > 0


@pytest.mark.parametrize("entry", [entry for entry in ENTRIES if not inspect.isclass(entry.thing)], ids=ids)
def test_arrays_have_shapes_in_the_signature_or_in_words(entry: Entry) -> None:
    if SHAPELESS.search(str(inspect.signature(entry.thing))):
        assert SHAPE.search(entry.doc), f"{entry.name} takes or gives arrays and does not say of which shape"


def test_an_example_that_is_wrong_is_seen() -> None:
    with pytest.raises(AssertionError, match="Expected"):
        run(">>> 1 + 1\n3", {}, "wrong")
    assert SHAPELESS.search("f(policy: ArrayLike, x: np.ndarray)")
    assert not SHAPELESS.search('f(x: Float[np.ndarray, "N S"])')


def test_every_module_of_the_reference_says_what_it_is() -> None:
    assert MODULES[0] == "ubex"
    assert all(importlib.import_module(name).__doc__ for name in MODULES)
