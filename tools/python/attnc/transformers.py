"""attnc in models of Hugging Face's transformers.

    import attnc.transformers
    attnc.transformers.register()
    model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="attnc")

Supports training and `generate` with every cache: causal, sliding-window and chunked masks, padding, packed sequences,
soft caps, sinks, dropout. Needs torch and transformers 5.
"""

import functools
import sys

import torch
from torch.nn.attention.flex_attention import and_masks
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel, masking_utils
from transformers.utils import logging

from .launch import ALIGNED, Launch, Sequences
from .torch.autograd import attend, wanted_by
from .torch.block_mask import BlockMask
from .torch.flex import autocast, flex_attention, seed_like, with_prob
from .torch.graphs import attend_in_graph, attend_recorded, is_recorded, is_traced
from .torch.kernels import check_dtype
from .torch.masks import MASKS
from .torch.translation import translate

NAME = "attnc"
# The average rows per packed sequence at which a ragged batch begins to pay: a kernel's tile holds only one sequence.
_LONG = 128
_PADDING_STEP = 256  # padding masks have room for more keys, so that not every token needs a new program


def register(name: str = NAME) -> None:
    """Makes `attn_implementation=name` work in this process. May be called again."""
    AttentionInterface.register(name, attention)
    AttentionMaskInterface.register(name, mask)
    _NAMES.add(name)
    check = getattr(PreTrainedModel, "_check_and_adjust_attn_implementation", None)
    if check is not None and not hasattr(check, "of_attnc"):
        PreTrainedModel._check_and_adjust_attn_implementation = _refusing(check)


_NAMES = set()  # as registered


def _refusing(check):
    """Returns `check`, of a model and the name of an implementation, which refuses models that cannot take ours."""

    @functools.wraps(check)
    def checked(self, attn_implementation, *arguments, **options):
        if attn_implementation in _NAMES and _has_own_attention(type(self)):
            raise ValueError(
                f"{type(self).__name__} computes attention in code of its own, which does not call attnc: load it with "
                "attn_implementation='eager'"
            )
        return check(self, attn_implementation, *arguments, **options)

    checked.of_attnc = True
    return checked


def _has_own_attention(model):
    """Whether a class of transformers gives masks of ours, or the name, to attention that no registered function
    replaces, as bloom and gptj do. Others of that kind ignore the name, and compute the same as ever."""
    defined = vars(sys.modules[model.__module__])
    if getattr(model, "_supports_attention_backend", False) or "ALL_ATTENTION_FUNCTIONS" in defined:
        return False
    own = [name for name, found in defined.items() if getattr(found, "__module__", None) == model.__module__]
    takes_ours = any(
        name.startswith("create_") and name.endswith("_mask") or name.endswith("_ATTENTION_CLASSES") for name in defined
    )
    is_of_transformers = model.__module__.startswith("transformers.")
    return is_of_transformers and takes_ours and any(name.endswith("Attention") for name in own)


# ---- Masks ----------------------------------------------------------------------------------------------------------


class Mask(BlockMask):
    """A mask over the rows of a cache, or of none. `at_end` is None, or the mask_mod and the i32 lengths [B] for a
    kernel whose last query stands at the last key of its sequence, whatever the length. `packed` is None; or, for
    sequences packed one after another: the mask_mod within each, their cumulative lengths, and the longest."""

    at_end = packed = None
    is_unpadded = False  # whether all positions are of tokens, so that those that begin anew are of packed sequences
    ndim = 4  # as of the masks that models make themselves

    def contiguous(self):
        """Returns itself: `generate` calls this on masks, which it assumes to be tensors."""
        return self


