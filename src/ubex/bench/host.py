"""Speed of the deep loop on the host: how much of a step goes into the environment, the models, the device, and the rest."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax

from ubex import checks
from ubex.bench.deep import errors
from ubex.deep.clock import Shares
from ubex.deep.methods import DEEP_METHODS
from ubex.learn import driver
from ubex.learn.agent import Agent
from ubex.learn.crew import Crew, Maker
from ubex.learn.deep_agent import DeepBackend
from ubex.learn.together import SeedsLearner
from ubex.types import InputError

MOST_REST = 0.15
"""Share of a step that may be spent outside the environment, the models and the device."""


@dataclass(frozen=True)
class Host:
    """Measure how much of a deep agent's step goes into an environment of your choice, its models, the device, and the rest."""

    env: str = "Pendulum-v1"
    """The environment: a name from `ubex list`, a Gymnasium id, or module:Class."""
    methods: tuple[str, ...] = ("exact-ube", "ensemble-mean", "sac")
    """The agents to measure."""
    preset: str = "laptop"
    """The sizes of networks and batches: paper or laptop."""
    seeds: int = 1
    """The number of seeds that learn together; several have their environments in processes of their own."""
    steps: int = 400
    """The number of steps that are measured, after a whole segment that compiles everything."""
    settings: str = "{}"
    """Other settings of the agents, as a JSON object."""
    json: bool = False
    """Print one line of JSON instead of a list."""

    def __post_init__(self) -> None:
        """Refuses values that make no sense."""
        for method in self.methods:
            checks.one_of("method", method, DEEP_METHODS)
        checks.whole("steps", self.steps, 1)
        checks.whole("seeds", self.seeds, 1)
        self.changes()

    def changes(self) -> dict[str, Any]:
        """The other settings."""
        return checks.json_object("settings", self.settings)

    def __call__(self, say: Callable[[str], None]) -> dict[str, Any]:
        """All measurements, one after the other."""
        found = []
        for method in self.methods:
            say(f"{method} on {self.env}")
            found.append(measure(self, method))
        return {"host": found}


def measure(settings: Host, method: str) -> dict[str, Any]:
    """One agent: seconds of the steps after everything is compiled, by what they were spent on; retraining is among them."""
    backend, number = Agent(method, settings.env, preset=settings.preset, **settings.changes()).backend, settings.seeds
    if not isinstance(backend, DeepBackend):
        raise InputError(f"{settings.env} is tabular: ubex bench tabular measures that")
    config = backend.config
    maker = Maker(settings.env, {}, None, config.scaled_observations)
    first = config.initial_steps + config.retrain_every
    with Crew(maker, number) if number > 1 else contextlib.nullcontext() as ask:
        learner = SeedsLearner.of(backend, jax.random.split(jax.random.key(0), number), sys.maxsize, 1, ask=ask)
        run = learner.restore(learner.blank({}))
        run = run._replace(state=run.state._replace(capacity=first + settings.steps))  # programs are compiled for all steps
        run = driver.advance(learner, run, first, lambda *_: True)
        before, start = learner.clock.spent, time.perf_counter()
        driver.advance(learner, run, first + settings.steps, lambda *_: True)
        whole = time.perf_counter() - start
    spent = Shares(*(now - then for now, then in zip(learner.clock.spent, before, strict=True)))
    peak = peak_memory()  # before the errors are measured, which takes more
    rest = 1.0 - (spent.environment + spent.models + spent.device) / whole  # what lies outside the loop counts too
    return {
        "env": settings.env,
        "method": method,
        "preset": settings.preset,
        "device": jax.devices()[0].device_kind,
        "seeds": number,
        "steps": settings.steps,
        "steps_per_second": settings.steps / whole,
        "environment_steps_per_second": number * settings.steps / whole,
        "seed_rounds_per_second": number * settings.steps * config.updates_per_step / whole,
        "share_environment": spent.environment / whole,
        "share_models": spent.models / whole,
        "share_device": spent.device / whole,
        "share_rest": rest,
        "rest_within_bound": rest <= MOST_REST,
        **errors(config, backend.env.task),
        **peak,
    }


def peak_memory() -> dict[str, float]:
    """The most memory of the device that this process has had so far, where the device counts it."""
    counted = jax.devices()[0].memory_stats() or {}
    return {"peak_memory_gb": counted["peak_bytes_in_use"] / 1e9} if "peak_bytes_in_use" in counted else {}
