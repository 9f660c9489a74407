"""Which of two policies is better, and how sure is that?

    python examples/compare_policies.py

Both values are uncertain, but for the same reasons: where the policies act alike, an unknown probability moves both. So the
difference is better known than its two parts. `ubex.policy_difference` takes that into account.
"""

from __future__ import annotations

import math

import numpy as np

import ubex

STATES, ACTIONS = 6, 2


def main() -> None:
    """The difference of two policies that disagree in one state, as more and more data comes in."""
    generator = np.random.default_rng(0)
    true_p = generator.dirichlet(np.ones(STATES), size=(STATES, ACTIONS))
    true_r = 0.3 * generator.normal(size=(STATES, ACTIONS))
    first = np.zeros(STATES, dtype=np.int64)
    second = first.copy()
    second[2] = 1  # the other action in state 2
    posterior = ubex.DirichletNormal(STATES, ACTIONS, noise_precision=4.0)
    print("transitions   difference at state 2   if they were independent   P(first is better)")
    for number in (100, 500, 2000):
        state, action = generator.integers(STATES, size=number), generator.integers(ACTIONS, size=number)
        next_state = np.array([generator.choice(STATES, p=true_p[s, a]) for s, a in zip(state, action, strict=True)])
        reward = true_r[state, action] + 0.5 * generator.normal(size=number)
        posterior = posterior.observe(ubex.Transitions(state, action, reward, next_state))
        found = ubex.policy_difference(posterior, first, second, discount=0.9)
        mean, deviation = found.mean[2], math.sqrt(found.variance[2])
        parts = [ubex.value_variance(posterior, p, 0.9, estimator="closed-form").v[2] for p in (first, second)]
        sure = 0.5 * (1.0 + math.erf(mean / deviation / math.sqrt(2.0)))  # if the difference is about Normal
        print(f"{number:>11}   {mean:7.3f} ± {deviation:.3f}         ± {math.sqrt(sum(parts)):.3f}                  {sure:.2f}")


if __name__ == "__main__":
    main()
