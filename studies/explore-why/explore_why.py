"""What makes an estimate good for exploring? Agents that differ from an estimator's in one thing: its noise, scale or shape.

python studies/explore-why/explore_why.py deep-sea studies/explore-why/deep-sea.csv --size 10 --seeds 5 --gain 1
python studies/explore-why/explore_why.py seven-room studies/explore-why/seven-room.csv --seeds 1 --variants pombu-closed

One line per run: regret, when the rewards were found, how the visits are spread over rooms, and what the agent believes at
the end. A second file, `...-trace.csv`, has the state of every run along it. What is there already is not run again.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array, Float, Int

from ubex.closed_form import local_uncertainty
from ubex.envs.base import TabularEnv, finite_horizon_value, rollout
from ubex.envs.deep_sea import deep_sea
from ubex.envs.n_room import HORIZON, ROOM, floor_plan, seven_room
from ubex.experiments.deep_sea import SOLVED
from ubex.experiments.seven_room import PUBLISHED_OPTIMUM
from ubex.keys import as_key, named
from ubex.tabular import bellman
from ubex.tabular.agents import AgentConfig, planning_model
from ubex.tabular.belief import Belief, mean_model, observe, reward_posterior
from ubex.tabular.loop import begin
from ubex.tabular.models import Known, Single, Traced, flat_values
from ubex.tabular.planner import Plan, iterate, q_moments
from ubex.types import MDP, Key

SETTINGS = ("environment", "states", "variant", "gain", "discount", "repeats", "seed")
OPTIMISM = ("optimism", "optimism_of_pombu", "optimism_searched", "optimism_for_the_start")
BLOCKS = {"deep-sea": 50, "seven-room": 77}
"""Episodes between two lines of the trace; they divide 1,000 and 1,001, so that one program does for all blocks."""
Policy = Int[Array, " S"]
Moments = Callable[[Policy], tuple[Float[Array, "S A"], Float[Array, "S A"]]]
"""policy -> mean and standard deviation of Q."""
Make = Callable[[AgentConfig, Key, Belief], Moments]
"""(agent, key of the update, belief) -> the moments that the update plans with."""
Planner = Callable[[AgentConfig, Make, Key, Belief, int], tuple[Plan, Moments]]
"""(agent, maker of moments, key, belief, start) -> a policy for the next episode, and what it was planned with."""


def of(method: str, num_models: int = 5, frozen: bool = False) -> Make:
    """An estimator as it is; `frozen` draws the same samples before every episode, so that only data changes the estimate."""

    def make(config: AgentConfig, key: Key, belief: Belief) -> Moments:
        agent = AgentConfig(**{**vars(config), "method": method, "num_models": num_models})
        reward, deviation = reward_posterior(belief, agent.reward_precision, agent.noise_precision)
        key = jax.random.key(7) if frozen else key
        where = planning_model(agent, key, belief, mean_model(belief, reward), deviation)
        assert not isinstance(where, Single)
        return functools.partial(q_moments, agent.optimism(), where)

    return make


def known(config: AgentConfig, belief: Belief) -> Known:
    """The posterior by its moments."""
    reward, deviation = reward_posterior(belief, config.reward_precision, config.noise_precision)
    agent = AgentConfig(**{**vars(config), "method": "closed-form"})
    where = planning_model(agent, jax.random.key(0), belief, mean_model(belief, reward), deviation)
    assert isinstance(where, Known | Traced)
    return Known(*where)


def pombu_closed(config: AgentConfig, key: Key, belief: Belief) -> Moments:
    """pombu's equation with its w from the moments of the posterior: no noise, but each visit of a row counts as a new draw."""
    del key
    where = known(config, belief)
    reward = where.mean.r

    def moments(policy: Policy) -> tuple[Float[Array, "S A"], Float[Array, "S A"]]:
        root, choice = where.root(policy, config.discount), jax.nn.one_hot(policy, reward.shape[1], dtype=reward.dtype)
        v = root @ bellman.policy_average(reward, policy)
        pairs = ((root, root), (v, v), (choice, choice))
        local = local_uncertainty(where.rows, *pairs, config.discount, True).actions
        if where.mean.weights.shape[-1] == 1:
            variance = flat_values(where.mean, local, policy, config.discount**2).q
        else:
            variance = bellman.solve(MDP(where.mean.p, local), policy, config.discount**2).q
        return reward + config.discount * where.mean.expect(v), jnp.sqrt(variance)

    return moments


