"""attnc as an attention backend of SGLang.

    python -m sglang.launch_server --model-path MODEL --attention-backend attnc --page-size 16

SGLang finds this module by its entry point, `sglang.srt.plugins`. Layers may have mods of FlexAttention:

    ATTNC_SGLANG_MODS=my_module.mods_of python -m sglang.launch_server ...

Here my_module.mods_of(layer_id) returns a pair (score_mod, mask_mod); either may be None. They are as in attnc.vllm.
ATTNC_SGLANG_REQUEST_MODS=my_module.mods names a dictionary from names to such pairs. A request whose `custom_params` are
{"attnc_mod": NAME} has those of this name, where None is the layer's own; one without has the first pair.

Serves decoder layers over caches in bfloat16, float16 and fp8 (E4M3): decodes, prompts with or without a cached prefix,
mixed batches, windows, soft caps, sinks, and the verification of drafts, also of trees.
"""

import dataclasses
import functools
import itertools
import os
import typing
import weakref

import torch
from sglang.srt.layers.attention.base_attn_backend import AttentionBackend
from sglang.srt.layers.radix_attention import AttentionType

from .torch.serving import FP8, Attention, Chosen, Group, NamedMods, Scales, groups_of, imported, mods_of_layers

_NAME = "attnc"  # of --attention-backend
_MODS, _REQUEST_MODS = "ATTNC_SGLANG_MODS", "ATTNC_SGLANG_REQUEST_MODS"
_PAGE_SIZES = 1, 2, 4, 8, 16, 32, 64, 128, 256


@dataclasses.dataclass(frozen=True)
class _Batch:
    """A batch as groups_of() reads it."""

    query_start_loc: torch.Tensor
    query_start_loc_cpu: torch.Tensor
    seq_lens: torch.Tensor  # with the new tokens
    block_table_tensor: torch.Tensor
    seq_lens_cpu_upper_bound: None = None
    mm_req_doc_ranges: None = None

    @property
    def num_reqs(self) -> int:
        return len(self.seq_lens)


class AttncMetadata:
    """A batch, cut into launches. All layers share it. `tree`, bool [requests, drafts, drafts], says which drafts see which;
    None: each sees those before it."""

    def __init__(self, batch: _Batch, few: int, tree: torch.Tensor | None = None):
        self.groups: list[Group] = groups_of(batch, few)
        self.lengths = batch.seq_lens
        self.set_tree(tree)

    def set_tree(self, tree: torch.Tensor | None) -> None:
        self.tree = tree
        self._masks = {}  # mask_mod of a layer -> the same for drafts; its id must stay

    def mask_mod(self, own: typing.Callable | None) -> typing.Callable | None:
        """Returns a layer's mask_mod (None: causal), with the tree if there is one."""
        if self.tree is None:
            return own
        if own not in self._masks:
            lengths, tree = self.lengths, self.tree
            drafts = tree.shape[1]

            def mask_mod(b, h, q_idx, kv_idx):
                first = lengths[b] - drafts
                live = q_idx >= kv_idx if own is None else own(b, h, q_idx, kv_idx)
                return live & ((kv_idx < first) | tree[b, (q_idx - first).clamp(min=0), (kv_idx - first).clamp(min=0)])

            self._masks[own] = mask_mod
        return self._masks[own]


@functools.cache
def _named(name: str | None) -> NamedMods | None:
    """Returns the mods of requests that the environment names."""
    return NamedMods(imported(name, _REQUEST_MODS), f"{_REQUEST_MODS}: {name}") if name else None


def _check_request(_result, params, *_):
    """Raises ValueError for a request that names unknown mods. Runs behind SGLang's own check of sampling parameters."""
    _named(os.environ[_REQUEST_MODS]).number_of(params.custom_params)


_backends: "weakref.WeakSet[AttncBackend]" = weakref.WeakSet()  # whose requests choose


def _note_requests(_result, _cls, batch, *_, **__):
    """Tells backends of requests that begin. Runs behind ForwardBatch.init_new(), which still knows the requests."""
    if batch.forward_mode.is_extend():
        for backend in _backends:
            backend.note(batch.reqs)


