"""What a package has, imported when it is first asked for: JAX takes longer to import than most calls take."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from importlib import util
from types import MappingProxyType
from typing import Any


def install(package: str, homes: Mapping[str, str] = MappingProxyType({})) -> None:
    """Gives a package its own modules, and the names of this table by the modules that define them.

    It sets `__getattr__` and `__dir__` (PEP 562) from outside, since type checkers take a package with a `__getattr__` of its
    own for one that has every name.
    """
    module = sys.modules[package]
    known = vars(module)

    def get(name: str) -> Any:
        if name in homes:
            known[name] = getattr(importlib.import_module(homes[name]), name)
            return known[name]
        if name.startswith("_") or util.find_spec(f"{package}.{name}") is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=module)
        return importlib.import_module(f"{package}.{name}")

    known.update(__getattr__=get, __dir__=lambda: sorted({*known, *homes}))