def noisy(base: Make, sigma: float, every_step: bool = False) -> Make:
    """Log-normal factors of mean 1 on the standard deviations, new in every update, or for every policy that it evaluates."""

    def make(config: AgentConfig, key: Key, belief: Belief) -> Moments:
        inner, key = base(config, key, belief), named(key, "noise")

        def moments(policy: Policy) -> tuple[Float[Array, "S A"], Float[Array, "S A"]]:
            mean, deviation = inner(policy)
            digits = jax.random.bits(named(key, "digits"), policy.shape, jnp.uint32)
            draw = jax.random.fold_in(key, jnp.sum(digits * policy.astype(jnp.uint32))) if every_step else key
            factor = jnp.exp(sigma * jax.random.normal(draw, mean.shape, mean.dtype) - 0.5 * sigma**2)
            return mean, deviation * factor

        return moments

    return make


def scaled(shape: Make, level: Make) -> Make:
    """One estimate's standard deviations, times the factor that gives them the mean of another's, for every policy."""

    def make(config: AgentConfig, key: Key, belief: Belief) -> Moments:
        own, other = shape(config, key, belief), level(config, key, belief)

        def moments(policy: Policy) -> tuple[Float[Array, "S A"], Float[Array, "S A"]]:
            (mean, deviation), (_, wanted) = own(policy), other(policy)
            return mean, deviation * jnp.sum(wanted) / jnp.maximum(jnp.sum(deviation), 1e-300)

        return moments

    return make


CLOSED, UBE = of("closed-form"), of("exact-ube")
VARIANTS: Mapping[str, Make] = {
    "closed-form": CLOSED,
    "first-order": of("first-order"),
    "pombu-closed": pombu_closed,
    "exact-ube": UBE,
    "pombu": of("pombu"),
    "ensemble-var": of("ensemble-var"),
    "closed-form, noise 0.5": noisy(CLOSED, 0.5),
    "closed-form, noise 1": noisy(CLOSED, 1.0),
    "closed-form, noise 1 every step": noisy(CLOSED, 1.0, every_step=True),
    "exact-ube, frozen": of("exact-ube", frozen=True),
    "ensemble-var, frozen": of("ensemble-var", frozen=True),
    "exact-ube, N = 50": of("exact-ube", 50),
    "pombu, N = 50": of("pombu", 50),
    "ensemble-var, N = 50": of("ensemble-var", 50),
    "exact-ube at the level of closed-form": scaled(UBE, CLOSED),
    "closed-form at the level of exact-ube": scaled(CLOSED, UBE),
    "closed-form, searched": CLOSED,
    "closed-form, for the start": CLOSED,
}
SEARCH_STEPS = 20
FOR_THE_START_STEPS = 30


class Episode(NamedTuple):
    """What is kept of an episode."""

    reward: Float[Array, " E"]
    policy: Int[Array, "E S"]
    states: Int[Array, "E H"]
    converged: Array
    deviation: Float[Array, " E"]
    """Mean standard deviation over all states and actions, under the policy that the episode followed."""
    start: Float[Array, "E 2"]
    """Mean and standard deviation of the start's value, under that policy."""


@functools.partial(jax.jit, static_argnames=("env", "config", "make", "planner"))
def block(
    env: TabularEnv, config: AgentConfig, make: Make, planner: Planner, key: Key, belief: Belief, episodes: Int[Array, " E"]
) -> tuple[Belief, Episode]:
    """`loop.run_episodes` for a variant, with the same keys, and more kept."""

    def one(belief: Belief, episode: Int[Array, ""]) -> tuple[Belief, Episode]:
        here = jax.random.fold_in(key, episode)
        plan, moments = planner(config, make, named(here, "plan"), belief, env.start)
        seen = rollout(env, named(here, "act"), plan.policy)
        mean, deviation = moments(plan.policy)
        start = jnp.stack([mean[env.start, plan.policy[env.start]], deviation[env.start, plan.policy[env.start]]])
        reward = jnp.sum(jnp.where(seen.valid, seen.reward, 0.0))
        kept = Episode(
            reward, plan.policy[: env.num_states], seen.state, plan.converged, jnp.mean(deviation[: env.num_states]), start
        )
        return observe(belief, seen, config.repeats), kept

    return jax.lax.scan(one, belief, episodes)


def update(config: AgentConfig, make: Make, key: Key, belief: Belief, start: int) -> tuple[Plan, Moments]:
    """A policy for the next episode, and what it was planned with."""
    del start
    moments = make(config, key, belief)

    def values(policy: Policy) -> Float[Array, "S A"]:
        mean, deviation = moments(policy)
        return mean + config.gain * deviation

    num_states, num_actions = belief.rewards.shape
    first = jax.random.randint(named(key, "policy"), (num_states,), 0, num_actions, jnp.int32)
    return iterate(values, named(key, "ties"), first, config.ties == "random"), moments


