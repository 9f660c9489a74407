"""Environments of other people that raise, exit, or give anything but what Gymnasium asks for: one line each, at one gate."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from deep.tiny import TINY
from gymnasium import spaces

import ubex
from ubex import checks, cli
from ubex.envs import adapter, custom, foreign
from ubex.learn import tabular
from ubex.learn.film import Film
from ubex.tabular.host import HostEnv
from ubex.types import InputError

FIVE = "not (observation, reward, terminated, truncated, info)"
PLACE = np.zeros(2, np.float32)


class Own(BaseException):
    """What an environment may raise that is no `Exception`."""


class Awkward:
    """Nothing that it is asked for works."""

    def fail(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("no\nway")

    __array__ = __float__ = __index__ = __bool__ = __repr__ = fail


class Speechless(Exception):
    def __str__(self) -> str:
        raise RuntimeError


class World(gymnasium.Env[Any, Any]):
    """Says what it is told to say at the third step, or at a reset; episodes have six steps."""

    def __init__(self, tabular: bool = True, step: Any = None, reset: Any = None, **parts: Any) -> None:
        self.good: Any = 1 if tabular else PLACE
        self.observation_space: Any = spaces.Discrete(3) if tabular else spaces.Box(-9.0, 9.0, (2,), np.float32)
        self.action_space: Any = spaces.Discrete(2) if tabular else spaces.Box(-1.0, 1.0, (1,), np.float32)
        self.said, self.first, self.time = step, reset, 0
        for name, part in parts.items():
            setattr(self, name, part)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.time = 0
        return say(self.first, (self.good, {}))

    def step(self, action: Any) -> Any:
        self.time += 1
        return say(self.said if self.time == 3 else None, (self.good, 0.5, False, self.time == 6, {}))


def say(broken: Any, good: tuple[Any, ...]) -> Any:
    """What is good, or instead of it: an error, or what a function makes of it."""
    if isinstance(broken, BaseException):
        raise broken
    return good if broken is None else broken(good)


def put(place: int, value: Any) -> Callable[[tuple[Any, ...]], Any]:
    """The good answer with something else at one place."""
    return lambda good: (*good[:place], value, *good[place + 1 :])


def whole(value: Any) -> Callable[[tuple[Any, ...]], Any]:
    """Something else altogether."""
    return lambda good: value


RAISED = [
    (ValueError("one\ntwo\n three"), "World failed {}: ValueError: one two three"),
    (SystemExit(0), "World failed {}: SystemExit: 0"),
    (Own("mine"), "World failed {}: Own: mine"),
    (StopIteration(), "World failed {}: StopIteration"),
    (GeneratorExit(), "World failed {}: GeneratorExit"),
    (AssertionError(), "World failed {}: AssertionError"),
    (InputError("three"), "World failed {}: InputError: three"),
    (Speechless(), "World failed {}: Speechless"),
    (RuntimeError("x" * 1000), "World failed {}: RuntimeError: " + "x" * 300 + "..."),
]
STEPS = [
    *RAISED,
    (whole(None), f"step of World {{}} gave None, {FIVE}"),
    (whole("abcde"), f"step of World {{}} gave 'abcde', {FIVE}"),
    (whole(np.zeros(5)), f"step of World {{}} gave array([0., 0., 0., 0., 0.]), {FIVE}"),
    (whole((1, 0.5, True, {})), f"step of World {{}} gave (1, 0.5, True, {{{{}}}}), {FIVE}"),
    (whole((1, 0.5, True, True, {}, 2)), f"step of World {{}} gave (1, 0.5, True, True, {{{{}}}}, 2), {FIVE}"),
    (whole(Awkward()), f"step of World {{}} gave a Awkward that cannot be shown, {FIVE}"),
    (put(1, None), "the reward of World {} is None, not a number"),
    (put(1, "1.5"), "the reward of World {} is '1.5', not a number"),
    (put(1, 1j), "the reward of World {} is 1j, not a number"),
    (put(1, np.complex128(1.0)), "the reward of World {} is np.complex128(1+0j), not a number"),
    (put(1, np.array([1.0])), "the reward of World {} is array([1.]), not a number"),
    (put(1, Awkward()), "the reward of World {} is a Awkward that cannot be shown, not a number"),
    (put(1, np.nan), "the reward of World {} is nan, not a finite number"),
    (put(1, -np.inf), "the reward of World {} is -inf, not a finite number"),
    (put(1, 10**400), "the reward of World {} is 1" + 79 * "0" + "..., not a finite number"),
    (put(2, None), "terminated of World {} is None, not true or false"),
    (put(2, "False"), "terminated of World {} is 'False', not true or false"),
    (put(2, np.array([True])), "terminated of World {} is array([ True]), not true or false"),
    (put(3, 1), "truncated of World {} is 1, not true or false"),
    (put(3, np.nan), "truncated of World {} is nan, not true or false"),
    (put(4, None), "the info of World {} is None, not a dictionary"),
    (put(4, "text"), "the info of World {} is 'text', not a dictionary"),
]
RESETS = [
    *((error, line.replace("failed {}", "failed in reset {}")) for error, line in RAISED),
    (whole(None), "reset of World {} gave None, not (observation, info)"),
    (whole("ab"), "reset of World {} gave 'ab', not (observation, info)"),
    (whole(np.zeros((2, 2))), "reset of World {} gave array([[0., 0.], [0., 0.]]), not (observation, info)"),
    (whole((1,)), "reset of World {} gave (1,), not (observation, info)"),
    (put(1, None), "the info of World {} is None, not a dictionary"),
]
STATES = [
    (None, "None, not a whole number"),
    ("1", "'1', not a whole number"),
    (1.0, "1.0, not a whole number"),
    (np.inf, "inf, not a whole number"),
    (True, "True, not a whole number"),
    (np.array([1]), "array([1]), not a whole number"),
    (Awkward(), "a Awkward that cannot be shown, not a whole number"),
    (-1, "-1, but states go from 0 to 2"),
    (np.int64(3), "np.int64(3), but states go from 0 to 2"),
]
OBSERVATIONS = [
    (np.array(None), "has shape (), not (2,)"),
    (np.zeros(3), "has shape (3,), not (2,)"),
    ("here", "holds no numbers: str 'here'"),
    (["1", "2"], "holds no numbers: list ['1', '2']"),
    (np.zeros(2, complex), "holds no numbers: ndarray array([0.+0.j, 0.+0.j])"),
    ([[1], [1, 2]], "holds no numbers: list [[1], [1, 2]]"),
    (Awkward(), "holds no numbers: Awkward a Awkward that cannot be shown"),
    ([None, 1.0], "is nan at place 0"),
    ([0.0, -np.inf], "is -inf at place 1"),
]


def line_of(act: Callable[[], Any], cause: Any = None) -> str:
    """The one line that comes of it, with the error of the environment behind it."""
    with pytest.raises(InputError) as caught:
        act()
    assert "\n" not in str(caught.value)
    assert not isinstance(cause, BaseException) or caught.value.__cause__ is cause
    return str(caught.value)


def deep(env: World) -> None:
    """An episode as deep agents see it."""
    hosted = adapter.hosted(env)
    hosted.reset(10, 1, ", in episode 4")
    for elapsed in range(3):
        hosted.step(np.zeros(1, np.float32), 10 + elapsed, elapsed, ", in episode 4")


def discrete(env: World) -> None:
    """An episode as tabular agents see it."""
    hosted = tabular.environment(env)
    assert isinstance(hosted, HostEnv)
    hosted.reset(4, 1)
    for step in range(3):
        hosted.step(1, 0, 4, step)


@pytest.mark.parametrize(("broken", "line"), STEPS)
def test_a_bad_step_is_one_line(broken: Any, line: str) -> None:
    assert line_of(lambda: deep(World(False, broken)), broken) == line.format("at step 12, in episode 4")
    where = "in episode 4, step 2 (state 1, action 0)"
    assert line_of(lambda: discrete(World(True, broken)), broken) == line.format(where)


@pytest.mark.parametrize(("broken", "line"), RESETS)
def test_a_bad_reset_is_one_line(broken: Any, line: str) -> None:
    assert line_of(lambda: deep(World(False, reset=broken)), broken) == line.format("before step 10, in episode 4")
    assert line_of(lambda: discrete(World(True, reset=broken)), broken) == line.format("at the start of episode 4")


@pytest.mark.parametrize(("state", "line"), STATES)
def test_a_bad_state_is_one_line(state: Any, line: str) -> None:
    where = "in episode 4, step 2 (state 1, action 0)"
    assert line_of(lambda: discrete(World(True, put(0, state)))) == f"the state of World {where} is {line}"
    said = line_of(lambda: discrete(World(True, reset=put(0, state))))
    assert said == f"the state of World at the start of episode 4 is {line}"


@pytest.mark.parametrize(("observation", "line"), OBSERVATIONS)
def test_a_bad_observation_is_one_line(observation: Any, line: str) -> None:
    said = line_of(lambda: deep(World(False, put(0, observation))))
    assert said == f"the observation of World at step 12, in episode 4 {line}"
    said = line_of(lambda: deep(World(False, reset=put(0, observation))))
    assert said == f"the observation of World after reset, before step 10, in episode 4 {line}"


def test_an_interrupt_is_none_of_its_errors() -> None:
    for act in (discrete, deep):
        for broken in ({"step": KeyboardInterrupt()}, {"reset": KeyboardInterrupt()}):
            with pytest.raises(KeyboardInterrupt):
                act(World(act is discrete, **broken))


def test_what_other_libraries_give_is_taken() -> None:
    env = World(True, whole([1, np.float32(0.5), np.bool_(False), np.array(True), {}]))
    for _ in range(3):
        said = foreign.step(env, "World", "here", 0)
    assert said == (1, 0.5, False, True)
    assert [type(part) for part in said[1:]] == [float, bool, bool]


def boxes(low: Any, high: Any, shape: tuple[int, ...] = (1,)) -> spaces.Box:
    box = spaces.Box(-1.0, 1.0, shape, np.float32)
    box.low, box.high = np.full(shape, low, np.float32), np.full(shape, high, np.float32)
    return box


class Hidden(World):
    """Exits when somebody looks at its space of actions."""

    @property
    def action_space(self) -> Any:
        raise SystemExit(1)

    @action_space.setter
    def action_space(self, _: Any) -> None:
        pass


@pytest.mark.parametrize("space", [None, "Discrete(3)", spaces.Discrete, Awkward(), boxes(-1.0, 1.0, (0,))])
@pytest.mark.parametrize("which", ["observation", "action"])
def test_a_bad_space_is_one_line(which: str, space: Any) -> None:
    parts = {f"{which}_space": space}
    said = line_of(lambda: tabular.environment(World(True, **parts)))
    deep = f": {custom.DEEP}" if isinstance(space, spaces.Box) else ""
    assert said == f"tabular agents need a Discrete {which} space, but that of World is {checks.shown(space)}{deep}"
    assert f"but the {which}s of World are {checks.shown(space)}; " in line_of(lambda: adapter.hosted(World(False, **parts)))


@pytest.mark.parametrize(("low", "high"), [(np.nan, 1.0), (-np.inf, np.inf), (-3e38, 3e38), (1.0, 1.0)])
def test_actions_without_bounds_are_refused(low: float, high: float) -> None:
    env = World(False, action_space=boxes(low, high))
    assert line_of(lambda: adapter.hosted(env)).endswith("float32): give them finite bounds")


@pytest.mark.parametrize("tabular_agent", [True, False])
def test_what_is_no_environment_is_one_line(tabular_agent: bool) -> None:
    host = tabular.environment if tabular_agent else adapter.hosted
    hidden = Hidden(tabular_agent)
    assert line_of(lambda: host(hidden)) == "the spaces of Hidden cannot be read: SystemExit: 1"
    assert line_of(lambda: host(World)).endswith(", but this is the class World: make an environment of it")
    assert line_of(lambda: host(Film())).endswith(", but this is a Film, which has no reset")


def test_sizes_of_spaces_are_whole_numbers_that_fit() -> None:
    many, few = spaces.Discrete(3), spaces.Discrete(3)
    many.n, few.n = np.int64(10**12), "3"  # type: ignore[assignment]
    said = line_of(lambda: tabular.environment(World(observation_space=few)))
    assert said == "the size of the observation space of World must be a whole number, but it is '3'"
    said = line_of(lambda: tabular.environment(World(observation_space=many)))
    assert said.startswith("a table of states and actions of World of shape (1000000000001, 2) would take 14,901.2 GiB")


def test_agents_pass_the_gate() -> None:
    """When they learn, and when they are evaluated, also in an environment of somebody else."""
    where = "in episode 0, step 2 (state 1, action"
    assert where in line_of(lambda: ubex.train(World(step=SystemExit(0)), "psrl", episodes=2))
    agent = ubex.Agent("psrl", World(step=put(1, np.nan)))
    assert where in line_of(lambda: agent.learn(6))
    assert where in line_of(lambda: agent.evaluate(2, env=World(step=put(1, np.inf)), deterministic=False))
    endless = World()
    endless.step = lambda action: (1, 0.0, False, False, {})  # type: ignore[method-assign]
    said = line_of(lambda: agent.evaluate(1, env=endless, deterministic=False))
    assert said == "episode 0 of World is longer than 10000 steps: give it a horizon"
    learner = ubex.Agent("sac", World(False, step=put(0, PLACE + np.nan)), preset="laptop", **TINY)
    said = "the observation of World at step 2, in episode 0 is nan at place 0"
    assert line_of(lambda: learner.learn(8)) == said
    assert learner.steps == 2
    assert line_of(lambda: learner.evaluate(2)) == said


MODULES = {
    "exits_here": "raise SystemExit(0)\n",
    "broken": "def (:\n",
    "several_lines": "raise ValueError('one\\ntwo')\n",
    "lacks": "import no_such_module_anywhere\n",
    "worlds_here": "def fails():\n    raise OSError('no\\ncable')\ndef leaves():\n    raise SystemExit(3)\nthree = 3\n",
}


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("exits_here:World", "the module 'exits_here' cannot be imported: SystemExit: 0"),
        ("broken:World", "the module 'broken' cannot be imported: SyntaxError: invalid syntax (broken.py, line 1)"),
        ("several_lines:World", "the module 'several_lines' cannot be imported: ValueError: one two"),
        ("lacks:World", "lacks needs the module no_such_module_anywhere, which is not installed"),
        ("worlds_here:Nowhere", "the module worlds_here has no 'Nowhere'"),
        ("worlds_here:fails", "worlds_here:fails cannot be made: OSError: no cable"),
        ("worlds_here:leaves", "worlds_here:leaves cannot be made: SystemExit: 3"),
        (
            "worlds_here:three",
            "an environment is a name, a Gymnasium environment, a TabularEnv or a pair p, r, "
            "but this is a int, which has no reset",
        ),
        (":World", "the module '' cannot be imported: ValueError: Empty module name"),
    ],
)
def test_what_cannot_be_made_by_name_is_one_line(
    name: str, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, text in MODULES.items():
        (tmp_path / f"{module}.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert cli.run(["train", "--env", name, "--out", "run"]) == 2
    assert capsys.readouterr().err == f"ubex: {line}\n"


@pytest.mark.parametrize(
    ("parts", "line"),
    [
        ({"render": lambda: (_ for _ in ()).throw(Own("a\nb"))}, "World cannot draw: Own: a b"),
        ({"metadata": None}, "World cannot draw: AttributeError: 'NoneType' object has no attribute 'get'"),
        (
            {"render": lambda: np.full((4, 4, 3), np.nan)},
            "World draws pictures that cannot be shown: shape (4, 4, 3), type float64",
        ),
    ],
)
def test_a_bad_picture_is_one_line(parts: dict[str, Any], line: str) -> None:
    assert line_of(lambda: Film().see(World(**parts), 0)) == line
