"""The API reference as Markdown, from signatures, docstrings and the docstrings under fields.

`MODULES` is what counts as public; a test holds that everything in it is documented and that its examples run.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

MODULES = (
    "ubex",
    "ubex.ube",
    "ubex.callbacks",
    "ubex.envs.base",
    "ubex.envs.continuous",
    "ubex.envs.custom",
    "ubex.envs.toy",
    "ubex.envs.deep_sea",
    "ubex.envs.n_room",
    "ubex.envs.sparse_pendulum",
    "ubex.experiments.spec",
    "ubex.runs.metrics",
    "ubex.runs.pictures",
    "ubex.tabular.assumptions",
    "ubex.keys",
)
WIDTH = 100
"""Signatures longer than this get a line for each argument."""
SECTION = re.compile(r"^(Args|Returns|Raises|Example|Examples):\s*(.*)$")
ITEM = re.compile(r"^(\*{0,2}\w+): +(.*)$")


@dataclass(frozen=True)
class Entry:
    """A documented name."""

    name: str
    """As people write it: `ubex.value_variance`."""
    thing: Any

    @property
    def doc(self) -> str:
        """The docstring of its own; inherited ones and those that NamedTuple makes do not count."""
        own = self.thing.__doc__ if not inspect.isclass(self.thing) else self.thing.__dict__.get("__doc__")
        own = own or ""
        return "" if own.startswith(f"{getattr(self.thing, '__name__', '')}(") else inspect.cleandoc(own)

    def members(self) -> Iterator[Entry]:
        """Public methods and properties that a class defines or inherits from ubex."""
        if not inspect.isclass(self.thing):
            return
        fields = set(getattr(self.thing, "_fields", ()))
        seen: set[str] = set()
        for kind in self.thing.__mro__:
            if not kind.__module__.startswith("ubex"):
                continue
            for name, thing in vars(kind).items():
                thing = thing.__func__ if isinstance(thing, classmethod | staticmethod) else thing
                if name[0] == "_" or name in fields | seen or not (inspect.isfunction(thing) or isinstance(thing, property)):
                    continue
                seen.add(name)
                yield Entry(f"{self.name}.{name}", thing)


@dataclass(frozen=True)
class Module:
    """A module of the reference."""

    name: str
    module: ModuleType

    def entries(self) -> list[Entry]:
        """Its public names in order: those of `__all__`, or all that it defines; what the root exports stands there alone."""
        listed = getattr(self.module, "__all__", None)
        names = listed or [name for name in vars(self.module) if name[0] != "_" and self._own(vars(self.module)[name])]
        exported = set() if self.name == "ubex" else {id(vars(root())[name]) for name in root().__all__}
        found = [Entry(f"{self.name}.{name}", getattr(self.module, name)) for name in names if name[0] != "_"]
        return [entry for entry in found if id(entry.thing) not in exported and documentable(entry.thing)]

    def _own(self, thing: Any) -> bool:
        return callable(thing) and getattr(thing, "__module__", None) == self.name

    def documented(self) -> list[str]:
        """All names with an anchor."""
        return [entry.name for entry in self.entries()]

    def markdown(self) -> str:
        """The page."""
        doc = inspect.cleandoc(self.module.__doc__ or "")
        parts = [f"# {self.name}", *blocks(doc)]
        entries = self.entries()
        parts.append("\n".join(f"* [`{short(entry.name)}`](#{anchor(entry.name)}) {first_line(entry)}" for entry in entries))
        for entry in entries:
            parts += [f"## {entry.name}", *described(entry)]
        return "\n\n".join(part for part in parts if part)


def root() -> ModuleType:
    """The package."""
    return importlib.import_module("ubex")


def modules() -> list[Module]:
    """All of the reference."""
    return [Module(name, importlib.import_module(name)) for name in MODULES]


def documentable(thing: Any) -> bool:
    """Functions, classes and tables; no strings and no type aliases."""
    return isinstance(thing, Mapping) or inspect.isclass(thing) or inspect.isfunction(inspect.unwrap(thing))


def short(name: str) -> str:
    """The last part of a name."""
    return name.rpartition(".")[2]


def anchor(name: str) -> str:
    """The anchor of a name's heading."""
    return name.lower().replace(".", "")


def first_line(entry: Entry) -> str:
    """What a list of names says of one."""
    if isinstance(entry.thing, Mapping):
        return f"a table of {len(entry.thing)}"
    return re.split(r"(?<=[.:;])\s", entry.doc.replace("\n", " "), maxsplit=1)[0].rstrip(":;")


