"""How uncertain are the values of my policy, given an ensemble of models that my own code learned?

    python examples/posterior_variance.py

An ensemble is an array: one transition table and one reward table per member. Here twenty bootstrap members are counted from a
handful of transitions; yours may come from anywhere.
"""

from __future__ import annotations

import numpy as np

import ubex

STATES, ACTIONS, MEMBERS = 4, 2, 20


def my_ensemble(generator: np.random.Generator) -> ubex.MDP:
    """Bootstrap: every member is counted from the data, drawn again with replacement. State 3 is the end."""
    state = generator.integers(3, size=60)
    action = generator.integers(ACTIONS, size=60)
    next_state = np.minimum(state + 1 + (generator.random(60) < 0.3 * action), 3)  # only forward: no state is met twice
    p, r = np.zeros((MEMBERS, STATES, ACTIONS, STATES)), np.zeros((MEMBERS, STATES, ACTIONS))
    p[..., 3] = 1e-9  # a row without data leads to the end
    for member in range(MEMBERS):
        for i in generator.integers(60, size=60):
            p[member, state[i], action[i], next_state[i]] += 1.0
    r[:, 2, :] = 1.0  # paid when leaving state 2
    return ubex.MDP(p=p / p.sum(axis=-1, keepdims=True), r=r)


def main() -> None:
    """Mean and standard deviation of the value of every state, by four estimators."""
    samples = my_ensemble(np.random.default_rng(0))
    policy = np.full((STATES, ACTIONS), 0.5)
    for name in ("exact-ube", "closed-form", "ensemble-var", "pombu"):
        found = ubex.value_variance(samples, policy, discount=0.95, estimator=name, u_min=-np.inf)
        deviation = np.sqrt(np.maximum(found.v, 0.0))
        print(f"{name:<13}", "  ".join(f"{m:6.3f} ± {d:.3f}" for m, d in zip(found.v_mean, deviation, strict=True)))


if __name__ == "__main__":
    main()
