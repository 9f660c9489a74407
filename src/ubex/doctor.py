"""`ubex doctor`: is this machine fit to compute? Versions, a jaxlib that is known to compute wrong numbers, devices."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import sys
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

KNOWN_BAD_JAX = ("0.10.2", "0.11.0")
"""Releases that the package's pin excludes; 0.10.2 silently computes wrong numbers on CPU (jax issue 39103)."""
PACKAGES = (
    "jax",
    "jaxlib",
    "jaxtyping",
    "equinox",
    "optax",
    "gymnasium",
    "numpy",
    "scipy",
    "pandas",
    "matplotlib",
    "pillow",
    "tyro",
    "rich",
    "jinja2",
)
EXTRAS = {"pybullet": "pybullet", "mujoco": "mujoco", "ray": "ray", "tensorboard": "tensorboard", "wandb": "wandb"}
PROBE_ROWS = 20_000
"""The miscompilation of 0.10.2 appears above 16,384 rows in float64."""


class Finding(NamedTuple):
    """One line of the diagnosis."""

    name: str
    ok: bool
    detail: str


def bad_version(version: str) -> bool:
    """Whether this release of jax or jaxlib is known to compute wrong numbers."""
    return version in KNOWN_BAD_JAX


def batched_reduction_error() -> float:
    """Largest relative error of a compiled, batched matrix-vector product followed by a sum, against NumPy.

    This is the shape of computation that jax 0.10.2 gets wrong on CPU.
    """
    with jax.enable_x64(True):
        rows = np.random.default_rng(0).normal(size=(PROBE_ROWS, 3))
        matrix = np.array([[2.0, 0.0, 1.0], [0.0, 1.0, 0.0], [1.0, 0.0, 3.0]])

        def norm(row: jax.Array) -> jax.Array:
            return jnp.sum(jnp.square(jnp.asarray(matrix) @ row))

        found = np.asarray(jax.jit(jax.vmap(norm))(jnp.asarray(rows)))
        expected = np.sum((rows @ matrix.T) ** 2, axis=1)
        return float(np.max(np.abs(found / expected - 1.0)))


def solve_error() -> float:
    """Largest error of a float64 linear solve against NumPy's."""
    with jax.enable_x64(True):
        generator = np.random.default_rng(1)
        p = generator.dirichlet(np.ones(60), size=60)
        r = generator.normal(size=(60, 1))
        found = np.asarray(jnp.linalg.solve(jnp.eye(60) - 0.9 * jnp.asarray(p), jnp.asarray(r)))
        return float(np.max(np.abs(found - np.linalg.solve(np.eye(60) - 0.9 * p, r))))


def arctan_error() -> float:
    """Largest error of an elementwise function on a long vector, the other known fault of 0.10.2 (jax issue 39352)."""
    with jax.enable_x64(True):
        x = np.linspace(-30.0, 30.0, 1001)
        return float(np.max(np.abs(np.asarray(jnp.arctan(jnp.asarray(x))) - np.arctan(x))))


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def examine() -> list[Finding]:
    """Every check, in the order in which a person would ask."""
    findings = [Finding("python", sys.version_info >= (3, 11), f"{platform.python_version()} on {platform.machine()}")]
    for package in PACKAGES:
        version = _version(package)
        if version is None:
            findings.append(Finding(package, False, "not installed"))
        elif package in ("jax", "jaxlib") and bad_version(version):
            findings.append(Finding(package, False, f"{version} computes wrong numbers: install another release"))
        else:
            findings.append(Finding(package, True, version))
    for name, error in (
        ("batched sums", batched_reduction_error()),
        ("arctan", arctan_error()),
        ("linear solve", solve_error()),
    ):
        findings.append(Finding(name, error < 1e-9, f"largest error {error:.1e} against NumPy, in float64"))
    devices = ", ".join(f"{device.platform}:{device.device_kind}" for device in jax.devices())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    findings.append(Finding("devices", True, devices))
    findings.append(Finding("machine", True, f"{os.cpu_count()} cores, {memory:.0f} GiB of memory"))
    present = [name for name, module in EXTRAS.items() if importlib.util.find_spec(module)]
    findings.append(Finding("extras", True, ", ".join(present) or "none installed (they are optional)"))
    return findings
