"""`ubex.Agent`: learn, predict, save, load, as people know it, and a clear line for what does not fit."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import ubex
from ubex import Agent, InputError, cli
from ubex.callbacks import Checkpoint, Evaluate, Info
from ubex.deep import actor, presets
from ubex.deep.agents import opinion
from ubex.deep.config import DeepConfig
from ubex.learn.agent import listed
from ubex.runs import checkpoint

TINY: dict[str, Any] = {
    "num_models": 2,
    "updates_per_step": 1,
    "initial_steps": 20,
    "batch_size": 4,
    "critic_hidden": (4,),
    "actor_hidden": (4,),
    "model_hidden": (4,),
}


class Slide(gymnasium.Env[Any, Any]):
    """A point that moves by its action; episodes of eight steps. It breaks at step `broken` of all."""

    def __init__(self, actions: Any = None, broken: int = -1) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
        self.action_space = actions or spaces.Box(-3.0, 3.0, (1,), np.float32)
        self.broken, self.steps = broken, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.at, self.time = self.np_random.normal(size=2), 0
        return self.at, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self.steps == self.broken:
            raise OSError("cable")
        self.steps, self.time = self.steps + 1, self.time + 1
        self.at = self.at + np.array([0.1 * float(action[0]), 0.0])
        return self.at, -(float(self.at[0]) ** 2), False, self.time == 8, {}


def sac(env: Any = None, **settings: Any) -> ubex.Agent:
    return ubex.Agent("sac", env or Slide(), **{**TINY, **settings})


@pytest.fixture(scope="module")
def trained() -> tuple[ubex.Agent, list[Info]]:
    agent, seen = sac(), list[Info]()
    evaluate = Evaluate(every=16, episodes=1, then=lambda info: seen.append(info))
    assert agent.learn(32, [lambda info: seen.append(info), evaluate]) is agent
    return agent, seen


def test_callbacks_see_episodes_and_evaluations(trained: tuple[ubex.Agent, list[Info]]) -> None:
    agent, seen = trained
    assert [(info.kind, info.step, info.episode) for info in seen] == [
        ("episode", 8, 0),
        ("episode", 16, 1),
        ("evaluation", 16, 1),
        ("episode", 24, 2),
        ("episode", 32, 3),
        ("evaluation", 32, 3),
    ]
    assert seen[0].agent is agent
    assert seen[0].losses == {}
    assert {"critic_loss", "actor_loss", "alpha"} <= set(seen[-1].losses)
    assert (agent.steps, agent.episodes) == (32, 4)
    assert repr(agent) == "Agent('sac', 'Slide', steps=32, episodes=4)"
    assert min(agent.spent.environment, agent.spent.device, agent.spent.rest) > 0.0
    assert agent.spent.models == 0.0, "it has none"


@pytest.mark.parametrize("by_name", [True, False])
def test_evaluations_are_at_the_steps_that_were_asked_for(trained: tuple[ubex.Agent, list[Info]], by_name: bool) -> None:
    """In another environment, so that training does not notice; in the agent's own one they wait for the end of an episode."""
    seen = list[Info]()
    evaluate = Evaluate(every=10, episodes=1, env=None if by_name else Slide(), then=lambda info: seen.append(info))
    agent = sac(f"{__name__}:Slide" if by_name else Slide()).learn(12, evaluate).learn(20, evaluate)
    assert [step for step, *_ in evaluate.history] == [10, 20, 30]
    np.testing.assert_array_equal(agent.state.data, trained[0].state.data)
    assert [(info.kind, info.step, info.episode) for info in seen] == [("evaluation", 10 * i, i) for i in (1, 2, 3)]
    assert seen[0].losses == {}
    assert "critic_loss" in seen[2].losses
    own = Slide()
    for env in (None, own, gymnasium.wrappers.TimeLimit(own, 100)):
        waits = Evaluate(every=10, episodes=1, env=env)
        sac(own).learn(16, waits)
        assert [step for step, *_ in waits.history] == [16]


def test_an_evaluation_stops_the_run_where_it_is() -> None:
    assert sac().learn(32, Evaluate(every=10, episodes=1, env=Slide(), then=lambda info: False)).steps == 10


