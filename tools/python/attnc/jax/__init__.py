"""FlexAttention's interface for JAX, over attnc's kernels.

    from attnc.jax import flex_attention

    out = flex_attention(q, k, v, lambda score, b, h, q, k: score + slopes[h] * (k - q), lambda b, h, q, k: q >= k)

Needs jax 0.10 or later.
"""

from ..errors import UntranslatableError
from ..names import and_masks, choice, noop_mask, or_masks
from .flex import BlockMask, create_block_mask, flex_attention

__all__ = [
    "BlockMask", "UntranslatableError", "and_masks", "choice", "create_block_mask", "flex_attention", "noop_mask", "or_masks",
]  # fmt: skip