def search(config: AgentConfig, make: Make, key: Key, belief: Belief, start: int) -> tuple[Plan, Moments]:
    """The same objective, searched better: improvements begin at the plan of `pombu-closed`, and of all policies that are met
    the one is kept whose optimistic value of the start is largest."""
    plan, _ = update(config, pombu_closed, key, belief, start)
    moments = make(config, key, belief)

    def step(_: int, state: tuple[Policy, Policy, Float[Array, ""]]) -> tuple[Policy, Policy, Float[Array, ""]]:
        policy, best, most = state
        mean, deviation = moments(policy)
        value = mean + config.gain * deviation
        here = value[start, policy[start]]
        return jnp.argmax(value, axis=1).astype(jnp.int32), jnp.where(here > most, policy, best), jnp.maximum(here, most)

    least = jnp.asarray(-jnp.inf, belief.rewards.dtype)
    _, best, _ = jax.lax.fori_loop(0, SEARCH_STEPS, step, (plan.policy, plan.policy, least))
    return Plan(best, plan.steps + SEARCH_STEPS, plan.converged), moments


def for_the_start(config: AgentConfig, make: Make, key: Key, belief: Belief, start: int) -> tuple[Plan, Moments]:
    """Improvement along the gradient of the closed form's mean + gain * deviation of the start; the best policy is kept.

    With U = sum_t G(start,t)^2 l(t), another action in a state x changes U by 2 g G(start,x) dp(x) . C(., start) and by
    G(start,x)^2 dl(x). Divided by G(start,x), that is what an action of x is worth: an ordinary Bellman improvement with
    C(., start) in the place of values, instead of the deviation of every state's own Q.
    """
    where, moments = known(config, belief), make(config, key, belief)
    g, (num_states, num_actions) = config.discount, belief.rewards.shape

    def step(_: int, state: tuple[Policy, Policy, Float[Array, ""]]) -> tuple[Policy, Policy, Float[Array, ""]]:
        policy, best, most = state
        root, choice = where.root(policy, g), jax.nn.one_hot(policy, num_actions, dtype=where.mean.r.dtype)
        v = root @ bellman.policy_average(where.mean.r, policy)
        local = local_uncertainty(where.rows, (root, root), (v, v), (choice, choice), g, False)
        shared = root @ (local.states * root[start])
        deviation = jnp.sqrt(shared[start])
        here = v[start] + config.gain * deviation
        bonus = g * where.mean.expect(shared) + 0.5 * root[start][:, None] * local.actions
        value = where.mean.r + g * where.mean.expect(v) + config.gain * bonus / deviation
        return jnp.argmax(value, axis=1).astype(jnp.int32), jnp.where(here > most, policy, best), jnp.maximum(here, most)

    first = jax.random.randint(named(key, "policy"), (num_states,), 0, num_actions, jnp.int32)
    least = jnp.asarray(-jnp.inf, belief.rewards.dtype)
    last, best, _ = jax.lax.fori_loop(0, FOR_THE_START_STEPS, step, (first, first, least))
    return Plan(best, jnp.asarray(FOR_THE_START_STEPS, jnp.int32), jnp.all(last == best)), moments


PLANNERS: Mapping[str, Planner] = {"closed-form, searched": search, "closed-form, for the start": for_the_start}
"""Variants that keep the best policy they come across instead of the last one."""


@functools.partial(jax.jit, static_argnames=("env", "config"))
def optimism_of_plans(env: TabularEnv, config: AgentConfig, key: Key, belief: Belief) -> Float[Array, "4"]:
    """How large the closed form's mean + gain * deviation of the start is, for the plans of four agents with the same belief:
    closed-form, pombu-closed, closed-form searched and closed-form for the start. All but pombu-closed want it to be large."""
    plans = [
        update(config, CLOSED, key, belief, env.start)[0],
        update(config, pombu_closed, key, belief, env.start)[0],
        search(config, CLOSED, key, belief, env.start)[0],
        for_the_start(config, CLOSED, key, belief, env.start)[0],
    ]
    moments, values = CLOSED(config, key, belief), []
    for plan in plans:
        mean, deviation = moments(plan.policy)
        here = (env.start, plan.policy[env.start])
        values.append(mean[here] + config.gain * deviation[here])
    return jnp.stack(values)


