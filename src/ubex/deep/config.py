"""Settings of a deep agent. The defaults are the paper's for the sparse pendulum (appendix, table of hyperparameters)."""

from __future__ import annotations

import dataclasses
import functools
import math
from dataclasses import dataclass
from typing import Annotated, Any

from ubex import checks, fields
from ubex.deep.methods import DEEP_METHODS, DeepMethod
from ubex.estimators import Estimator
from ubex.fields import OneOf, Within
from ubex.types import InputError

ROLLOUT_ENDS = ("together", "alone", "trusted")
"""As soon as one rollout of a buffer ends, all do, and that step is stored as terminal for all of them; each where its model
says that the episode ends; or also, truncated and not stored, where a prediction leaves the data's neighbourhood."""
PRECISIONS = ("float32", "split16", "tf32")
"""How matrices are multiplied on a GPU. float32: everything in float32. split16: uncertainties, which are small differences, by
16-bit products of numbers in two halves where they compare states, rounded ones where they compare actions; rollouts by rounded
ones; what is differentiated by rounded ones too. tf32: everything in TF32, too coarse for small uncertainties."""

OF_ROUNDS = frozenset(
    (
        *("method", "gain", "discount", "batch_size", "u_min", "gap_actions", "sampled_states", "w_actions", "debias"),
        *("regularisation", "floor", "critic_hidden", "actor_hidden", "critic_gain", "critics_per_model"),
        *("critic_rate", "actor_rate", "polyak", "actor_average", "density_floor", "target_entropy", "entropy_share"),
    )
)
"""Settings that nothing but a gradient round, or the networks that it trains, depends on."""

Whole = Annotated[int, Within(1)]
Count = Annotated[int, Within(0)]
Positive = Annotated[float, Within(0.0)]
Share = Annotated[float, Within(0.0, 1.0)]
Layers = Annotated[tuple[int, ...], Within(1)]