def test_the_sizes_fit_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU the paper's sizes would take hours, so they have to be asked for."""
    for device, hidden in (("cpu", presets.LAPTOP["critic_hidden"]), ("gpu", DeepConfig("sac").critic_hidden)):
        monkeypatch.setattr(presets.jax, "default_backend", lambda device=device: device)
        assert ubex.Agent("exact-ube", Slide(), num_models=2).config.critic_hidden == hidden
    monkeypatch.setattr(presets.jax, "default_backend", lambda: "cpu")
    paper = ubex.Agent("exact-ube", Slide(), preset="paper", num_models=2)
    assert paper.config.critic_hidden == DeepConfig("sac").critic_hidden


def test_a_callback_stops_the_run(trained: tuple[ubex.Agent, list[Info]]) -> None:
    assert sac().learn(32, lambda info: info.step < 16).steps == 16


def test_predictions_are_actions(trained: tuple[ubex.Agent, list[Info]]) -> None:
    agent, _ = trained
    one, state = agent.predict([0.5, -0.5])
    batch, _ = agent.predict(np.array([[0.5, -0.5], [0.0, 1.0], [0.0, 0.0]]))
    assert state is None
    assert one.shape == (1,)
    assert batch.shape == (3, 1)
    assert one.dtype == np.float32
    np.testing.assert_allclose(batch[0], one, rtol=1e-5)
    assert agent.env.action_space.contains(one)
    drawn = [float(agent.predict([0.5, -0.5], deterministic=False)[0][0]) for _ in range(3)]
    assert len(set(drawn)) == 3


def test_a_saved_agent_is_the_same_agent(trained: tuple[ubex.Agent, list[Info]], tmp_path: Path) -> None:
    agent, _ = trained
    file = agent.save(tmp_path / "deep" / "agent.ubex")
    again = ubex.Agent.load(file)
    assert (again.steps, again.episodes, again.config, again.env) == (32, 4, agent.config, None)
    np.testing.assert_array_equal(again.predict([0.5, -0.5])[0], agent.predict([0.5, -0.5])[0])
    with pytest.raises(ubex.InputError, match=r"no environment: give Slide to Agent\.load\(path, env=\.\.\.\)"):
        again.learn(1)
    ubex.Agent.load(file, Slide()).save(file)
    assert ubex.Agent.load(file, Slide()).learn(8).steps == 40
    with pytest.raises(
        ubex.InputError,
        match=r"range of actions of this agent is \[-3.0\] to \[3.0\], but that of Pendulum-v1 is \[-2.0\] |size",
    ):
        ubex.Agent.load(file, "Pendulum-v1")
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(ubex.InputError, match="not a sound file"):
        ubex.Agent.load(file)
    with pytest.raises(ubex.InputError, match="there is no file"):
        ubex.Agent.load(tmp_path / "nothing")


class Apart(gymnasium.ObservationWrapper[Any, Any, Any]):
    """The same point, whose places are told apart."""

    def __init__(self, env: Slide) -> None:
        super().__init__(env)
        box = spaces.Box(-np.inf, np.inf, (1,), np.float64)
        self.observation_space = spaces.Dict({"a": box, "b": spaces.Tuple((box,))})

    def observation(self, observation: Any) -> Any:
        return {"a": observation[:1], "b": (observation[1:],)}


def test_observations_are_taken_as_the_environment_gives_them(trained: tuple[ubex.Agent, list[Info]], tmp_path: Path) -> None:
    plain, _ = trained
    agent = sac(Apart(Slide())).learn(32)
    np.testing.assert_array_equal(agent.state.data, plain.state.data)
    again = ubex.Agent.load(agent.save(tmp_path / "agent.ubex"))
    row, batch = {"a": [0.5], "b": ([-0.5],)}, {"a": [[0.5], [0.0]], "b": ([[-0.5], [1.0]],)}
    expected, rows = plain.predict([0.5, -0.5])[0], [[0.5, -0.5], [0.0, 1.0]]
    for one in (agent, again):
        np.testing.assert_array_equal(one.predict(row)[0], expected)
        np.testing.assert_allclose(one.predict(batch)[0], plain.predict(rows)[0], rtol=1e-5)
        assert one.value(row, expected)[0] == plain.value([0.5, -0.5], expected)[0]
    assert agent.uncertainty_map(batch).mean.shape == (2,)
    np.testing.assert_array_equal(agent.evaluate(2, seed=1), plain.evaluate(2, seed=1))
    np.testing.assert_array_equal(
        ubex.Agent.load(tmp_path / "agent.ubex", Apart(Slide())).evaluate(2, seed=1)[:1], plain.evaluate(1, seed=1)
    )
    with pytest.raises(InputError, match=r"^the part \['a'\] of observation is not there"):
        again.predict([0.5, -0.5])
    with pytest.raises(InputError, match="learned from observations of another form than those of Slide"):
        ubex.Agent.load(tmp_path / "agent.ubex", Slide())


