"""FlexAttention's interface over attnc's kernels: change the import, and nothing else.

    from attnc.torch import flex_attention, create_block_mask

Needs torch 2.6 or later.
"""

import typing

from torch.nn.attention import flex_attention as _flex
from torch.nn.attention.flex_attention import and_masks, create_mask, noop_mask, or_masks

from ..names import choice
from .block_mask import BlockMask, create_block_mask
from .errors import OperandError, UntranslatableError
from .flex import AuxOutput, AuxRequest, FlexKernelOptions, flex_attention
from .inspection import explain
from .masks import infer_masks, inferred_masks
from .translation import Translation, translate

__all__ = [
    "AuxOutput", "AuxRequest", "BlockMask", "FlexKernelOptions", "OperandError", "Translation", "UntranslatableError",
    "and_masks", "choice", "create_block_mask", "create_mask", "explain", "flex_attention", "infer_masks",
    "inferred_masks", "noop_mask", "or_masks", "translate",
]  # fmt: skip

# Whatever else the installed PyTorch exports: create_nested_block_mask in 2.6, and what later versions may add.
__all__ += [name for name in _flex.__all__ if name not in __all__]


def __getattr__(name: str) -> typing.Any:
    # Programs also import names that PyTorch does not export: _score_mod_signature, _DEFAULT_SPARSE_BLOCK_SIZE, ...
    is_private = name.startswith("_") and not name.startswith("__")
    if name in _flex.__all__ or is_private and hasattr(_flex, name):
        return getattr(_flex, name)
    raise AttributeError(f"module {__name__} has no attribute {name}")
