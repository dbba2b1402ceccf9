"""attnc as an attention backend of vLLM (version 1 of its engine).

    vllm serve MODEL --attention-backend CUSTOM

vLLM finds this module by its entry point, `vllm.general_plugins`. Layers may have mods of FlexAttention:

    vllm serve MODEL --attention-backend CUSTOM --additional-config '{"attnc_mods": "my_module.mods_of"}'

Here my_module.mods_of(layer_name) returns a pair (score_mod, mask_mod); either may be None. score_mod
(score, b, h, q_idx, kv_idx) changes scores before the layer's soft cap and ALiBi. mask_mod (b, h, q_idx, kv_idx)
replaces the causal mask; a window of the layer still holds. b is the request's place in the batch, h counts the heads of
this rank, q_idx and kv_idx are positions in the request's sequence. Requests choose mods by attnc.vllm_requests.

Serves the caches of decoder layers in bfloat16, float16 and fp8 (E4M3): causal and bidirectional masks, windows, ALiBi,
soft caps, sinks, and images whose tokens see one another, all with pages and with queries of any number. If the cache is
fp8, decodes keep queries in 16 bits; prompts divide queries by the layer's q_scale and round them to fp8.
"""

import dataclasses
import typing

import torch
from vllm.config import CUDAGraphMode
from vllm.v1.attention.backend import (
    AttentionBackend, AttentionCGSupport, AttentionImpl, AttentionMetadataBuilder, AttentionType,
)  # fmt: skip

from .quantise import quantise
from .torch.serving import FP8, Attention, Chosen, Group, Scales, group_of_all, groups_of, mods_of_layers

_PAGE_SIZES = [16, 32, 64, 128, 256]
_FP8 = "fp8", "fp8_e4m3"  # names of one dtype
_MODS = "attnc_mods"  # key of vLLM's additional_config
# Attributes of layers. vLLM's FlexAttention backend reads the second.
_SCORE_MOD, _MASK_MOD = "logical_score_mod", "logical_mask_mod"


class AttncBackend(AttentionBackend):
    """What vLLM asks of a backend before it takes it."""

    supported_dtypes: typing.ClassVar[list[torch.dtype]] = [torch.float16, torch.bfloat16]
    supported_kv_cache_dtypes: typing.ClassVar[list[typing.Any]] = ["auto", "float16", "bfloat16", *_FP8]
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
    def supports_combination(
        cls, head_size: int, dtype: torch.dtype, kv_cache_dtype: typing.Any, block_size: int | None, use_mla: bool,
        has_sink: bool, use_sparse: bool, use_mm_prefix: bool, device_capability: typing.Any,
    ) -> str | None:  # fmt: skip
        if kv_cache_dtype in _FP8 and (device_capability.major, device_capability.minor) < (8, 9):
            return "attnc reads fp8 caches from sm_89 on"
        if kv_cache_dtype in _FP8 and head_size % 16:
            return "attnc needs head sizes that are multiples of 16 for fp8 caches"
        return None

    supports_per_head_quant_scales = supports_sink = supports_mm_prefix = classmethod(lambda cls: True)
    supports_sliding_window = supports_non_causal = classmethod(lambda cls: True)

    @classmethod
    def supports_device_cpu_query_lens_mismatch(cls) -> bool:
        return False  # launches are cut by the lengths that the CPU knows


@dataclasses.dataclass(frozen=True)
class AttncMetadata:
    """A batch, cut into launches. All layers of a group share it. A tensor of vLLM is referred to, not copied, so that a
    captured graph sees the lengths and pages of later batches."""

    groups: list[Group]
    num_actual_tokens: int
    causal: bool
    slot_mapping: torch.Tensor
    chosen: Chosen | None = None  # what requests chose