@dataclass(frozen=True)
class DeepConfig:
    """Settings of a deep agent."""

    method: str = "exact-ube"
    """One of `DEEP_METHODS`."""
    num_models: int = 5
    """N, dynamics networks and critics."""
    gain: Positive = 1.0
    """lambda, how much a standard deviation is worth to the actor."""
    discount: Share = 0.99
    """Discount factor."""
    updates_per_step: Whole = 20
    """G, gradient rounds for each step in the environment."""
    rollouts_per_step: Whole = 400
    """M, model rollouts for each step in the environment."""
    retrain_every: Whole = 400
    """F, steps between two trainings of the model."""
    rollout_length: Whole = 10
    """k, steps of a model rollout."""
    rollout_ends: Annotated[str, OneOf(ROLLOUT_ENDS)] = "alone"
    """One of `ROLLOUT_ENDS`: when a model rollout ends before its last step, and what is stored then.

    Differs from the paper: its text ends each rollout alone, where the model says that the episode does. In the published runs
    of the pendulum one rollout that ends makes all of its buffer end (`together`), which keeps most of what poor models make
    up out of the critics. `trusted` is our own: no prediction far outside the data is stored or continued, and predicted
    rewards, values and variances stay within what the task's rewards allow."""
    reward_range: tuple[float, float] | None = None
    """For `trusted`: the lowest and the highest reward of the task. None takes the range that the task declares, and where it
    declares none, what was seen so far, widened on each side by its own width, or by 1 if that is more."""
    reward_prior: Positive = 0.0
    """Standard deviation of a fixed random function of the inputs that every model adds to its predicted reward (randomised
    prior functions, Osband et al., 2018): training takes it back where there are data, and elsewhere the models disagree.

    Differs from the paper, whose models have no prior, 0: where no reward was ever seen, all of them predict none anywhere."""
    scaled_observations: bool = False
    """Whether numbers of an observation are scaled to the bounds that a Gymnasium environment declares for them, -1 to 1.

    Differs from the paper, whose networks and models see observations as they are. To a network a velocity of at most 0.07, as
    in MountainCar, is next to nothing, and models have a noise of at least 0.007 (`min_log_var`), more than it gains in a
    step."""
    rounded_observations: bool = False
    """Whether numbers of an observation that took no more than two values so far keep to them in what the models predict: flags
    and one-hot vectors, which would become mixtures in a rollout.

    Differs from the paper, whose tasks have no such numbers."""
    retain: Whole = 1
    """Retrainings after which the model-generated buffers, which are rings, are overwritten."""
    initial_steps: Whole = 1000
    """Steps with the untrained policy before training."""
    initial_resets: bool = True
    """Whether these steps begin a new episode at the horizon. In the published runs of the pendulum they do not: one
    trajectory, in which the pendulum keeps swinging. Environments on the host always begin anew."""
    batch_size: Whole = 256
    """Transitions of one gradient round, from every buffer."""
    u_min: Annotated[float, Within(-math.inf)] = 0.0
    """Smallest local uncertainty; it clips u alone, without the variance of the reward."""
    gap_actions: Annotated[int, Within(2)] = 10
    """K, sampled actions at each next state for the gap."""
    sampled_states: bool = False
    """Draws a next state for each of these actions, so that the gap filters transition noise as in the theory; otherwise all
    are taken at the model's mean next state, as in the published runs."""
    w_actions: Whole = 1
    """Actions for w at each next state. 1, the published runs, lets policy noise into the epistemic term; with more, all models
    share the noise of the policy, and identical models give exactly 0. At most `gap_actions`."""
    debias: bool = False
    """Corrects w for the finite number of actions and the gap for the finite number of critics."""
    regularisation: Positive = 5.0
    """lambda_reg, weight of the penalty on a U-net whose output before softplus falls below `floor`."""
    floor: Positive = 0.1
    """Smallest output of the U-net."""
    critic_hidden: Layers = (256, 256)
    """Hidden layers of the critics and of the U-net, tanh."""
    actor_hidden: Layers = (64, 64)
    """Hidden layers of the actor, tanh."""
    model_hidden: Layers = (200, 200, 200, 200)
    """Hidden layers of a dynamics network, SiLU."""
    critic_gain: Positive = 10.0
    """Gain of the critics' orthogonal initialisation, over the flattened ensemble: large, so that members start far apart."""
    critics_per_model: Whole = 1
    """Critics of each model, of which the smallest counts: in targets, in what the actor climbs, and as the model's value. The
    first one is asked for w and gap. sac and mbpo have two critics, whatever this says.

    Differs from the paper, which has one. A single critic is trained on what it overestimates, and small ones hold on to it."""
    model_scale: Positive = 2.0
    """Factor on the initial weights of the dynamics; the library default is 1, the paper takes 2 for the pendulum."""
    critic_rate: Positive = 3e-4
    """Learning rate of the critics and the U-net (Adam)."""
    actor_rate: Positive = 3e-4
    """Learning rate of the actor and the temperature."""
    model_rate: Positive = 3e-4
    """Learning rate of the dynamics."""
    weight_decay: Positive = 5e-5
    """L2 penalty of the dynamics, added to the gradient."""
    polyak: Share = 0.005
    """Share of the new weights in the targets, every round."""
    actor_average: Share = 0.0
    """Share of the new weights, every round, in an average of the actor's weights. The average takes the actions in targets, in
    evaluations and of `predict`; the actor itself learns, and acts in training.

    Differs from the paper, which has no average, 0. At single moments a policy is one that fails, between others that succeed,
    and critics that are asked at its actions believe what they got wrong last."""
    density_floor: Positive = 1e-6
    """Added to the slope of tanh in an action's log-density, as in the published runs, so that the entropy term does not pull
    saturated actions back. 0 gives the exact density, as in the paper's text."""
    target_entropy: float | None = None
    """Entropy that the temperature aims at; None means minus the number of action dimensions, or the share below."""
    entropy_share: Share = 0.3
    """For discrete actions: entropy that the temperature aims at, as a share of that of equally likely actions. With the
    default one action of two has a probability of about 0.95, and one of four about 0.9."""
    model_batch: Whole = 256
    """Transitions of one step of the dynamics' training, for each member."""
    validation_share: float = 0.05
    """Share of the data that is kept for validation."""
    patience: Whole = 1
    """Epochs without improvement after which training of the dynamics stops."""
    patience_steps: Count = 0
    """Gradient steps without improvement before which it does not stop: with few data an epoch is a handful of them."""
    improvement: Positive = 0.01
    """Relative fall of some member's validation error that counts as improvement."""
    max_epochs: Whole | None = None
    """Most epochs of one training of the dynamics; None for no limit, as published."""
    likelihood_beta: Share = 0.0
    """Power of the predicted variance that weighs an error in the models' likelihood (Seitzer et al., 2022).

    Differs from the paper, whose models maximise the likelihood itself, 0. Of a number that rarely changes, such as one of a
    one-hot observation, they then learn that it is noisy: its changes are divided by the variance that they cause. With 1,
    means are learned by squared error alone."""
    min_log_var: float = -10.0
    """Soft lower bound of the predicted log-variance."""
    max_log_var: float = 0.5
    """Soft upper bound of the predicted log-variance."""
    precision: Annotated[str, OneOf(PRECISIONS)] = "float32"
    """One of `PRECISIONS`: how matrices are multiplied."""

    def __post_init__(self) -> None:
        """Refuses settings that make no sense."""
        fields.check(self)
        checks.one_of("method", self.method, DEEP_METHODS)
        needed = 1 if self.known.optimism == "none" else 2
        checks.whole(f"num_models (for {self.method})", self.num_models, needed)
        if self.w_actions > self.gap_actions:
            raise InputError(f"w_actions must be at most gap_actions, {self.gap_actions}, but it is {self.w_actions}")
        if self.debias and self.w_actions == 1:
            raise InputError("debias needs w_actions of at least 2, since one action does not show its own noise")
        if self.reward_range is not None:
            if self.rollout_ends != "trusted":
                raise InputError(f'reward_range goes with rollout_ends "trusted", but that is "{self.rollout_ends}"')
            low, high = checks.interval("reward_range", self.reward_range)
            object.__setattr__(self, "reward_range", (low, high))
        if not 0.0 < self.validation_share < 1.0:
            raise InputError(f"validation_share must be between 0 and 1, but it is {self.validation_share}")
        if self.initial_steps * self.validation_share < 1.0:
            raise InputError(
                f"initial_steps must be at least {math.ceil(1.0 / self.validation_share)} for a validation set of one "
                f"transition, but it is {self.initial_steps}"
            )
        if self.min_log_var > self.max_log_var:
            raise InputError(f"min_log_var must be at most max_log_var, {self.max_log_var}, but it is {self.min_log_var}")

    @functools.cached_property
    def beside_rounds(self) -> DeepConfig:
        """These settings for all that is no gradient round: what rounds alone look at has its default.

        So methods share the programs of models, rollouts and steps, which take longer to compile than their rounds.
        """
        defaults: dict[str, Any] = {one.name: one.default for one in dataclasses.fields(self) if one.name in OF_ROUNDS}
        return dataclasses.replace(self, **{**defaults, "method": "ensemble-mean"})

    @property
    def known(self) -> DeepMethod:
        """The method's line of the table."""
        return DEEP_METHODS[self.method]

    @property
    def model_based(self) -> bool:
        """Whether there is a model at all."""
        return self.known.model

    @property
    def twin(self) -> bool:
        """Whether there are two critics, of which the smaller counts."""
        return self.known.twins

    @property
    def rivals(self) -> int:
        """Critics of the same values, of which the smallest counts: those of each model, or the twins."""
        return 2 if self.twin else self.critics_per_model

    @property
    def num_critics(self) -> int:
        """All critics: each model's, or the twins."""
        return self.rivals * (1 if self.twin else self.num_models)

    @property
    def has_unet(self) -> bool:
        """Whether the uncertainty Bellman equation is solved."""
        return self.known.optimism == "u-net"

    @property
    def estimator(self) -> Estimator:
        """The estimator of the variance; twins have none."""
        return self.known.estimator

    @property
    def num_buffers(self) -> int:
        """Model-generated buffers: the model-randomised one first, then one for each model; twins need the first alone."""
        return 0 if not self.model_based else 1 if self.twin else self.num_models + 1

    @property
    def rollouts(self) -> int:
        """Rollouts after a retraining, in each buffer."""
        return self.retrain_every * self.rollouts_per_step