def test_a_broken_environment_costs_no_learning(tmp_path: Path) -> None:
    file = tmp_path / "kept.ubex"
    agent = sac(Slide(broken=27))
    with pytest.raises(ubex.InputError, match="Slide failed at step 27, in episode 3: OSError: cable"):
        agent.learn(32, Checkpoint(file))
    assert agent.steps == ubex.Agent.load(file).steps == 27


def test_an_agent_is_not_saved_as_a_folder(tmp_path: Path) -> None:
    with pytest.raises(ubex.InputError, match=f"path must name a file, but {tmp_path} is a folder"):
        sac().save(tmp_path)


def test_values_have_a_deviation() -> None:
    agent = ubex.Agent("exact-ube", "Pendulum-v1", preset="laptop", critic_hidden=(8,))
    assert agent.config.num_models == 3
    mean, deviation = agent.value([1.0, 0.0, 0.0], [2.0])
    assert isinstance(mean, float)
    assert isinstance(deviation, float)
    assert deviation > 0.0
    inside = (jnp.array([[1.0, 0.0, 0.0]], jnp.float32), jnp.array([[1.0]], jnp.float32))  # torques go to 2, networks to 1
    held = opinion(agent.config, agent.state.agent.values, *inside)
    np.testing.assert_allclose((mean, deviation), (held.mean[0], jnp.sqrt(held.variance[0])), rtol=1e-5)
    means, _ = agent.value([[1.0, 0.0, 0.0]] * 2, [[2.0], [-2.0]])
    np.testing.assert_allclose(np.asarray(means)[0], mean, rtol=1e-5)
    assert np.isnan(ubex.Agent("sac", "Pendulum-v1", **TINY).value([1.0, 0.0, 0.0], [2.0])[1])
    assert ubex.Agent("sac", "sparse-pendulum", **TINY).predict([1.0, 0.0, 0.0])[0].shape == (1,)


def test_observations_are_scaled_to_their_bounds(tmp_path: Path) -> None:
    """Also for predictions and maps, whose axes stay in the environment's numbers; and a file remembers the bounds."""
    place, car = ([-0.3, 0.07], [0.5]), "MountainCarContinuous-v0"
    plain, agent = (ubex.Agent("sac", car, **TINY, scaled_observations=scaled) for scaled in (False, True))
    assert agent.value(*place)[0] == pytest.approx(float(plain.value([0.0, 1.0], [0.5])[0]), rel=1e-4)
    assert agent.predict(place[0])[0] == pytest.approx(plain.predict([0.0, 1.0])[0], abs=1e-6)
    agent.learn(25)
    seen = agent.state.data[:25, :2]
    assert np.abs(seen[:, 0]).max() < 0.4, "a start between -0.6 and -0.4 is between -1/3 and -1/9"
    across = agent.uncertainty_map(points=3).axes[0]
    np.testing.assert_allclose(across, -0.3 + 0.9 * np.linspace(seen[:, 0].min(), seen[:, 0].max(), 3), rtol=1e-5)
    again = ubex.Agent.load(agent.save(tmp_path / "a"))
    assert again.value(*place)[0] == agent.value(*place)[0]
    assert again.learn(2).steps == 27
    assert again.evaluate(1, gymnasium.make(car, max_episode_steps=5)).shape == (1,)
    with pytest.raises(ubex.InputError, match="observations of another form"):
        again.evaluate(1, gymnasium.wrappers.RescaleObservation(gymnasium.make(car), np.float32(-1), np.float32(1)))


