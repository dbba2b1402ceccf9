"""FlexAttention's interface over attnc's kernels: change the import, and nothing else.

    from attnc.torch import flex_attention, create_block_mask

Needs torch 2.6 or later.
"""

from torch.nn.attention.flex_attention import and_masks, create_mask, noop_mask, or_masks

from .block_mask import BlockMask, create_block_mask
from .errors import UntranslatableError
from .flex import AuxOutput, AuxRequest, FlexKernelOptions, flex_attention
from .inspection import explain
from .translation import Translation, translate

__all__ = [
    "AuxOutput",
    "AuxRequest",
    "BlockMask",
    "FlexKernelOptions",
    "Translation",
    "UntranslatableError",
    "and_masks",
    "create_block_mask",
    "create_mask",
    "explain",
    "flex_attention",
    "noop_mask",
    "or_masks",
    "translate",
]
