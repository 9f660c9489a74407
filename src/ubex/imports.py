"""Code of the user's own: found by its place, `module:name`, and run so that whatever it raises is one line."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ubex.types import InputError

LONGEST = 300
"""Of what an error of the user's own says, in characters."""
MISSING = object()
"""What a module gives for a name that it does not have."""


@contextlib.contextmanager
def foreign(what: str, *known: type[BaseException]) -> Iterator[None]:
    """Runs code of the user's own: what it raises is `what` and the error on one line, and also when it exits.

    An interrupt goes through, and so do errors that are `known` to be good lines already.
    """
    try:
        yield
    except BaseException as error:
        if isinstance(error, (KeyboardInterrupt, *known)):
            raise
        text, kind = reason(error), type(error).__name__
        raise InputError(f"{what}: {kind}: {text}" if text else f"{what}: {kind}") from error


def reason(error: BaseException) -> str:
    """What an error says, on one line and not long."""
    try:
        text = " ".join(str(error).split())
    except Exception:
        text = ""
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def attribute(module: str, name: str) -> Any:
    """A thing of a module, which may lie in the current folder."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    with foreign(f"the module {module!r} cannot be imported", InputError):
        try:
            found: Any = importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name is None or not module.startswith(error.name):
                raise InputError(f"{module} needs the module {error.name}, which is not installed") from error
            raise InputError(f"there is no module {module!r}, here or among the installed ones") from error
    with foreign(f"the module {module} cannot give {name!r}"):
        for part in name.split("."):
            found = getattr(found, part, MISSING)
    if found is MISSING:
        raise InputError(f"the module {module} has no {name!r}")
    return found
