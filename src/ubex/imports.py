"""Things of the user's own by their place: `module:name`, where the module may lie in the current folder."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from ubex.types import InputError


def attribute(module: str, name: str) -> Any:
    """A thing of a module, which may lie in the current folder."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not module.startswith(error.name):
            raise InputError(f"{module} needs the module {error.name}, which is not installed") from None
        raise InputError(f"there is no module {module!r}, here or among the installed ones") from None
    for part in name.split("."):
        if not hasattr(found, part):
            raise InputError(f"the module {module} has no {name!r}")
        found = getattr(found, part)
    return found
