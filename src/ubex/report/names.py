"""Names of columns and metrics as people say them, in one place: files and flags keep theirs."""

from __future__ import annotations

NAMES = {
    "num_models": "models N",
    "u_min": "least uncertainty reward",
    "mean_return_last_10": "mean return of the last 10",
    "mean_return_episodes_21_30": "mean return of episodes 21 to 30",
    "training_return_last_10": "training return of the last 10",
    "solved_share": "share of seeds that solve it",
    "total_regret_true_optimum": "total regret against the true optimum",
    "variance_s0": "variance of s0",
    "local_s0": "local uncertainty of s0",
    "critic_std": "spread of the critics",
}
"""Those for which it takes more than spaces."""


def people(name: str) -> str:
    """The name of a column or metric for people.

    Example:
        >>> people("total_regret"), people("num_models")
        ('total regret', 'models N')
    """
    return NAMES.get(name, name.replace("_", " "))
