"""A deep agent on a Gymnasium environment, and a picture of what it knows.

    python examples/deep_agent.py --steps 5000 --out pendulum.png     (minutes on two cores)

The picture shows the mean and the standard deviation of the value over two axes of what the agent has seen.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

import ubex
from ubex.callbacks import Progress

TINY = {"num_models": 2, "updates_per_step": 1, "initial_steps": 20, "batch_size": 4, "model_batch": 4, "rollouts_per_step": 1}
TINY |= {"max_epochs": 1, "critic_hidden": (4,), "actor_hidden": (4,), "model_hidden": (4,)}


def main() -> None:
    """Learns, evaluates, draws."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--env", default="Pendulum-v1")
    parser.add_argument("--agent", default="exact-ube")
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--tiny", action="store_true", help="networks too small to learn anything: to see that it runs")
    parser.add_argument("--out", type=Path, default=Path("uncertainty.png"))
    options = parser.parse_args()

    agent = ubex.Agent(options.agent, options.env, preset="laptop", **(TINY if options.tiny else {}))
    agent.learn(options.steps, Progress())
    print(f"return of an episode with the mean action: {agent.evaluate(episodes=1)[0]:.1f}")

    known = agent.uncertainty_map(axes=(0, 1), points=41)
    figure, both = plt.subplots(1, 2, figsize=(8, 3.4), layout="constrained")
    for axes, title, values in zip(both, ("mean value", "standard deviation"), (known.mean, known.deviation), strict=True):
        shown = axes.pcolormesh(*known.axes, values, shading="nearest")
        axes.set(title=title, xlabel="observation 0", ylabel="observation 1")
        figure.colorbar(shown, ax=axes)
    figure.savefig(options.out)
    plt.close(figure)
    print(f"picture: {options.out}")


if __name__ == "__main__":
    main()