def rooms_of_states() -> Int[np.ndarray, " S"]:
    """The room along the snake of every state of 7-room, 0 to 6; a door belongs to the room before it."""
    free, centers = floor_plan(7)
    rooms = []
    for cell in np.argwhere(free):
        inside = [np.abs(cell - np.array(center)).max() <= ROOM // 2 for center in centers]
        beside = [np.abs(cell - np.array(center)).sum() == ROOM // 2 + 1 for center in centers]
        rooms.append(inside.index(True) if any(inside) else beside.index(True))
    return np.array(rooms)


def run(
    env: TabularEnv, config: AgentConfig, name: str, key: Key, episodes: int
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """One run: a line of what it came to, and lines along it."""
    belief, parts, trace = begin(env).belief, [], []
    room = rooms_of_states() if env.name == "seven-room" else None
    p, r = (np.asarray(array) for array in env.as_mdp())
    regret, total, visits = 0.0, [], np.zeros(env.num_states)
    size = BLOCKS.get(env.name, 50)
    for first in range(0, episodes, size):
        numbers = jnp.arange(first, min(first + size, episodes), dtype=jnp.int32)
        belief, out = block(env, config, VARIANTS[name], PLANNERS.get(name, update), key, belief, numbers)
        part = jax.tree.map(np.asarray, out)
        parts.append(part)
        if room is None:
            lost = (part.reward < SOLVED).astype(np.float64)
        else:
            value = np.array([finite_horizon_value(p, r, policy, HORIZON)[env.start] for policy in part.policy])
            lost = np.maximum(PUBLISHED_OPTIMUM - value, 0.0)
        regret += float(lost.sum())
        total.append(lost)
        visits += np.bincount(part.states.ravel(), minlength=env.num_states)[: env.num_states]
        counts = np.asarray(belief.counts).sum(axis=-1)[: env.num_states]
        line: dict[str, Any] = {
            "episode": int(numbers[-1]) + 1,
            "regret": regret,
            "pairs_seen": int((counts > 0).sum()),
            "deviation": float(part.deviation.mean()),
            "start_mean": float(part.start[:, 0].mean()),
            "start_deviation": float(part.start[:, 1].mean()),
            "converged": float(part.converged.mean()),
        }
        if room is not None:
            line["stayed"] = float((part.states[:, 1:] == part.states[:, :-1]).mean())
            line["states_an_episode"] = float(np.mean([len(set(row)) for row in part.states.tolist()]))
            line |= {f"room_{i}": float(visits[room == i].sum() / visits.sum()) for i in range(7)}
            if name == "closed-form":
                plans = optimism_of_plans(env, config, jax.random.fold_in(key, episodes + first), belief)
                line |= dict(zip(OPTIMISM, map(float, plans), strict=True))
        trace.append(line)
    states = np.concatenate([part.states for part in parts])
    lost = np.concatenate(total)
    found = {"first_solved": first_episode(lost < 0.5)} if room is None else {}
    if room is not None:
        near, goal = (int(np.flatnonzero(r[:, 0] == reward)[0]) for reward in (0.1, 1.0))
        found = {
            "first_near": first_episode((states == near).any(axis=1)),
            "first_goal": first_episode((states == goal).any(axis=1)),
        }
    return {**found, **trace[-1], "deviation_early": trace[0]["deviation"]}, trace


def first_episode(happened: np.ndarray) -> float:
    """The number of the first episode in which something happened, counted from 1; NaN if none."""
    return float(np.argmax(happened) + 1) if happened.any() else float("nan")


def main() -> None:
    """Runs what the command line asks for, and writes after every run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("env", choices=("deep-sea", "seven-room"))
    parser.add_argument("out", type=Path)
    parser.add_argument("--size", type=int, default=10)
    parser.add_argument("--episodes", type=int)
    parser.add_argument("--gain", type=float, nargs="+", default=[1.0])
    parser.add_argument("--discount", type=float, default=0.99)
    parser.add_argument("--repeats", type=int, help="how often a transition counts; the size in DeepSea, else 1")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=list(VARIANTS), metavar="VARIANT")
    asked = parser.parse_args()
    sea = asked.env == "deep-sea"
    env = deep_sea(asked.size) if sea else seven_room()
    episodes = asked.episodes or (1000 if sea else 1001)
    along = asked.out.with_name(asked.out.stem + "-trace.csv")
    tables = [pd.read_csv(file) if file.is_file() else pd.DataFrame() for file in (asked.out, along)]
    repeats = asked.repeats or (asked.size if sea else 1)
    for name, gain in ((name, gain) for gain in asked.gain for name in asked.variants):
        config = AgentConfig(gain=gain, discount=asked.discount, u_min=-0.05 if sea else 0.0, repeats=repeats)
        for seed in range(asked.seeds):
            about = (env.name, env.num_states, name, gain, asked.discount, repeats, seed)
            start = dict(zip(SETTINGS, about, strict=True))
            if not tables[0].empty and about in set(tables[0][list(SETTINGS)].itertuples(index=False, name=None)):
                continue
            with jax.enable_x64(True):
                line, trace = run(env, config, name, as_key(seed), episodes)
            tables[0] = pd.concat([tables[0], pd.DataFrame([start | line])], ignore_index=True)
            tables[1] = pd.concat([tables[1], pd.DataFrame([start | step for step in trace])], ignore_index=True)
            for table, file in zip(tables, (asked.out, along), strict=True):
                table.to_csv(file, index=False, float_format="%.6g")
            print(start | line, flush=True)


if __name__ == "__main__":
    main()
