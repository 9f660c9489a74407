"""Everything under test is shape-checked, and broadcasting or promoting by accident raises: our bugs would be of that kind."""

from __future__ import annotations

from jaxtyping import install_import_hook

install_import_hook("ubex", "typechecker.check")  # before the first import of ubex

import hypothesis  # noqa: E402
import jax  # noqa: E402

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")

hypothesis.settings.register_profile(
    "ubex",
    deadline=None,
    max_examples=200,
    derandomize=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.data_too_large],
)
hypothesis.settings.load_profile("ubex")