class AttncBackend(AttentionBackend):
    """The attention of a model runner. Raises NotImplementedError for what a launch cannot compute."""

    needs_cpu_seq_lens = False  # lengths are read on the GPU

    def __init__(self, runner: typing.Any):
        super().__init__()
        self.pool, self.page_size, self.device = runner.token_to_kv_pool, runner.page_size, runner.device
        _check(runner, self.pool)
        self.slots = runner.req_to_token_pool.req_to_token  # [requests, positions]
        self.max_context_len = runner.model_config.context_len
        self.is_fp8 = self.pool.dtype == FP8
        self.one = torch.ones(1, device=self.device)
        self.layers: dict[int, tuple[Attention, tuple]] = {}
        self.forward_metadata: AttncMetadata | None = None
        name = os.environ.get(_MODS)
        self.mods_of = mods_of_layers(name, _MODS) if name else None
        self.chosen, named = None, _named(os.environ.get(_REQUEST_MODS))
        if named is not None:
            if not runner.server_args.disable_radix_cache:
                raise NotImplementedError(
                    "attnc's mods by request do not go with a cache of prefixes, whose pages would hold what other mods "
                    "computed: set --disable-radix-cache"
                )
            self.named, self.numbers = named, {}  # by slot of a request, of which 0 is the first
            new = lambda: torch.zeros(len(self.slots), dtype=torch.int32, device=self.device)  # noqa: E731
            self.number_of_slot, self.chosen = new(), Chosen(named, new())
            _backends.add(self)

    def note(self, requests: typing.Iterable[typing.Any]) -> None:
        """Keeps what SGLang's requests chose."""
        new = {}
        for request in requests:
            slot, number = int(request.req_pool_idx), self.named.number_of(request.sampling_params.custom_params)
            if self.numbers.get(slot, 0) != number:
                new[slot] = self.numbers[slot] = number
        if new:
            pairs = torch.tensor([*new.items()], dtype=torch.int64, pin_memory=self.slots.is_cuda)
            slots, numbers = pairs.to(self.device, non_blocking=True).unbind(1)
            self.number_of_slot[slots] = numbers.int()

    # ------------------------------------------------------------------------------------------------------- batches

    def _choose(self, batch):
        """Fills what the requests of a batch chose."""
        if self.chosen is None:
            return
        indices = batch.req_pool_indices
        torch.index_select(self.number_of_slot, 0, indices, out=self.chosen.which[: len(indices)])

    def init_forward_metadata(self, forward_batch: typing.Any) -> None:
        self.forward_metadata = None
        self._choose(forward_batch)
        if not forward_batch.forward_mode.is_idle():
            self.forward_metadata = self._metadata(forward_batch, self._lengths(forward_batch), self._table(forward_batch))

    def init_cuda_graph_state(self, max_bs: int, max_num_tokens: int) -> None:
        """Makes the tensors that graphs read."""
        drafts = max_num_tokens // max_bs
        self.graph_lengths = torch.zeros(max_bs, dtype=torch.int32, device=self.device)
        pages = -(-self.slots.shape[1] // self.page_size)  # of a request, at most
        self.graph_table = torch.zeros(max_bs, pages, dtype=torch.int32, device=self.device)
        self.graph_tree = torch.zeros(max_bs * drafts * drafts, dtype=torch.bool, device=self.device)

    def init_forward_metadata_out_graph(self, forward_batch: typing.Any, in_capture: bool = False) -> None:
        """Fills what a graph reads. Before a capture it also cuts the batch into launches."""
        mode, count = forward_batch.forward_mode, forward_batch.batch_size
        if not (mode.is_decode_or_idle() or mode.is_target_verify()):
            raise NotImplementedError(f"attnc captures no graphs of {mode.name}: set --disable-prefill-cuda-graph")
        self._choose(forward_batch)
        lengths, table = self.graph_lengths[:count], self.graph_table[:count]
        lengths.copy_(self._lengths(forward_batch))
        self._table(forward_batch, table)
        tree = self._tree(forward_batch.spec_info, lengths) if mode.is_target_verify() else None
        if tree is not None:
            tree = self.graph_tree[: tree.numel()].view(tree.shape).copy_(tree)
        if in_capture:
            self.forward_metadata = self._metadata(forward_batch, lengths, table, tree)

    def get_cuda_graph_seq_len_fill_value(self) -> int:
        return 1

    def update_verify_buffers_to_fill_after_draft(self, spec_info: typing.Any, cuda_graph_bs: int | None) -> None:
        """Fills the tree again: SGLang may prepare a batch before the tree is known."""
        metadata = self.forward_metadata
        lengths = self.graph_lengths[:cuda_graph_bs] if cuda_graph_bs else metadata and metadata.lengths
        tree = None if lengths is None else self._tree(spec_info, lengths)
        if tree is not None and cuda_graph_bs:
            self.graph_tree[: tree.numel()].copy_(tree.view(-1))
        elif tree is not None:
            metadata.set_tree(tree)

    def _lengths(self, batch):
        """Returns the lengths of requests with their new tokens, i32."""
        lengths = batch.seq_lens
        if batch.forward_mode.is_target_verify():  # drafts do not count there
            lengths = lengths + batch.spec_info.draft_token_num
        return lengths.to(torch.int32)

    def _table(self, batch, out=None):
        """Returns the pages of requests, i32 [requests, pages]; in `out`, if that is given."""
        first = torch.index_select(self.slots[:, :: self.page_size], 0, batch.req_pool_indices, out=out)
        return first if self.page_size == 1 else first.floor_divide_(self.page_size)

    def _metadata(self, batch, lengths, table, tree=None):
        mode, count = batch.forward_mode, len(lengths)
        if mode.is_decode_or_idle() or mode.is_target_verify():
            few = batch.spec_info.draft_token_num if mode.is_target_verify() else 1
            q_lens = [few] * count
            if mode.is_target_verify() and tree is None:
                tree = self._tree(batch.spec_info, lengths)
        elif mode.is_extend() and not mode.is_dllm_extend() and not mode.is_split_prefill():
            few, q_lens = 1, batch.extend_seq_lens_cpu
            q_lens = batch.extend_seq_lens.tolist() if q_lens is None else q_lens
        else:
            settings = {
                "DRAFT_EXTEND_V2": "--speculative-draft-attention-backend triton",
                "DLLM_EXTEND": "another --attention-backend for --dllm-algorithm",
                "SPLIT_PREFILL": "no --enable-pdmux",
            }
            raise NotImplementedError(f"attnc serves no {mode.name}: set {settings.get(mode.name, 'another backend')}")
        starts = torch.tensor([0, *itertools.accumulate(q_lens)], dtype=torch.int32)
        on_device = starts.to(self.device, non_blocking=True)
        return AttncMetadata(_Batch(on_device, starts, lengths, table), few, tree)

    def _tree(self, spec_info, lengths):
        """Returns which drafts see which, bool [requests, drafts, drafts]; None: SGLang tells none. Its mask has a row for each
        draft, of all positions of its request, one request behind the other."""
        mask = getattr(spec_info, "custom_mask", None)
        if mask is None:
            return None
        drafts = spec_info.draft_token_num
        widths = lengths.long()
        ends = torch.cumsum(widths * drafts, 0)
        at = torch.arange(drafts, device=mask.device)
        rows = (ends - widths * drafts)[:, None] + at * widths[:, None]
        places = rows[:, :, None] + (widths - drafts)[:, None, None] + at
        return mask.view(-1)[places.clamp(max=mask.numel() - 1)].bool()

    # -------------------------------------------------------------------------------------------------------- layers

    def forward_decode(self, q, k, v, layer, forward_batch, save_kv_cache=True, sinks=None, **others):
        """Returns out [tokens, H * D] for q of that shape. Rows of q that no request has are left as they are."""
        unknown = [name for name, value in others.items() if value is not None]
        if unknown:
            raise NotImplementedError(f"attnc does not know {', '.join(unknown)} of this layer: use another backend")
        attention, mods = self._layer(layer, sinks)
        if save_kv_cache and k is not None:
            self.pool.set_kv_buffer(layer, forward_batch.out_cache_loc, k, v, layer.k_scale, layer.v_scale)
        q = q.reshape(-1, layer.tp_q_head_num, layer.qk_head_dim)
        out = q.new_empty(*q.shape[:2], layer.v_head_dim)
        pages = [
            pool.view(-1, self.page_size, *pool.shape[1:]).transpose(1, 2)
            for pool in self.pool.get_kv_buffer(layer.layer_id)
        ]
        scales = None
        if self.is_fp8:
            scales = Scales(self.one, *(self.one if x is None else x for x in (layer.k_scale, layer.v_scale)))
        metadata = self.forward_metadata
        for group in metadata.groups:
            score_mod, mask_mod = mods if self.chosen is None else self.chosen.of(group, mods)
            of_group = score_mod, metadata.mask_mod(mask_mod)
            attention.attend(group, q, *pages, out, of_group, True, scales, None if self.chosen is None else 0)
        return out.view(-1, layer.tp_q_head_num * layer.v_head_dim)

    forward_extend = forward_decode

    def _layer(self, layer, sinks):
        """Returns a layer's attention and mods."""
        made = self.layers.get(layer.layer_id)
        if made is None:
            _check_layer(layer, 16 if self.is_fp8 else 8)
            window = layer.sliding_window_size
            attention = Attention(
                layer.tp_q_head_num, layer.tp_k_head_num, layer.scaling,
                None if window is None or window < 0 else window + 1,  # which SGLang counts without the query
                layer.logit_cap or None,
            )  # fmt: skip
            mods = (None, None) if self.mods_of is None else self.mods_of(layer.layer_id)
            made = self.layers[layer.layer_id] = attention, mods
        made[0].sinks = sinks
        return made


def _check(runner, pool):
    """Raises NotImplementedError for a model or a cache that attnc does not serve."""
    model, layout = runner.model_config, getattr(pool, "kv_cache_layout", "nhd")
    architectures = getattr(getattr(model, "hf_config", None), "architectures", None) or []
    is_quantised = getattr(pool, "is_quantized_kv_cache", False) or pool.dtype not in (torch.bfloat16, torch.float16, FP8)
    sizes = ", ".join(map(str, _PAGE_SIZES))
    _refuse("attnc does not serve {}", {
        "images whose tokens see one another: set another --attention-backend":
            "Gemma3ForConditionalGeneration" in architectures,
        "latent attention: set another --attention-backend": runner.use_mla_backend,
        "encoder-decoder models: set another --attention-backend": model.is_encoder_decoder,
        "draft models: set --speculative-draft-attention-backend triton": runner.is_draft_worker,
        f"pages of {runner.page_size} rows: set --page-size to one of {sizes}": runner.page_size not in _PAGE_SIZES,
        "a pool of its own for windows: set --disable-hybrid-swa-memory": getattr(pool, "full_kv_pool", None) is not None,
        f"caches in the layout {layout}: unset SGLANG_USE_HND_KVCACHE": layout != "nhd",
        f"caches of {pool.dtype}: set --kv-cache-dtype to auto or fp8_e4m3": is_quantised,
        "context parallel decoding: set --dcp-size 1": getattr(runner.server_args, "dcp_size", 1) > 1,
    })  # fmt: skip


def _check_layer(layer, multiple):
    """Raises NotImplementedError for a layer that attnc does not serve. `multiple`: what head dims are multiples of."""
    dims = layer.qk_head_dim, layer.v_head_dim
    _refuse("attnc does not serve layers with {}: use another backend", {
        f"head dims {dims[0]} and {dims[1]}, and needs multiples of {multiple} up to 256":
            any(dim % multiple or not 8 <= dim <= 256 for dim in dims),
        f"attn_type {layer.attn_type}, is_cross_attention {layer.is_cross_attention}":
            layer.is_cross_attention or layer.attn_type != AttentionType.DECODER,
        "use_irope": layer.use_irope,
        "xai_temperature_len": layer.xai_temperature_len > 0,
        f"pos_encoding_mode {layer.pos_encoding_mode}": layer.pos_encoding_mode != "NONE",
        f"logit_capping_method {layer.logit_capping_method}":
            layer.logit_cap and layer.logit_capping_method != "tanh",
    })  # fmt: skip


def _refuse(message, cases):
    """Raises NotImplementedError with the first of some texts that is true."""
    for what, is_so in cases.items():
        if is_so:
            raise NotImplementedError(message.format(what))


def register() -> None:
    """Makes attnc a choice of --attention-backend. SGLang calls it in each process, by the entry point."""
    from sglang.srt.arg_groups.choices import ATTENTION_BACKEND_CHOICES, add_attention_backend_choices
    from sglang.srt.layers.attention.attention_registry import register_attention_backend

    if _NAME not in ATTENTION_BACKEND_CHOICES:
        add_attention_backend_choices([_NAME])
    register_attention_backend(_NAME)(AttncBackend)
    if os.environ.get(_REQUEST_MODS):
        from sglang.srt.plugins.hook_registry import HookRegistry, HookType

        for target, hook in (
            ("sampling.sampling_params.SamplingParams.verify", _check_request),
            ("model_executor.forward_batch_info.ForwardBatch.init_new", _note_requests),
        ):  # fmt: skip
            HookRegistry.register(f"sglang.srt.{target}", hook, HookType.AFTER)
