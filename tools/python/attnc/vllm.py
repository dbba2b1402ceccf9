"""attnc as an attention backend of vLLM (version 1 of its engine).

    vllm serve MODEL --attention-backend CUSTOM

vLLM finds this module by its entry point, `vllm.general_plugins`. Layers may have mods of FlexAttention:

    vllm serve MODEL --attention-backend CUSTOM --additional-config '{"attnc_mods": "my_module.mods_of"}'

Here my_module.mods_of(layer_name) returns a pair (score_mod, mask_mod); either may be None. score_mod
(score, b, h, q_idx, kv_idx) changes scores before the layer's soft cap and ALiBi. mask_mod (b, h, q_idx, kv_idx)
replaces the causal mask; a window of the layer still holds. b is the request's place in the batch, h counts the heads of
this rank, q_idx and kv_idx are positions in the request's sequence.

Serves the caches of decoder layers in bfloat16 and float16: causal and bidirectional masks, windows, ALiBi, soft caps,
sinks, and images whose tokens see one another, all with pages and with queries of any number.
"""

import dataclasses
import itertools
import typing

import torch
from torch.nn.attention.flex_attention import and_masks, or_masks
from vllm.config import CUDAGraphMode
from vllm.utils.import_utils import resolve_obj_by_qualname
from vllm.v1.attention.backend import (
    AttentionBackend,
    AttentionCGSupport,
    AttentionImpl,
    AttentionMetadataBuilder,
    AttentionType,
)

from .torch.autograd import call_of
from .torch.kernels import Sequences
from .torch.translation import translate

_PAGE_SIZES = [16, 32, 64, 128, 256]
_MODS = "attnc_mods"  # key of vLLM's additional_config
# Attributes of layers. vLLM's FlexAttention backend reads the second.
_SCORE_MOD, _MASK_MOD = "logical_score_mod", "logical_mask_mod"


class AttncBackend(AttentionBackend):
    """What vLLM asks of a backend before it takes it."""

    supported_dtypes: typing.ClassVar[list[torch.dtype]] = [torch.float16, torch.bfloat16]
    supported_kv_cache_dtypes: typing.ClassVar[list[typing.Any]] = ["auto", "float16", "bfloat16"]
    forward_includes_kv_cache_update = False

    @staticmethod
    def get_name() -> str:
        return "CUSTOM"

    @staticmethod
    def get_impl_cls() -> type["AttncImpl"]:
        return AttncImpl

    @staticmethod
    def get_builder_cls() -> type["AttncMetadataBuilder"]:
        return AttncMetadataBuilder

    @staticmethod
    def get_supported_kernel_block_sizes(kv_cache_spec: typing.Any = None) -> list[typing.Any]:
        return list(_PAGE_SIZES)

    @classmethod
    def supports_head_size(cls, head_size: int) -> bool:
        return 8 <= head_size <= 256 and head_size % 8 == 0

    @classmethod
    def supports_block_size(cls, block_size: int | None) -> bool:
        return block_size is None or any(block_size % size == 0 for size in _PAGE_SIZES)

    @classmethod
    def supports_compute_capability(cls, capability: typing.Any) -> bool:
        return capability.major >= 8

    @classmethod
    def supports_sink(cls) -> bool:
        return True

    @classmethod
    def supports_mm_prefix(cls) -> bool:
        return True

    @classmethod
    def supports_sliding_window(cls) -> bool:
        return True

    @classmethod
    def supports_non_causal(cls) -> bool:
        return True

    @classmethod
    def supports_device_cpu_query_lens_mismatch(cls) -> bool:
        return False  # launches are cut by the lengths that the CPU knows


@dataclasses.dataclass(frozen=True)
class Group:
    """Neighbouring requests that share a launch: a ragged batch if their numbers of queries differ."""

    requests: slice
    tokens: slice  # their rows of q
    count: int  # requests
    q_len: int  # the most queries of a request
    sequences: Sequences
    images: torch.Tensor | None  # i32 [count, R, 2]: first and last position of each; empty ones end before they begin

    def rows(self, of_all):
        """Returns their rows of q or out [tokens, H, D] as [B, H, q_len, D], or as the ragged batch [1, H, rows, D]."""
        batch = self.count if self.sequences.cu_q is None else 1
        return of_all[self.tokens].view(batch, -1, *of_all.shape[1:]).transpose(1, 2)


