"""What is public: the modules that docs/reference names, and what each of them exports or defines."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ubex

REFERENCE = Path(__file__).resolve().parent.parent / "docs" / "reference"
MODULES = [name for page in sorted(REFERENCE.glob("*.rst")) for name in re.findall(r"automodule:: (\S+)", page.read_text())]


@dataclass(frozen=True)
class Entry:
    """A public name."""

    module: str
    name: str
    """As people write it: `ubex.value_variance`."""
    thing: Any

    @property
    def doc(self) -> str:
        """The docstring of its own; inherited ones and those that NamedTuple makes do not count."""
        own = vars(self.thing).get("__doc__") if inspect.isclass(self.thing) else self.thing.__doc__
        return "" if own is None or own.startswith(f"{self.thing.__name__}(") else inspect.cleandoc(own)

    def members(self) -> Iterator[tuple[str, Any]]:
        """Public methods and properties that a class defines or inherits from ubex."""
        for name in dir(self.thing) if inspect.isclass(self.thing) else ():
            member = inspect.getattr_static(self.thing, name)
            member = getattr(member, "__func__", member)  # of class methods
            home = getattr(getattr(member, "fget", member), "__module__", None) or ""
            if name[0] != "_" and home.startswith("ubex") and (inspect.isfunction(member) or isinstance(member, property)):
                yield name, member


def entries(module: str) -> Iterator[Entry]:
    """Functions and classes: those of `__all__`, or all that the module defines; what the root exports stands there alone."""
    found = importlib.import_module(module)
    exported = [] if found is ubex else [getattr(ubex, name) for name in ubex.__all__]
    for name in getattr(found, "__all__", vars(found)):
        thing = getattr(found, name)
        own = hasattr(found, "__all__") or getattr(thing, "__module__", None) == module
        shown = inspect.isclass(thing) or inspect.isfunction(inspect.unwrap(thing))
        if name[0] != "_" and own and shown and not any(thing is other for other in exported):
            yield Entry(module, f"{module}.{name}", thing)


ENTRIES = [entry for module in MODULES for entry in entries(module)]