def _causal(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx


def _shifted(mask_mod, q_offset, kv_offset):
    if isinstance(q_offset, int) and q_offset == kv_offset == 0:
        return mask_mod
    return lambda b, h, q_idx, kv_idx: mask_mod(b, h, q_idx + q_offset, kv_idx + kv_offset)


def _conjuncts(mask_function):
    """Returns the functions whose conjunction a mask function is, or the function itself."""
    conjunctions = and_masks(_causal).__code__, masking_utils.and_masks(_causal).__code__
    if getattr(mask_function, "__code__", None) not in conjunctions:
        return [mask_function]
    return [found for function in mask_function.__closure__[0].cell_contents for found in _conjuncts(function)]


def _is_causal(mask_function):
    """Whether no query sees a later key."""
    return any(function in (_causal, masking_utils.causal_mask_function) for function in _conjuncts(mask_function))


def _packed(mask_function):
    """Returns Mask.packed, if a mask function separates packed sequences and otherwise only depends on the distance
    between key and query; else None. Waits for the device once per mask."""
    of_sequences, of_window = (
        function(None).__code__
        for function in (masking_utils.packed_sequence_mask_function, masking_utils.sliding_window_overlay)
    )
    within, sequences = [], None
    for function in _conjuncts(mask_function):
        code = getattr(function, "__code__", None)
        if code is of_sequences and sequences is None:
            sequences = function.__closure__[0].cell_contents
        elif code is of_window or function in (_causal, masking_utils.causal_mask_function):
            within.append(function)
        else:
            return None
    if sequences is None or sequences.shape[0] != 1 or sequences.shape[1] == 0:
        return None
    places = torch.arange(1, sequences.shape[1], device=sequences.device)
    starts = torch.cat([places.new_zeros(1), places[sequences[0].diff() != 0]]).tolist()
    ends = [*starts[1:], sequences.shape[1]]
    if len(ends) * _LONG > sequences.shape[1]:
        return None
    longest = max(end - start for start, end in zip(starts, ends))
    cumulative = torch.tensor([0, *ends], dtype=torch.int32).to(sequences.device)
    return and_masks(*within) if within else None, cumulative, longest


def _is_one_sequence(mask_function):
    of_sequences = masking_utils.packed_sequence_mask_function(None).__code__
    return not any(getattr(function, "__code__", None) is of_sequences for function in _conjuncts(mask_function))


def _unpadded(padding):
    return lambda b, h, q_idx, kv_idx: padding[b, kv_idx]


def mask(
    batch_size, q_length, kv_length, q_offset=0, kv_offset=0, mask_function=_causal, attention_mask=None, device="cpu",
    **_,
):  # fmt: skip
    """Implements AttentionMaskInterface: returns a block mask of `mask_function`, which evaluates nothing yet. Row i of
    q stands at q_offset + i, row j of k at kv_offset + j. `attention_mask` [B, positions] is false for padding."""
    if isinstance(q_offset, torch.Tensor):
        q_offset = q_offset.clone()  # the cache increments it before a kernel reads it
    device, is_traced_here = torch.device(device), torch.compiler.is_compiling()
    is_unpadded = not is_traced_here and q_length > 1
    is_causal = not is_traced_here and _is_causal(mask_function)  # not tested in a graph
    if attention_mask is not None and (is_traced_here or not bool(attention_mask.all())):
        rows = kv_offset + kv_length
        room = -(-rows // _PADDING_STEP) * _PADDING_STEP
        padding = torch.nn.functional.pad(attention_mask.bool(), (0, max(room - attention_mask.shape[1], 0)))
        mask_function, is_unpadded = and_masks(mask_function, _unpadded(padding)), False
    is_packed = isinstance(q_offset, int) and q_offset == kv_offset and batch_size == 1 and q_length == kv_length
    packed = _packed(mask_function) if is_packed and not is_traced_here else None
    result = Mask._lazy(
        _shifted(mask_function, q_offset, kv_offset), batch_size, 1, q_length, kv_length, device, (128, 128)
    )
    result.packed, result.is_unpadded = packed, is_unpadded and packed is None and _is_one_sequence(mask_function)
    length = q_offset - kv_offset + q_length  # keys up to the last query
    is_whole = isinstance(length, int) and length == kv_length
    if (is_causal or is_whole) and not (is_whole and q_length == kv_length):
        if isinstance(length, torch.Tensor):
            lengths = length.to(device, torch.int32).reshape(1).repeat(batch_size)
        else:
            lengths = torch.full((batch_size,), length, dtype=torch.int32, device=device)
        result.at_end = _shifted(mask_function, kv_offset, kv_offset), lengths
    return result


# ---- Attention ------------------------------------------------------------------------------------------------------


def _changed(softcap, bias, dropout_p, sinks, query):
    """Returns the score_mod of a soft cap and a bias, and with it dropout and sinks. `query` has the device."""
    sink_mod = None if sinks is None else lambda b, h, q_idx: sinks[h]
    return with_prob(_score_mod(softcap, bias), None, dropout_p, seed_like, query, sink_mod)


def _score_mod(softcap, bias):
    """`bias` is None, or a mask that is added, [B or 1, H or 1, rows of q, rows of k]."""
    if bias is None:
        return None if softcap is None else lambda score, b, h, q_idx, kv_idx: softcap * torch.tanh(score / softcap)
    of_all, of_heads = bias.shape[0] == 1, bias.shape[1] == 1

    def score_mod(score, b, h, q_idx, kv_idx):
        if softcap is not None:
            score = softcap * torch.tanh(score / softcap)
        return score + bias[0 if of_all else b, 0 if of_heads else h, q_idx, kv_idx]

    return score_mod


def _mask_of(tensor):
    """Returns a mask_mod that reads a tensor of flags."""
    of_all, of_heads = tensor.shape[0] == 1, tensor.shape[1] == 1
    return lambda b, h, q_idx, kv_idx: tensor[0 if of_all else b, 0 if of_heads else h, q_idx, kv_idx]


def _window(sliding_window):
    return lambda b, h, q_idx, kv_idx: (q_idx >= kv_idx) & (kv_idx > q_idx - sliding_window)


def _within_sequences(mask_mod, starts, rows):
    """Returns a mask_mod for sequences packed one after another, which begin at rows `starts`."""
    sequence = torch.bucketize(torch.arange(rows, device=starts.device), starts, right=True)
    is_same = lambda b, h, q_idx, kv_idx: sequence[q_idx] == sequence[kv_idx]  # noqa: E731
    return is_same if mask_mod is None else and_masks(mask_mod, is_same)


def _warn(message):
    logging.get_logger(__name__).warning_once(message)


def _may_read(tensor):
    """Whether the host may wait for numbers of tensors."""
    return not is_recorded(tensor) and not (tensor.is_cuda and torch.cuda.is_current_stream_capturing())


def _check_positions(mask, positions):
    """Warns, once for a mask, if sequences are packed and the mask does not separate them."""
    mask.is_unpadded = False
    if isinstance(positions, torch.Tensor) and positions.dim() == 2 and bool((positions.diff(dim=-1) < 1).any()):
        _warn(
            "position_ids begin anew, but the sequences see each other: transformers separates packed sequences only if "
            "there is no cache and no attention_mask. Give use_cache=False, or cu_seq_lens_q"
        )


def attention(
    module, query, key, value, attention_mask, scaling=None, dropout=0.0, softcap=None, s_aux=None,
    sliding_window=None, is_causal=None, position_bias=None, **kwargs,
):  # fmt: skip
    """Implements AttentionInterface: returns ([B, Q_LEN, H, DV], None) for query [B, H, Q_LEN, D], key and value.
    `dropout` counts if the module is training."""
    if kwargs.get("output_attentions"):
        _warn("attnc returns no attention weights: output_attentions=True needs attn_implementation='eager'")
    dropout_p = dropout if getattr(module, "training", True) else 0.0
    starts, longest = kwargs.get("cu_seq_lens_q"), kwargs.get("max_length_q")
    if starts is None and isinstance(attention_mask, Mask) and attention_mask.is_unpadded and _may_read(query):
        _check_positions(attention_mask, kwargs.get("position_ids"))
    is_causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    bias, mask_mod, block_mask, sequences = position_bias, None, None, ALIGNED
    is_packed = starts is not None and query.shape[0] == 1 and key.shape[2] == query.shape[2]
    if is_packed and is_causal:
        mask_mod = _causal if sliding_window is None else _window(sliding_window)
    elif not is_packed and isinstance(attention_mask, Mask) and attention_mask.packed is not None and bias is None:
        is_packed, (mask_mod, starts, longest) = True, attention_mask.packed
        block_mask = attention_mask if query.is_cuda else None  # for the objects that are cached with it
    if is_packed:
        if query.is_cuda:  # a ragged batch: sequences are separate without a mask
            longest = int(longest or 0)
            sequences = Sequences(cu_seqlens_q=starts.int(), max_q_len=longest, max_kv_len=longest)
        else:
            mask_mod = _within_sequences(mask_mod, starts, query.shape[2])
    elif isinstance(attention_mask, Mask):
        block_mask = attention_mask
    elif isinstance(attention_mask, torch.Tensor):
        attention_mask = attention_mask[..., : key.shape[2]]
        block_mask = None if torch.compiler.is_compiling() else MASKS.of(attention_mask, query.shape[2], key.shape[2])
        if block_mask is not None:
            pass  # what the tensor is
        elif attention_mask.dtype == torch.bool:
            mask_mod = _mask_of(attention_mask)
        else:
            bias = attention_mask if bias is None else bias + attention_mask
    elif attention_mask is not None:
        block_mask = attention_mask  # PyTorch's own
    elif is_causal and query.shape[2] > 1:
        mask_mod = _causal
    sinks = None if s_aux is None else s_aux.reshape(-1)
    out = _attend(query, key, value, softcap, bias, dropout_p, sinks, mask_mod, block_mask, sequences, scaling)
    return out.transpose(1, 2).contiguous(), None


def _attend(query, key, value, softcap, bias, dropout_p, sinks, mask_mod, mask, sequences, scaling):
    """Returns out. `sinks` are None, or [H]; `mask` is None, a Mask, or PyTorch's. Raises ValueError for float64."""
    query, key, value = autocast(query, key, value)
    check_dtype("query", query)
    is_traced_here = torch.compiler.is_dynamo_compiling()
    if is_traced_here and not is_traced:  # this breaks the graph
        return _attend_outside(query, key, value, softcap, bias, dropout_p, sinks, mask_mod, mask, sequences, scaling)
    changed = functools.partial(_changed, softcap, bias, dropout_p, sinks, query)
    if isinstance(mask, Mask) and sequences.cu_seqlens_q is None:
        mask_mod = mask.mask_mod
        learned = (query, key, value) if sinks is None else (query, key, value, sinks)
        wants_gradients = torch.is_grad_enabled() and any(x.requires_grad for x in learned)
        if mask.at_end is not None and not wants_gradients:  # the mask serves second derivatives as well; lengths do not
            mask_mod, lengths = mask.at_end
            sequences = Sequences(kv_lengths=lengths)
    elif mask is not None and not isinstance(mask, Mask):
        return flex_attention(query, key, value, changed(), mask, scaling, enable_gqa=True)
    batch, heads, q_len, head_dim = query.shape
    scale = head_dim**-0.5 if scaling is None else float(scaling)
    if is_traced_here or is_recorded(query, key, value):
        if is_traced_here:  # our own score_mods, which may be joined with dropout and sinks
            return attend_in_graph(query, key, value, changed(), mask_mod, scale, sequences, mods=None)[0]
        return attend_recorded(query, key, value, changed(), mask_mod, scale, sequences)[0]
    if sequences.cu_seqlens_q is not None:
        batch = sequences.cu_seqlens_q.shape[0] - 1
    problem = batch, heads, key.shape[1], q_len, key.shape[2]
    # All layers share a mask, and so the translation of the first layer, unless each has its own bias, seed or sinks.
    is_shared = isinstance(mask, Mask) and bias is None and sinks is None and not dropout_p
    kept = mask.__dict__.setdefault("_translations", {}) if is_shared else {}
    place = softcap, id(mask_mod), query.device, problem
    translation = kept.get(place)
    if translation is None:
        translation = translate(changed(), mask_mod, device=query.device, problem=problem)
        kept[place] = translation
    text, captures, numbers = translation.given()
    launch = Launch(numbers, scale, mask, sequences, None, text, None, *wanted_by(query, key, value, captures))
    return attend(launch, query, key, value, captures, False)[0]


_attend_outside = torch._disable_dynamo(_attend)