@dataclasses.dataclass(frozen=True)
class AttncMetadata:
    """A batch, cut into launches. All layers of a group share it. A tensor of vLLM is referred to, not copied, so that a
    captured graph sees the lengths and pages of later batches."""

    groups: list[Group]
    num_actual_tokens: int
    causal: bool
    slot_mapping: torch.Tensor


class AttncMetadataBuilder(AttentionMetadataBuilder[AttncMetadata]):
    """Makes the metadata of a batch from what the CPU knows. It never waits for the GPU."""

    supports_update_block_table = True

    @classmethod
    def get_cudagraph_support(cls, vllm_config: typing.Any, kv_cache_spec: typing.Any) -> AttentionCGSupport:
        # Images are tensors of one batch, but decodes see none.
        has_images = vllm_config.model_config.is_mm_prefix_lm
        return AttentionCGSupport.UNIFORM_BATCH if has_images else AttentionCGSupport.ALWAYS

    def __init__(
        self, kv_cache_spec: typing.Any, layer_names: list[str], vllm_config: typing.Any, device: torch.device
    ):
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)
        self._init_reorder_batch_threshold(1, supports_spec_as_decode=True)
        name = (vllm_config.additional_config or {}).get(_MODS)
        if name is not None:
            mods_of = resolve_obj_by_qualname(name)
            for layer_name in layer_names:
                layer = vllm_config.compilation_config.static_forward_context[layer_name]
                for attribute, mod in zip((_SCORE_MOD, _MASK_MOD), mods_of(layer_name)):
                    setattr(layer, attribute, mod)

    def build(self, common_prefix_len: int, common_attn_metadata: typing.Any, fast_build: bool = False) -> AttncMetadata:
        common = common_attn_metadata
        if isinstance(common.causal, torch.Tensor):
            raise NotImplementedError(
                "attnc needs one kind of mask for all requests of a batch, and vLLM asks for causal and bidirectional ones"
            )
        starts = common.query_start_loc_cpu[: common.num_reqs + 1].tolist()
        q_lens = [end - start for start, end in itertools.pairwise(starts)]

        def launch_of(request):
            # 1: for a decode kernel, which reads K and V once for all heads of a group; 2: for a forward kernel.
            return q_lens[request] and 1 + (q_lens[request] > self.reorder_batch_threshold)

        groups = []
        for launch, requests in itertools.groupby(range(common.num_reqs), launch_of):
            first, *others = requests
            if launch:  # else padding
                groups.append(_group(common, slice(first, first + 1 + len(others)), starts))
        return AttncMetadata(groups, common.num_actual_tokens, common.causal, common.slot_mapping)

    def build_for_cudagraph_capture(self, common_attn_metadata: typing.Any) -> AttncMetadata:
        """The graph serves later batches. Unless all of them are decodes of as many queries, it has one launch: a ragged
        batch, whose lengths are read on the GPU."""
        common = common_attn_metadata
        metadata = self.build(0, common)
        starts = common.query_start_loc_cpu.tolist()
        is_uniform = starts == [common.max_query_len * request for request in range(common.num_reqs + 1)]
        if not is_uniform or self.vllm_config.compilation_config.cudagraph_mode == CUDAGraphMode.FULL:
            group = _group(common, slice(0, common.num_reqs), starts, longest=common.max_query_len)
            metadata = dataclasses.replace(metadata, groups=[group])
        return metadata

    def update_block_table(
        self, metadata: AttncMetadata, blk_table: torch.Tensor, slot_mapping: torch.Tensor
    ) -> AttncMetadata:
        groups = [
            dataclasses.replace(group, sequences=group.sequences._replace(page_table=blk_table[group.requests]))
            for group in metadata.groups
        ]
        return dataclasses.replace(metadata, groups=groups, slot_mapping=slot_mapping)