def test_an_averaged_actor_is_used(tmp_path: Path) -> None:
    """For predictions and evaluations; the actor itself has gone further."""
    agent = sac(actor_average=0.01).learn(60)
    held, place = agent.state.agent, np.array([1.0, 2.0], np.float32)
    wanted, other = (3.0 * float(actor.mode(net, jnp.asarray(place))[0]) for net in (held.actor_average, held.actor))
    assert float(agent.predict(place)[0][0]) == pytest.approx(wanted, abs=1e-5)
    assert abs(wanted - other) > 1e-3
    again = ubex.Agent.load(agent.save(tmp_path / "a"))
    assert again.predict(place)[0] == agent.predict(place)[0]


def test_an_environment_by_name_is_made_again(tmp_path: Path) -> None:
    agent = ubex.Agent("sac", "Pendulum-v1", **TINY, env_args={"g": 5.0})
    again = ubex.Agent.load(agent.save(tmp_path / "a"))
    again._need_env()
    assert again.env.unwrapped.g == 5.0
    functions: dict[str, Any] = {"termination": lambda o, a, n: n[0] > 3.0, "reward": lambda o, a, n: -(n[0] ** 2)}
    ends = ubex.Agent("sac", Slide(), **TINY, **functions)
    file = ends.save(tmp_path / "b")
    with pytest.raises(ubex.InputError, match="learned with a function `termination` and `reward`, which files do not hold"):
        ubex.Agent.load(file, Slide()).learn(1)
    assert ubex.Agent.load(file, Slide(), **functions).learn(1).steps == 1
    with pytest.raises(ubex.InputError, match=r"did not learn with a function `reward` \(learned\)"):
        ubex.Agent.load(agent.save(tmp_path / "c"), reward=functions["reward"])


@pytest.mark.parametrize(
    ("arguments", "settings", "message"),
    [
        (("magic", "Pendulum-v1"), {}, "unknown method 'magic'; choose from: exact-ube"),
        (("sac", "Pendulum-v1"), {"gane": 1.0}, "unknown setting 'gane'; choose from: num_models, gain"),
        (("sac", "Pendulum-v1"), {"preset": "desk"}, "unknown preset 'desk'; choose from: paper, laptop"),
        (
            ("sac", Slide(spaces.MultiBinary(3))),
            {},
            r"bounded 1-D Box of real-valued ones, but the actions of Slide are MultiBinary\(3\)",
        ),
        (("magic", "FrozenLake-v1"), {}, "unknown method 'magic'; choose from: exact-ube"),
        (
            ("sac", "FrozenLake-v1"),
            {},
            r"sac is a deep agent, but the spaces of FrozenLake-v1 are Discrete, so it gets a tabular one .*FlattenObservation",
        ),
        (("sac", "deep-sea"), {}, "so it gets a tabular one of `ubex list`$"),
        (("psrl", "deep-sea"), {"discount": 1.0}, r"discount must be in \[0, 1\)"),
        (("psrl", "deep-sea"), {"preset": "laptop"}, "preset is for deep agents, but deep-sea is tabular"),
        (("psrl", "deep-sea"), {"reward": max}, "reward is for deep agents, but deep-sea is tabular"),
        (("sac", "Pendulum-v1"), {"termination": "never"}, "unknown termination 'never'; choose from: learned, none"),
        (("sac", "Pendulum-v1"), {"reward": lambda o, a, n: n[0] > 0}, "reward must give one float32 number"),
        (("sac", "No-v7"), {}, "unknown environment 'No-v7'"),
        (("sac", Slide()), {"env_args": {"a": 1}}, "env_args go with an environment that is given by name"),
        (("sac", 3), {}, "but this is a int"),
    ],
)
def test_bad_agents(arguments: tuple[Any, ...], settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ubex.InputError, match=message):
        ubex.Agent(*arguments, **settings)


def test_a_flattened_observation_makes_a_task_for_deep_agents() -> None:
    agent = sac(gymnasium.wrappers.FlattenObservation(gymnasium.make("FrozenLake-v1"))).learn(25)
    assert (agent.kind, agent.steps, agent.predict(np.eye(16)[3])[0] in range(4)) == ("deep", 25, True)


def test_a_map_needs_two_numbers() -> None:
    env = Slide()
    env.observation_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
    with pytest.raises(ubex.InputError, match=r"with at least two numbers, but those of Slide have 1: call agent\.value"):
        sac(env).uncertainty_map()


