"""The seam between the two kinds of policy."""

from __future__ import annotations

import inspect

from ubex.deep import actor, categorical, policy
from ubex.envs.task import Task


def test_the_task_chooses_the_kind() -> None:
    assert policy.of(Task(3, 2)) is actor
    assert policy.of(Task(3, 2, discrete=True)) is categorical


def test_both_kinds_take_the_same_words() -> None:
    for name, function in inspect.getmembers(policy.Policy, inspect.isfunction):
        if not name.startswith("_"):
            words = list(inspect.signature(function).parameters)[1:]
            assert all(list(inspect.signature(getattr(kind, name)).parameters) == words for kind in (actor, categorical))