def _group(common, requests, starts, longest=None):
    """Returns the launch of these requests: a ragged batch if they differ in their numbers of queries, or if others of
    up to `longest` will take their place."""
    first, end = requests.start, requests.stop
    q_lens = [starts[request + 1] - starts[request] for request in range(first, end)]
    sequences = Sequences(kv_lengths=common.seq_lens[requests], page_table=common.block_table_tensor[requests])
    if longest or min(q_lens) < max(q_lens):
        # Fewer values of Q_LEN are fewer kinds of launches.
        longest = longest or min(1 << (max(q_lens) - 1).bit_length(), starts[end] - starts[first])
        cu_q = common.query_start_loc[first : end + 1]
        sequences = sequences._replace(cu_q=cu_q - starts[first] if starts[first] else cu_q, max_q=longest)
    ranges = common.mm_req_doc_ranges or {}
    lengths = common.seq_lens_cpu_upper_bound
    of_requests = []
    for request, q_len in zip(range(first, end), q_lens):
        # Images that end before the second query change nothing. The bound is exact while a prompt is read.
        first_query = 0 if lengths is None else int(lengths[request]) - q_len
        of_requests.append([pair for pair in ranges.get(request, ()) if pair[1] > first_query])
    most = max(map(len, of_requests))
    images = None
    if most:
        most = 1 << (most - 1).bit_length()  # a kernel serves all numbers up to it
        filled = [of + [(1, 0)] * (most - len(of)) for of in of_requests]
        images = torch.tensor(filled, dtype=torch.int32, pin_memory=common.seq_lens.is_cuda)
        images = images.to(common.seq_lens.device, non_blocking=True)
    tokens = slice(starts[first], starts[end])
    return Group(requests, tokens, end - first, sequences.max_q or q_lens[0], sequences, images)