class AttncMetadataBuilder(AttentionMetadataBuilder[AttncMetadata]):
    """Makes the metadata of a batch from what the CPU knows. It never waits for the GPU."""

    supports_update_block_table = True

    @classmethod
    def get_cudagraph_support(cls, vllm_config: typing.Any, kv_cache_spec: typing.Any) -> AttentionCGSupport:
        # Images are tensors of one batch, but decodes see none.
        has_images = vllm_config.model_config.is_mm_prefix_lm
        return AttentionCGSupport.UNIFORM_BATCH if has_images else AttentionCGSupport.ALWAYS

    def __init__(self, kv_cache_spec: typing.Any, layer_names: list[str], vllm_config: typing.Any, device: torch.device):
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)
        self._init_reorder_batch_threshold(1, supports_spec_as_decode=True)
        name = (vllm_config.additional_config or {}).get(_MODS)
        if name is not None:
            mods_of = mods_of_layers(name, _MODS)
            for layer_name in layer_names:
                layer = vllm_config.compilation_config.static_forward_context[layer_name]
                for attribute, mod in zip((_SCORE_MOD, _MASK_MOD), mods_of(layer_name)):
                    setattr(layer, attribute, mod)
        self.requests, self.chosen = None, None
        if processors := getattr(vllm_config.model_config, "logits_processors", None):
            from .vllm_requests import of_model

            self.requests = of_model(processors)
        if self.requests is not None:
            _check_requests(vllm_config)
            places = torch.zeros(vllm_config.scheduler_config.max_num_seqs, dtype=torch.int32, device=device)
            self.chosen = Chosen(self.requests.named, places)

    def build(self, common_prefix_len: int, common_attn_metadata: typing.Any, fast_build: bool = False) -> AttncMetadata:
        common = common_attn_metadata
        if isinstance(common.causal, torch.Tensor):
            raise NotImplementedError(
                "attnc needs one kind of mask for all requests of a batch, and vLLM asks for causal and bidirectional ones"
            )
        if self.chosen is not None:
            self.chosen.set(self._numbers_of(common))
        groups = groups_of(common, self.reorder_batch_threshold)
        return AttncMetadata(groups, common.num_actual_tokens, common.causal, common.slot_mapping, self.chosen)

    def _numbers_of(self, common):
        """Returns the numbers of the mods of a batch's requests; 0 for padding."""
        places = range(common.num_reqs)
        if self.vllm_config.use_v2_model_runner:
            if common.req_idx is None:
                raise NotImplementedError(
                    f"attnc does not know which requests a batch has, whose mods {self.requests.__name__} tells: draft models "
                    "need another attention_backend"
                )
            places = [*common.req_idx.tolist(), *[-1] * common.num_reqs][: common.num_reqs]
        return [self.requests.numbers.get(place, 0) for place in places]

    def build_for_cudagraph_capture(self, common_attn_metadata: typing.Any) -> AttncMetadata:
        """The graph serves later batches. Unless all of them are decodes of as many queries, it has one launch: a ragged
        batch, whose lengths are read on the GPU."""
        common = common_attn_metadata
        metadata = self.build(0, common)
        starts = common.query_start_loc_cpu.tolist()
        is_uniform = starts == [common.max_query_len * request for request in range(common.num_reqs + 1)]
        if not is_uniform or self.vllm_config.compilation_config.cudagraph_mode == CUDAGraphMode.FULL:
            metadata = dataclasses.replace(metadata, groups=[group_of_all(common, common.max_query_len)])
        return metadata

    def update_block_table(
        self, metadata: AttncMetadata, blk_table: torch.Tensor, slot_mapping: torch.Tensor
    ) -> AttncMetadata:
        groups = [
            dataclasses.replace(group, sequences=group.sequences._replace(page_table=blk_table[group.requests]))
            for group in metadata.groups
        ]
        return dataclasses.replace(metadata, groups=groups, slot_mapping=slot_mapping)


def _check_requests(config):
    """Raises NotImplementedError where requests cannot have mods of their own."""
    parallel = config.parallel_config
    for is_so, what in (
        (config.cache_config.enable_prefix_caching,
         "a cache of prefixes, whose pages would hold what other mods computed: set --no-enable-prefix-caching"),
        (parallel.pipeline_parallel_size > 1, "pipelines, whose first ranks are not told: set --pipeline-parallel-size 1"),
        (parallel.use_ubatching, "micro-batches: unset --enable-dbo"),
    ):  # fmt: skip
        if is_so:
            raise NotImplementedError(f"attnc's mods by request do not go with {what}")


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
            raise NotImplementedError(f"attnc has no cache of {kv_cache_dtype}: set kv_cache_dtype to auto or fp8")
        if others:
            raise NotImplementedError(f"attnc does not know {', '.join(others)} of this layer: use another backend")
        self.num_heads, self.num_kv_heads = num_heads, num_kv_heads or num_heads
        self.head_size, self.scale, self.kv_cache_dtype = head_size, float(scale), kv_cache_dtype
        self.is_fp8 = kv_cache_dtype in _FP8
        self.attention = Attention(
            num_heads, self.num_kv_heads, scale, sliding_window, logits_soft_cap or None,
            alibi_slopes and torch.tensor(alibi_slopes, dtype=torch.float32), sinks,
        )  # fmt: skip

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
        for rows, pool, scales in zip((key, value), pages, (layer._k_scale, layer._v_scale)):
            new = rows[: len(slot_mapping)][used]
            if self.is_fp8:
                of_heads = scales.view(1, -1).expand(1, self.num_kv_heads)
                values, _ = quantise(new.transpose(0, 1)[None], scales=of_heads)
                pool, new = pool.view(torch.uint8), values[0].transpose(0, 1).view(torch.uint8)
            pool[slots // pool.shape[1], slots % pool.shape[1]] = new

    def forward(
        self, layer: typing.Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, kv_cache: torch.Tensor,
        attn_metadata: AttncMetadata, output: torch.Tensor, output_scale: torch.Tensor | None = None,
        output_block_scale: torch.Tensor | None = None,
    ) -> torch.Tensor:  # fmt: skip
        """Writes `output` [tokens, H, D] for query [tokens, H, D]. kv_cache is [pages, HKV, page_size, 2 D], with rows of
        K in the first half of the columns, and already has the new rows."""
        if output_scale is not None or output_block_scale is not None:
            raise NotImplementedError("attnc does not quantise what it writes: turn off fuse_attn_quant")
        self.attention.move_to(query.device)  # which graphs cannot
        if attn_metadata is None:  # vLLM measures memory
            return output.fill_(0)
        k, v = kv_cache.split(self.head_size, dim=-1)
        scales = None
        if self.is_fp8:
            k, v, scales = k.view(FP8), v.view(FP8), Scales(layer._q_scale, layer._k_scale, layer._v_scale)
        mods = getattr(layer, _SCORE_MOD, None), getattr(layer, _MASK_MOD, None)
        chosen, causal = attn_metadata.chosen, attn_metadata.causal
        for group in attn_metadata.groups:
            of_group = mods if chosen is None else chosen.of(group, mods, causal)
            self.attention.attend(group, query, k, v, output, of_group, causal, scales, None if chosen is None else 0)
        return output


def register() -> None:
    """Makes attnc the backend that vLLM calls CUSTOM. vLLM calls it in each process, by the entry point."""
    from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend

    register_backend(AttentionBackendEnum.CUSTOM, f"{__name__}.{AttncBackend.__qualname__}")