def test_bad_calls() -> None:
    agent = sac()
    for call, message in (
        (lambda: agent.learn(0), "total_steps must be at least 1"),
        (lambda: agent.learn(2**63), "total_steps must be at most"),
        (lambda: agent.learn(), "learn needs total_steps, or total_timesteps"),
        (lambda: agent.learn(1, total_timesteps=1), "learn needs total_steps, or total_timesteps"),
        (lambda: listed([print, 3]), "a callback must be a function of an Info, or a list of such, but it is a int"),
        (lambda: agent.predict([1.0]), r"observation must have shape \(2,\) or \(batch, 2\)"),
        (lambda: agent.predict([1.0, np.nan]), "observation has nan in it"),
        (lambda: agent.value([[1.0, 0.0]], [1.0]), "observation and action must go together"),
        (lambda: agent.evaluate(0), "episodes must be at least 1"),
        (lambda: agent.belief, "deep agents have no `belief`"),
    ):
        with pytest.raises(ubex.InputError, match=message):
            call()  # type: ignore[no-untyped-call]


def test_a_map_is_the_values_at_the_agents_actions(trained: tuple[ubex.Agent, list[Info]]) -> None:
    agent, _ = trained
    found = agent.uncertainty_map(points=3)
    assert found.mean.shape == found.deviation.shape == (3, 3)
    held = agent.state.data[:32, :2]
    np.testing.assert_allclose(found.axes[0], np.linspace(held[:, 0].min(), held[:, 0].max(), 3), rtol=1e-5)
    place = np.array([found.axes[0][2], found.axes[1][0]])
    np.testing.assert_allclose(found.mean[0, 2], agent.value(place, agent.predict(place)[0])[0], rtol=1e-4)
    grid = np.zeros((2, 4, 2))
    assert agent.uncertainty_map(grid).mean.shape == (2, 4)
    with pytest.raises(ubex.InputError, match=r"observations must have shape \(\.\.\., 2\)"):
        agent.uncertainty_map(np.zeros((2, 3)))
    for axes in ((0, 2), (1, 1)):
        with pytest.raises(ubex.InputError, match="axes must be two different numbers below 2"):
            agent.uncertainty_map(axes=axes)
    with pytest.raises(ubex.InputError, match="has seen none"):
        sac().uncertainty_map()


def test_the_same_agent_has_the_same_returns(trained: tuple[ubex.Agent, list[Info]]) -> None:
    agent, _ = trained
    np.testing.assert_array_equal(agent.evaluate(2), agent.evaluate(2))
    assert (agent.evaluate(2) != agent.evaluate(2, seed=5)).all()
    assert agent.learn(total_timesteps=3).steps == 35


STRANGER = """
from pathlib import Path
from ubex import ENVS
Path(__file__).with_name("imported").touch()

class Maze:
    def __new__(cls):
        return ENVS["deep-sea"].make(size=3)
"""


def test_a_file_does_not_say_what_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "stranger.py").write_text(STRANGER)
    monkeypatch.chdir(tmp_path)
    Agent("psrl", "stranger:Maze").save("agent.ubex")
    monkeypatch.delitem(sys.modules, "stranger")
    (tmp_path / "imported").unlink()
    for use in (lambda agent: agent.evaluate(1), lambda agent: agent.film(), lambda agent: agent.learn(1)):
        with pytest.raises(InputError, match="the file names stranger:Maze, code that would be imported"):
            use(Agent.load("agent.ubex"))
    assert Agent.load("agent.ubex").env is None  # loading alone makes no environment
    assert cli.run(["evaluate", "agent.ubex"]) == 2
    state, payload = Agent("psrl", "deep-sea", env_args={"size": 3}).state, checkpoint.read_sound(Path("agent.ubex"))
    assert payload is not None
    notes = checkpoint.notes_of(payload, Path("agent.ubex"))
    changed = {**notes, "config": {**notes["config"], "method": "stranger:own"}}
    Path("changed.ubex").write_bytes(checkpoint.sealed(0, state, changed))
    with pytest.raises(InputError, match="unknown method 'stranger:own'"):
        Agent.load("changed.ubex")
    assert not (tmp_path / "imported").exists()
    assert Agent.load("agent.ubex", env="stranger:Maze").evaluate(1).shape == (1,)
    assert (tmp_path / "imported").exists()
