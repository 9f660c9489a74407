"""The campaigns meet ubex as users have it: without the type checks that other tests run under, which are before ours."""

from __future__ import annotations

from collections.abc import Iterator

import jaxtyping
import pytest


@pytest.fixture(scope="module")
def as_users_have_it() -> Iterator[None]:
    """Without the type checks."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