class AttncImpl(AttentionImpl[AttncMetadata]):
    """The attention of a layer. Raises NotImplementedError for what a launch cannot compute."""

    def __init__(
        self, num_heads: int, head_size: int, scale: float, num_kv_heads: int | None = None,
        alibi_slopes: list[float] | None = None, sliding_window: int | None = None, kv_cache_dtype: str = "auto",
        logits_soft_cap: float | None = None, attn_type: str = AttentionType.DECODER,
        kv_sharing_target_layer_name: str | None = None, sinks: torch.Tensor | None = None, **others: typing.Any,
    ):  # fmt: skip
        if attn_type != AttentionType.DECODER:
            raise NotImplementedError(f"attnc serves decoder layers; {attn_type} needs another backend")
        if kv_cache_dtype not in AttncBackend.supported_kv_cache_dtypes:
            raise NotImplementedError(f"attnc has no cache of {kv_cache_dtype} here: set kv_cache_dtype to auto")
        if others:
            raise NotImplementedError(f"attnc does not know {', '.join(others)} of this layer: use another backend")
        self.num_heads, self.num_kv_heads = num_heads, num_kv_heads or num_heads
        self.head_size, self.scale, self.kv_cache_dtype = head_size, float(scale), kv_cache_dtype
        self.window, self.soft_cap, self.sinks = sliding_window, logits_soft_cap or None, sinks
        self.slopes = alibi_slopes and torch.tensor(alibi_slopes, dtype=torch.float32)

    def do_kv_cache_update(
        self, layer: typing.Any, key: torch.Tensor, value: torch.Tensor, kv_cache: torch.Tensor,
        slot_mapping: torch.Tensor,
    ) -> None:  # fmt: skip
        """Writes rows of key and value, [tokens, HKV, D], to their slots in the pages. Slot -1: none."""
        pages = kv_cache.transpose(1, 2).split(self.head_size, dim=-1)  # [pages, page_size, HKV, D]
        if kv_cache.is_cuda:
            torch.ops._C_cache_ops.reshape_and_cache_flash(
                key, value, *pages, slot_mapping, self.kv_cache_dtype, layer._k_scale, layer._v_scale
            )
            return
        used = slot_mapping >= 0
        slots = slot_mapping[used]
        for rows, pool in zip((key, value), pages):
            pool[slots // pool.shape[1], slots % pool.shape[1]] = rows[: len(slot_mapping)][used]

    def forward(
        self, layer: typing.Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, kv_cache: torch.Tensor,
        attn_metadata: AttncMetadata, output: torch.Tensor, output_scale: torch.Tensor | None = None,
        output_block_scale: torch.Tensor | None = None,
    ) -> torch.Tensor:  # fmt: skip
        """Writes `output` [tokens, H, D] for query [tokens, H, D]. kv_cache is [pages, HKV, page_size, 2 D], with rows of
        K in the first half of the columns, and already has the new rows."""
        if output_scale is not None or output_block_scale is not None:
            raise NotImplementedError("attnc does not quantise what it writes: turn off fuse_attn_quant")
        if self.slopes is not None and self.slopes.device != query.device:
            self.slopes = self.slopes.to(query.device)
        if attn_metadata is None:  # vLLM measures memory
            return output.fill_(0)
        k, v = kv_cache.split(self.head_size, dim=-1)
        mods = getattr(layer, _SCORE_MOD, None), getattr(layer, _MASK_MOD, None)
        for group in attn_metadata.groups:
            self._attend(group.rows(query), k, v, group.rows(output), group, mods, attn_metadata.causal)
        return output

    def _attend(self, q, k, v, out, group, mods, causal):
        pages = group.sequences.page_table.shape[1]
        problem = group.count, self.num_heads, self.num_kv_heads, group.q_len, pages * k.shape[2]
        score_mod = self._score_mod(mods[0], group.requests.start)
        mask_mod = self._mask_mod(mods[1], group, causal)
        text, tensors, scalars = translate(score_mod, mask_mod, device=q.device, problem=problem).given()
        call = call_of(text, q, k, v, tensors, scalars, sequences=group.sequences)
        lse = None if self.sinks is None else torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
        call.forward(
            q, k, v, tensors.values(), scalars.values(), self.scale, self, out, lse, None, group.sequences, None
        )  # fmt: skip
        if lse is not None:
            # A sink is one more score of each row, with value 0: the weights of the keys add up to the rest.
            out.mul_(torch.sigmoid(lse - self.sinks.float().view(1, -1, 1)).unsqueeze(-1).to(out.dtype))

    def _score_mod(self, own, first):
        slopes, cap = self.slopes, self.soft_cap
        if own is None and slopes is None and cap is None:
            return None

        def score_mod(score, b, h, q_idx, kv_idx):
            if own is not None:
                score = own(score, b + first, h, q_idx, kv_idx)
            if cap is not None:
                score = cap * torch.tanh(score / cap)
            return score if slopes is None else score + slopes[h] * (kv_idx - q_idx)

        return score_mod

    def _mask_mod(self, own, group, causal):
        masks, first, window, images = [], group.requests.start, self.window, group.images
        if own is not None:
            masks.append(lambda b, h, q_idx, kv_idx: own(b + first, h, q_idx, kv_idx))
        elif causal:
            masks.append(_causal)
        if window is not None:
            masks.append(lambda b, h, q_idx, kv_idx: (q_idx - kv_idx < window) & (kv_idx - q_idx < window))
        if not masks:
            return None
        mask_mod = masks[0] if len(masks) == 1 else and_masks(*masks)
        return mask_mod if images is None else or_masks(mask_mod, *map(_within(images), range(images.shape[1])))


def _causal(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx


def _within(images):
    """Returns a function of a number: the mask_mod by which the tokens of that image of a request see one another."""

    def of(number):
        def mask_mod(b, h, q_idx, kv_idx):
            start, end = images[b, number, 0], images[b, number, 1]
            return (start <= q_idx) & (q_idx <= end) & (start <= kv_idx) & (kv_idx <= end)

        return mask_mod

    return of


def register() -> None:
    """Makes attnc the backend that vLLM calls CUSTOM. vLLM calls it in each process, by the entry point."""
    from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend

    register_backend(AttentionBackendEnum.CUSTOM, f"{__name__}.{AttncBackend.__qualname__}")
