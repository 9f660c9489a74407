from __future__ import annotations

from typing import Any

import pytest

from ubex.deep.config import DeepConfig
from ubex.deep.methods import DEEP_METHODS
from ubex.deep.presets import LAPTOP
from ubex.types import InputError


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"method": "dreamer"}, "sac"),
        ({"num_models": 1}, "num_models"),
        ({"num_models": 1, "method": "ensemble-var"}, "num_models"),
        ({"w_actions": 11}, "gap_actions"),
        ({"debias": True}, "w_actions"),
        ({"gap_actions": 1}, "gap_actions"),
        ({"precision": "float16"}, "tf32"),
        ({"initial_steps": 10}, "at least 20"),
        ({"discount": 1.5}, "discount"),
        ({"max_epochs": 0}, "max_epochs"),
        ({"rollout_ends": "never"}, "together, alone, trusted"),
        ({"reward_range": (0.0, 1.0)}, 'reward_range goes with rollout_ends "trusted"'),
        ({"reward_range": (1.0, 0.0), "rollout_ends": "trusted"}, "the smaller one first"),
        ({"reward_range": (0.0, float("inf")), "rollout_ends": "trusted"}, "reward_range must be finite, but it is inf"),
        ({"density_floor": -1.0}, "density_floor"),
        ({"u_min": float("nan")}, "u_min"),
        ({"validation_share": 1.0}, "validation_share"),
    ],
)
def test_settings_that_make_no_sense_get_one_line(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        DeepConfig(**change)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("method", DEEP_METHODS)
def test_every_agent_has_settings(method: str) -> None:
    config = DeepConfig(method=method, **LAPTOP)
    assert config.num_buffers == {"sac": 0, "mbpo": 1}.get(method, config.num_models + 1)
    assert config.has_unet == (method in ("exact-ube", "exact-ube-2", "pombu"))


def test_one_model_is_enough_for_a_mean() -> None:
    assert DeepConfig(method="ensemble-mean", num_models=1).num_critics == 1
