"""The structure that docs/adding.md promises: imports go one way, files stay small, the root exports names only."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "ubex"
FILES = sorted(PACKAGE.rglob("*.py"))

LAYERS = [
    {"types", "lazy"},
    {"precision", "checks", "imports", "ube", "closed_form"},
    {"fields", "keys", "returns"},
    {"estimators", "envs"},
    {"tabular", "deep"},
    {"calls"},
    {"runs", "doctor"},
    {"callbacks"},
    {"learn"},
    {"bench"},
    {"experiments", "report"},
    {"demo"},
    {"cli"},
    {"__main__"},
]
"""A module may import from its own layer's package and from layers above it in this list."""
MAX_LINES = 400


def layer(name: str) -> int:
    return next(index for index, members in enumerate(LAYERS) if name in members)


def imports(path: Path) -> set[str]:
    """Parts of ubex that a file imports at run time; imports for type checkers alone do not count."""
    found: set[str] = set()
    pending: list[ast.AST] = list(ast.parse(path.read_text()).body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "ubex":
            parts = node.module.split(".")
            found |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
        pending += list(ast.iter_child_nodes(node))
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_one_way(path: Path) -> None:
    name = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    if name == "__init__":
        return
    for imported in imports(path) - {"__version__"}:
        assert imported == name or layer(imported) < layer(name), f"{path.name} imports {imported}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_files_stay_small_and_say_what_they_are(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= MAX_LINES
    assert ast.get_docstring(ast.parse(text))


def test_the_root_only_exports_names() -> None:
    """Imports for type checkers, tables of names, and the one call that makes the names lazy."""
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    assert {type(node) for node in tree.body} <= {ast.Expr, ast.Import, ast.ImportFrom, ast.If, ast.Assign}
    (only,) = (node for node in tree.body if isinstance(node, ast.If))
    assert ast.unparse(only.test) == "typing.TYPE_CHECKING"
    assert {type(node) for node in only.body} == {ast.ImportFrom}
    assert not only.orelse


def test_every_test_file_mirrors_a_module() -> None:
    for part in ("tabular", "deep", "learn"):
        for path in (ROOT / "tests" / part).glob("test_*.py"):
            assert (PACKAGE / part / path.name.removeprefix("test_")).exists(), path