def described(entry: Entry) -> Iterator[str]:
    """Everything about one name, as pieces of Markdown."""
    if isinstance(entry.thing, Mapping):
        yield "\n".join(f"* `{name}`: {getattr(line, 'summary', '')}" for name, line in entry.thing.items())
        return
    if shown := signature(short(entry.name), entry.thing):
        yield f"```python\n{shown}\n```"
    yield from blocks(entry.doc)
    if inspect.isclass(entry.thing):
        own = {name: doc for kind in reversed(entry.thing.__mro__) for name, doc in fields(kind).items()}
        if own:
            yield "\n".join(f"* **{name}** `{kind}`{': ' if doc else ''}{doc}" for name, (kind, doc) in own.items())
        if (made := entry.thing.__dict__.get("__init__")) is not None and inspect.isfunction(made) and made.__doc__:
            yield from blocks(inspect.cleandoc(made.__doc__))
    for member in entry.members():
        yield f"### {short(entry.name)}.{short(member.name)}"
        if not isinstance(member.thing, property):
            yield f"```python\n{signature(short(member.name), member.thing)}\n```"
        yield from blocks(member.doc)


def signature(name: str, thing: Callable[..., Any]) -> str:
    """How it is called, with shapes; nothing for what is not called by people."""
    if inspect.isclass(thing) and (issubclass(thing, BaseException) or getattr(thing, "_is_protocol", False)):
        return ""
    try:
        found = inspect.signature(thing)
    except (TypeError, ValueError):
        return ""
    parts, starred = [], False
    for parameter in found.parameters.values():
        if parameter.name in ("self", "cls", "_cls"):
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            parts.append("*")
        starred = starred or parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL)
        mark = "*" * ((parameter.kind is parameter.VAR_POSITIONAL) + 2 * (parameter.kind is parameter.VAR_KEYWORD))
        given = parameter.annotation
        text = f"{mark}{parameter.name}" + ("" if given is parameter.empty else f": {written(given)}")
        if parameter.default is not parameter.empty:
            text += f"{' = ' if given is not parameter.empty else '='}{default(parameter.default)}"
        parts.append(text)
    result = found.return_annotation
    gives = "" if result is found.empty or inspect.isclass(thing) else f" -> {written(result)}"
    line = f"{name}({', '.join(parts)}){gives}"
    return line if len(line) <= WIDTH else f"{name}(\n" + "".join(f"    {part},\n" for part in parts) + f"){gives}"


def written(annotation: Any) -> str:
    """An annotation as it stands in the source."""
    return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", None) or str(annotation)


def default(value: Any) -> str:
    """A default for people: functions and factories by name."""
    if "factory" in repr(value):
        return "..."
    return value.__name__ if callable(value) and hasattr(value, "__name__") else repr(value)


def fields(kind: type) -> dict[str, tuple[str, str]]:
    """Fields of a record with their types and the docstrings that stand under them."""
    if not kind.__module__.startswith("ubex"):
        return {}
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    except (OSError, TypeError, SyntaxError):
        return {}
    assert isinstance(tree, ast.ClassDef)
    found = {}
    for node, following in zip(tree.body, [*tree.body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            value = following.value if isinstance(following, ast.Expr) else None
            doc = value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else ""
            found[node.target.id] = (ast.unparse(node.annotation).replace("'", '"'), " ".join(doc.split()))
    return found


def blocks(doc: str) -> Iterator[str]:
    """A docstring as pieces of Markdown: paragraphs, lists of arguments, examples as code."""
    section, lines = "", list[str]()
    for line in [*doc.splitlines(), "Args:"]:  # the last one closes what is open
        heading = SECTION.match(line)
        if heading is None:
            lines.append(line)
            continue
        yield from piece(section, textwrap.dedent("\n".join(lines)).strip("\n"))
        section, lines = heading[1], []
        if heading[2]:
            yield f"**{heading[1]}:** {heading[2]}"
            section += " named"


def piece(section: str, text: str) -> Iterator[str]:
    """One section."""
    if not text.strip():
        return
    if section.startswith("Example"):
        if not section.endswith("named"):
            yield "**Example:**"
        yield f"```pycon\n{text}\n```"
    elif section in ("Args", "Raises"):
        items: list[str] = []
        for line in text.splitlines():
            found = ITEM.match(line)
            if found:
                items.append(f"* **{found[1]}**: {found[2]}")
            else:
                items.append(f"  {line.strip()}")
        yield f"**{'Arguments' if section == 'Args' else section}:**\n\n" + "\n".join(items)
    elif section == "Returns":
        yield "**Returns:** " + " ".join(text.split())
    else:
        yield re.sub(r"(?m)^((?: {4}.*\n?)+)", lambda found: f"\n```text\n{textwrap.dedent(found[1]).rstrip()}\n```\n", text)
