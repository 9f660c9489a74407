"""Planning with optimism, by hand: which policy is best if every uncertain value counts as mean + gain * standard deviation?

    python examples/optimistic_planning.py

This is policy iteration around `ubex.value_variance`. `ubex.train` does the same, compiled, before every episode.
"""

from __future__ import annotations

import numpy as np

import ubex

STATES, LEAVE, GO = 4, 0, 1


def after_some_data() -> ubex.DirichletNormal:
    """A corridor: `leave` pays 0.2 and ends, `go` leads on for nothing. Nobody has tried `go` at the far end."""
    forward = np.zeros((STATES, 2, STATES + 1), dtype=bool)  # the last next state is the end
    forward[:, :, STATES] = True
    forward[np.arange(STATES - 1), GO, np.arange(1, STATES)] = True
    posterior = ubex.DirichletNormal(STATES, 2, terminal=True, support=forward, reward_precision=4.0)
    left = ubex.Transitions(np.arange(STATES), [LEAVE] * STATES, [0.2] * STATES, [STATES] * STATES)
    went = ubex.Transitions(np.arange(3).repeat(5), [GO] * 15, [0.0] * 15, np.arange(1, 4).repeat(5))
    return posterior.observe(left).observe(went)


def plan(posterior: ubex.DirichletNormal, gain: float, discount: float = 0.95) -> np.ndarray:
    """One action per state: greedy in the optimistic values of the policy before, until it stays the same."""
    policy = np.zeros(STATES + 1, dtype=np.int64)
    for _ in range(40):
        found = ubex.value_variance(posterior, policy, discount)
        better = (found.q_mean + gain * np.sqrt(found.q)).argmax(axis=1)
        if (better == policy).all():
            break
        policy = better
    return policy[:STATES]


def main() -> None:
    """The greedy plan leaves at once; the optimistic one goes to the end, to see what is there."""
    posterior = after_some_data()
    for gain in (0.0, 1.0):
        names = ["leave" if action == LEAVE else "go" for action in plan(posterior, gain)]
        print(f"gain {gain:g}: {' '.join(names)}")


if __name__ == "__main__":
    main()
