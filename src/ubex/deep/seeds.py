"""What a run beside Gymnasium environments carries on, of one seed or of several on a leading axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped

from ubex.deep import agents, dynamics, refills, termination
from ubex.deep.agents import AgentState, Info
from ubex.deep.buffer import ModelBuffer, width
from ubex.deep.config import DeepConfig
from ubex.deep.dynamics import Dynamics, Fitted
from ubex.deep.refills import Refill
from ubex.deep.rollout import Outlook
from ubex.deep.termination import Termination
from ubex.envs.task import Task
from ubex.keys import named, plain_seed
from ubex.types import InputError, Key

SHARES = ("stored_share", "terminal_share", "outside_share")
"""What is shown of an `Outlook`, as means over buffers."""
MODELS = ("model_epochs", "model_error", *SHARES)
"""What is shown of the last training of the models, and of their rollouts."""
INSIDE = (*Info._fields, *MODELS)
"""What is shown of a seed: its last gradient rounds, and its models."""


class HostState(NamedTuple):
    """What a run of one seed carries on, and what a checkpoint holds; of several seeds, on a leading axis."""

    agent: AgentState
    dynamics: Dynamics | None
    """None for agents without a model."""
    termination: Termination | None
    """None unless terminations are learned."""
    refills: tuple[Refill, ...]
    """What made the rollouts, which are not held: so they can be made again."""
    data: Float[np.ndarray, "*k C D"]
    """All transitions so far, oldest first; in a run there are free places after them, which are written in place."""
    pending: Float[Array | np.ndarray, "*k A"]
    """The action of the next step where its gradient rounds were made already, but the environment failed; else NaN."""
    step: int
    """Steps in each environment so far, which is the number of transitions."""
    episodes: Int[np.ndarray, "*k"]
    """Finished episodes."""
    begun: Int[np.ndarray, "*k"]
    """Episodes in which a step was made, those that were lost among them."""
    elapsed: Int[np.ndarray, "*k"]
    """Steps of the episode under way; 0 where there is none."""
    capacity: int
    """Transitions that programs are compiled for: draws depend on it."""
    key: Shaped[PRNGKeyArray, "*k"]


Actions = Float[Array, "K A"] | Float[np.ndarray, "K A"]
"""Of all seeds, in [-1, 1] or one-hot; the device may still be busy with them."""


class Rounds(NamedTuple):
    """The last gradient rounds, which the device may still be busy with."""

    step: int
    info: Info
    bad: Bool[Array, " K"]
    """Whether a loss is not finite."""


class HostRun(NamedTuple):
    """A state of K seeds, and what is made from it again when a run goes on."""

    state: HostState
    errors: tuple[str, ...]
    """Why a seed is out; empty for those that go on."""
    observation: Float[np.ndarray, "K O"]
    """Of the episodes under way; NaN where one is still to be begun, or made again."""
    total: Float[np.ndarray, " K"]
    """Their returns so far."""
    inside: Float[np.ndarray, "K I"]
    """What is shown of them: `seeds.INSIDE`, of which the rounds are those before the run went on; `last` has later ones."""
    action: Actions | None = None
    """What is done next; None where it is still to be chosen."""
    buffers: ModelBuffer | None = None
    on_device: Float[Array, "K C D"] | None = None
    """The transitions."""
    held: int = 0
    """How many of them are there."""
    keys: tuple[int, Shaped[PRNGKeyArray, "K F"], Shaped[PRNGKeyArray, "K F G 2"] | None] | None = None
    """A segment, and the keys of its steps and rounds."""
    ends: Termination | None = None
    """Where episodes end, once a seed has seen an end: nothing is compiled for it before."""
    last: Rounds | None = None
    earlier: Rounds | None = None
    """Those before the action that is done next, which it depends on."""
    sound: HostState | None = None
    """Where to go back to at a loss that is not finite."""
    beside: Any = None
    """What is made beside the run, for whoever asked for it."""

    @property
    def living(self) -> list[int]:
        """The seeds that go on."""
        return [k for k, error in enumerate(self.errors) if not error]


def begin(
    config: DeepConfig,
    task: Task,
    key: Key,
    rows: int = 0,
    learn_ends: bool = False,
    ends_known: Sequence[bool] = (),
) -> HostState:
    """An untrained agent, with places for this many transitions; `learn_ends` for one that learns where episodes end.

    `ends_known` says of every retraining whose rollouts are to be made again whether such an end had been seen.
    """
    if not config.initial_resets:
        raise InputError("initial_resets must be True: environments on the host begin their episodes anew at the horizon")
    agent = agents.init(config, named(key, "agent"), task)
    modelled = config.model_based
    model = dynamics.init(config, named(key, "model"), task) if modelled else None
    ends = termination.init(named(key, "termination"), task) if modelled and learn_ends else None
    data = np.zeros((rows, width(task.observation_size, task.action_size)), np.float32)
    history = tuple[Refill, ...]()
    if model is not None:
        written = np.zeros(config.num_buffers, np.int32)
        history = tuple(refills.recorded(0, written, model, agent.actor, ends if known else None) for known in ends_known)
    pending, none = np.full(task.action_size, np.nan, np.float32), np.zeros((), np.int64)
    return HostState(agent, model, ends, history, data, pending, 0, none, none, none, 0, key)


def together(states: Sequence[HostState]) -> HostState:
    """Several seeds at the same step, on a leading axis."""

    def stack(*parts: Any) -> Any:
        return jnp.stack(parts) if isinstance(parts[0], jax.Array) else np.stack(parts)

    first, all_of = states[0], jax.tree.map(stack, *states)
    history = tuple(made._replace(segment=one.segment) for made, one in zip(all_of.refills, first.refills, strict=True))
    both: HostState = all_of._replace(refills=history, step=first.step, capacity=first.capacity)
    return both


def alone(state: HostState, seed: int) -> HostState:
    """One of several seeds, without the axis; what has none is the same for all."""
    one: HostState = jax.tree.map(lambda x: x[seed] if np.ndim(x) else x, state)
    return one


def unknown(number: int) -> Float[np.ndarray, "K I"]:
    """`INSIDE` of several seeds before the first training."""
    return np.full((number, len(INSIDE)), np.nan)


def described(fitted: Fitted, outlook: Outlook) -> Float[np.ndarray, "K M"]:
    """`MODELS` of several seeds."""
    parts = (fitted.epochs, fitted.error, *(getattr(outlook, name) for name in SHARES))
    means = [np.asarray(x, np.float64) for x in parts]
    return np.stack([x.reshape(len(x), -1).mean(axis=1) for x in means], axis=1)


def shown(inside: Float[np.ndarray, " I"]) -> dict[str, float]:
    """`INSIDE` of one seed by name, of which it may have some alone."""
    return {name: mean for name, mean in zip(INSIDE, inside.tolist(), strict=True) if not np.isnan(mean)}


def seed_of(state: HostState, seed: int) -> int:
    """The number that the environment of one of several seeds begins its episode with: the one under way, or the next one."""
    number = int(state.begun[seed]) - int(state.elapsed[seed] > 0)
    return plain_seed(jax.random.fold_in(named(state.key[seed], "environment"), number))
