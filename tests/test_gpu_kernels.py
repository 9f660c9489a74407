from __future__ import annotations

import jax
import jax.numpy as jnp
from gpu_kernels import kernels

PROGRAM = """HloModule jit_f

%body.1 (p: (s32[], f32[4])) -> (s32[], f32[4]) {
  %p = (s32[], f32[4]{0}) parameter(0)
  %x = f32[4]{0} get-tuple-element(%p), index=1
  %fusion.1 = f32[4]{0} fusion(%x), kind=kLoop, calls=%fused_computation
  %copy.2 = f32[4]{0} copy(%fusion.1)
  ROOT %call.3 = (f32[4]{0}, u8[8]{0}) custom-call(%copy.2), custom_call_target="__cublas$gemm"
}

%fused_computation (q: f32[4]) -> f32[4] {
  ROOT %add = f32[4]{0} add(%q, %q)
}

ENTRY %main (a: f32[4]) -> f32[4] {
  %while.1 = (s32[], f32[4]{0}) while(%a), condition=%cond.1, body=%body.1
  ROOT %copy.9 = f32[4]{0} copy(%while.1)
}
"""


def test_kernels_of_loops_are_counted_and_nothing_else() -> None:
    assert kernels(PROGRAM) == {"body.1": 3}


def test_a_program_of_today_has_its_loops() -> None:
    """Of this machine's compiler: XLA's text still has the form that is read."""
    found = jax.jit(lambda x: jax.lax.fori_loop(0, 9, lambda i, y: jnp.sin(y) @ y, x)).lower(jnp.ones((8, 8))).compile()
    assert sum(kernels(found.as_text()).values()) >= 1
