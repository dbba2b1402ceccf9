#!/usr/bin/env python3
"""Times attnc as attnc.vllm calls it, next to the kernels of vLLM's Triton and FlexAttention backends, without vLLM.

  ATTNC_LIBRARY=build/libattnc.so python3 bench/vllm_times.py --vllm FOLDER --out vllm.jsonl [--only REGEX]

All get one batch: vLLM's metadata, pages of 16 rows, pools in the layout [pages, 16, HKV, 2 D]. FOLDER has vLLM's folder
`vllm`, of which only the files that bench/vllm_stubs.py names are read. Triton's kernel has no mask of trees, but an
argument for a bias of new tokens (qq_bias), which vLLM 0.33 does not use. FlexAttention's backend is timed with its own
blocks (flex_vllm) and, for prompts, with blocks of 128 (flex_vllm_128).

A decode is timed as a replayed CUDA graph, as vLLM runs it, and a prompt as calls. A result is one JSON line, in the
format of attnc-bench: `id`, `peer`, `ms`, and `gbps` of the caches' bytes or `tflops` of live pairs. `build_ms` is the
metadata's time on the host, `first_call_s` that of the first call, and `rmse` is against attention in fp64. With
--device cpu, batches are tiny and times mean nothing: FlexAttention is not compiled, and Triton needs TRITON_INTERPRET=1.
"""

import argparse
import dataclasses
import importlib
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import time
import traceback
import types

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "tools" / "python"), str(HERE)]
import torch

PAGE, PEERS = 16, ("attnc", "triton_vllm", "flex_vllm", "flex_vllm_128")
SEGMENTS = 16  # of Triton's split-KV kernel: NUM_PAR_SOFTMAX_SEGMENTS of vLLM
CHECKED_ROWS = 512  # of a request, at most
# Parents of the 8 nodes of a draft tree, in the order of the new tokens.
PARENTS = (-1, 0, 0, 1, 1, 2, 3, 5)


PREFIX, SINKS, WINDOW, PASSAGE = 600, 4, 1024, 512


def seen_by_passages(q_idx, kv_idx):
    """Retrieved passages that see themselves and the first one, and a question at each fourth place, which sees all."""
    q, kv = q_idx // PASSAGE, kv_idx // PASSAGE
    return (q_idx >= kv_idx) & ((q == kv) | (kv == 0) | (q % 4 == 3))


# Masks of users for prompts, by the definition.
MASKS = {
    "prefix": lambda q_idx, kv_idx: (q_idx >= kv_idx) | (kv_idx < PREFIX),
    "sinks": lambda q_idx, kv_idx: (q_idx >= kv_idx) & ((kv_idx < SINKS) | (q_idx - kv_idx < WINDOW)),
    "passages": seen_by_passages,
}


@dataclasses.dataclass(frozen=True)
class Case:
    kind: str  # decode or prefill
    variant: str  # causal, tree8, images, or one of MASKS; and _fp8 if the cache is
    requests: int
    q_len: int
    length: int
    heads: int = 32
    kv_heads: int = 8
    head_dim: int = 128

    @property
    def id(self):
        return (
            f"{self.kind}-{self.variant}-b{self.requests}h{self.heads}k{self.kv_heads}-q{self.q_len}k{self.length}"
            f"-d{self.head_dim}-p{PAGE}"
        )

    @property
    def is_fp8(self):
        return self.variant.endswith("_fp8")

    @property
    def is_tree(self):
        return self.variant.startswith("tree8")

    def images(self):
        """Returns first and last position of each image of a request: 576 of 1024 tokens."""
        if self.variant != "images":
            return []
        period = min(1024, self.length // 2)
        size = period * 9 // 16
        return [(at, at + size - 1) for at in range(period // 8, self.length - size, period)]

    def flops(self):
        before = self.length - self.q_len
        pairs = self.q_len * before + self.q_len * (self.q_len + 1) // 2
        if self.variant in MASKS:
            at = torch.arange(self.length)
            live = MASKS[self.variant]
            pairs = sum(int(live(at[i : i + 512, None], at[None]).sum()) for i in range(before, self.length, 512))
        pairs += sum((end - start) * (end - start + 1) // 2 for start, end in self.images())
        return 4 * self.requests * self.heads * self.head_dim * pairs

    def cache_bytes(self):
        return 2 * self.requests * self.length * self.kv_heads * self.head_dim * (1 if self.is_fp8 else 2)


def cases(is_tiny):
    full = [
        Case("decode", "tree8", 16, 8, 4096),
        Case("decode", "tree8", 64, 8, 4096),
        Case("prefill", "images", 4, 4096, 4096),
        Case("decode", "tree8", 16, 8, 16384),
        Case("decode", "tree8", 64, 8, 16384),
        Case("decode", "tree8", 4, 8, 16384),
        Case("decode", "causal", 64, 1, 4096),
        Case("decode", "tree8_fp8", 64, 8, 4096),
        Case("decode", "causal_fp8", 64, 1, 4096),
        Case("prefill", "images", 16, 1024, 1024),
        Case("prefill", "causal_fp8", 4, 4096, 4096),
        *(
            Case("prefill", mask, requests, q_len, length)
            for mask in ("causal", *MASKS)
            for requests, q_len, length in ((4, 4096, 4096), (1, 2048, 16384), (16, 512, 1024))
        ),
    ]
    if not is_tiny:
        return full
    tiny = {
        (case.kind, case.variant): dataclasses.replace(
            case, requests=3, q_len=min(case.q_len, 64), length=90 if case.kind == "decode" else 64, heads=4, kv_heads=2,
            head_dim=32,
        )
        for case in full
    }  # fmt: skip
    return list(tiny.values())


class Batch:
    """The tensors of a batch and its metadata, as vLLM's CommonAttentionMetadata has them."""

    causal = True
    rswa_prefix_lens = None

    def __init__(self, case, device):
        torch.manual_seed(1)
        self.case, self.num_reqs, self.max_query_len, self.max_seq_len = case, case.requests, case.q_len, case.length
        pages_of = -(-case.length // PAGE)
        self.pages = 1 + case.requests * pages_of  # page 0 belongs to nobody
        self.num_actual_tokens = case.requests * case.q_len
        dtype = torch.bfloat16 if device == "cuda" else torch.float16  # Triton's interpreter has no bfloat16
        draw = lambda *shape: torch.randn(*shape, device=device, dtype=dtype)
        cache = draw(self.pages, PAGE, case.kv_heads, 2 * case.head_dim)
        self.k_scale, self.v_scale, self.q_scale = (torch.tensor(x, device=device) for x in (0.25, 0.5, 1.0))
        if case.is_fp8:
            k, v = cache.split(case.head_dim, dim=-1)
            cache = torch.cat([(k / self.k_scale).to(torch.float8_e4m3fn), (v / self.v_scale).to(torch.float8_e4m3fn)], -1)
        self.cache = cache.transpose(1, 2)  # [pages, HKV, PAGE, 2 D]
        self.q = draw(self.num_actual_tokens, case.heads, case.head_dim)
        self.out = torch.full_like(self.q, torch.nan)
        order = torch.randperm(self.pages - 1, device=device).int() + 1
        self.block_table_tensor = order.view(case.requests, pages_of)
        starts = torch.arange(case.requests + 1, dtype=torch.int32) * case.q_len
        self.query_start_loc, self.query_start_loc_cpu = starts.to(device), starts
        self.seq_lens_cpu_upper_bound = torch.full((case.requests,), case.length, dtype=torch.int32)
        self.seq_lens = self.seq_lens_cpu_upper_bound.to(device)
        self.slot_mapping = None  # new rows are in the pages already
        images = case.images()
        self.mm_req_doc_ranges = {request: images for request in range(case.requests)} if images else None
        allowed = torch.zeros(len(PARENTS), len(PARENTS), dtype=torch.bool)
        for node, parent in enumerate(PARENTS):
            allowed[node] = allowed[parent] if parent >= 0 else False
            allowed[node, node] = True
        self.allowed = allowed.to(device)

    def compute_num_computed_tokens(self):
        return self.seq_lens - (self.query_start_loc[1:] - self.query_start_loc[:-1])

    def rows_of(self, request):
        """Returns k and v of a request, f64 [HKV, length, D]."""
        pages = self.cache[self.block_table_tensor[request].long()].double().transpose(0, 1)
        k, v = pages.reshape(self.case.kv_heads, -1, 2 * self.case.head_dim)[:, : self.case.length].split(
            self.case.head_dim, dim=-1
        )
        return (k * self.k_scale, v * self.v_scale) if self.case.is_fp8 else (k, v)

    def live(self, q_idx, kv_idx):
        """Returns the mask of a request by the definition."""
        mask = MASKS.get(self.case.variant, lambda q_idx, kv_idx: q_idx >= kv_idx)(q_idx, kv_idx)
        if self.case.is_tree:
            first = self.case.length - len(PARENTS)
            inside = self.allowed[(q_idx - first).clamp(min=0), (kv_idx - first).clamp(min=0)]
            mask = mask & ((kv_idx < first) | inside)
        for start, end in self.case.images():
            mask = mask | (start <= q_idx) & (q_idx <= end) & (start <= kv_idx) & (kv_idx <= end)
        return mask

    def rmse(self):
        """Returns the error of out against fp64, over the first and the last request, and the norm of what is right."""
        case, off, norm, count = self.case, 0.0, 0.0, 0
        for request in {0, case.requests - 1}:
            k, v = self.rows_of(request)
            for first in {0, max(0, case.q_len - CHECKED_ROWS)}:
                rows = slice(request * case.q_len + first, request * case.q_len + min(case.q_len, first + CHECKED_ROWS))
                q, out = (x[rows].double().transpose(0, 1) for x in (self.q, self.out))
                at = torch.arange(case.length, device=q.device)
                q_idx = at[case.length - case.q_len + first :][: q.shape[1], None]
                live = self.live(q_idx, at[None])
                for h in {0, case.heads // 2, case.heads - 1}:
                    group = h * case.kv_heads // case.heads
                    scores = (q[h] @ k[group].T * case.head_dim**-0.5).masked_fill(~live, -torch.inf)
                    right = scores.softmax(-1) @ v[group]
                    off += float((out[h] - right).square().sum())
                    norm, count = norm + float(right.square().sum()), count + right.numel()
        return (off / count) ** 0.5, (norm / count) ** 0.5


# ------------------------------------------------------------------------------------------------------------ peers


def attnc_peer(batch):
    """Returns functions: one that builds metadata, and one that computes by it."""
    from attnc.torch.serving import FP8, Attention, Scales, groups_of

    case, lengths, allowed = batch.case, batch.seq_lens, batch.allowed
    layer = Attention(case.heads, case.kv_heads, case.head_dim**-0.5)
    k, v = batch.cache.split(case.head_dim, dim=-1)
    scales = Scales(batch.q_scale, batch.k_scale, batch.v_scale) if case.is_fp8 else None
    assert (k.dtype == FP8) == case.is_fp8

    def tree(b, h, q_idx, kv_idx):
        first = lengths[b] - len(PARENTS)
        return (q_idx >= kv_idx) & ((kv_idx < first) | allowed[q_idx - first, (kv_idx - first).clamp(min=0)])

    mods = None, tree if case.is_tree else mask_of_user(batch)

    def run(groups):
        for group in groups:
            layer.attend(group, batch.q, k, v, batch.out, mods, True, scales)

    return lambda: groups_of(batch, len(PARENTS)), run


def mask_of_user(batch):
    """Returns the mask_mod of a case of MASKS, with tensors that tell what the definition computes; None for others."""
    at = torch.arange(batch.case.length, device=batch.q.device)
    of_request, passage = torch.full((batch.case.requests,), PREFIX, device=at.device, dtype=torch.int32), (at // PASSAGE).int()

    def passages(b, h, q_idx, kv_idx):
        q, kv = passage[q_idx], passage[kv_idx]
        return (q_idx >= kv_idx) & ((q == kv) | (kv == 0) | (q % 4 == 3))

    masks = {
        "prefix": lambda b, h, q_idx, kv_idx: (q_idx >= kv_idx) | (kv_idx < of_request[b]),
        "sinks": lambda b, h, q_idx, kv_idx: MASKS["sinks"](q_idx, kv_idx),
        "passages": passages,
    }
    return masks.get(batch.case.variant)


def triton_peer(batch):
    """As vLLM's TritonAttentionImpl.forward calls it."""
    from vllm.v1.attention.ops.triton_unified_attention import MAX_3D_QUERY_LEN, KVQuantMode, unified_attention

    case, device = batch.case, batch.q.device
    k, v = batch.cache.transpose(1, 2).split(case.head_dim, dim=-1)  # [pages, PAGE, HKV, D]
    threshold = 128 // case.kv_heads  # MIN_LAUNCH_GRID_SIZE_2D of vLLM
    scratch = [
        torch.empty(threshold * MAX_3D_QUERY_LEN, case.heads, SEGMENTS, *width, device=device)
        for width in ((case.head_dim,), (), ())
    ]
    bias = None
    if case.is_tree:
        bias = torch.zeros(batch.allowed.shape, device=device).masked_fill_(~batch.allowed, -torch.inf)
    scales = [of.expand(case.requests, case.kv_heads) for of in (batch.k_scale, batch.v_scale)]

    def build():
        if batch.mm_req_doc_ranges is None:
            return None
        # As compute_mm_prefix_range_tensor of vLLM: i32 [requests, ranges, 2]
        return torch.tensor([batch.mm_req_doc_ranges[i] for i in range(case.requests)], dtype=torch.int32).to(device)

    def run(ranges):
        unified_attention(
            q=batch.q, k=k, v=v, out=batch.out, cu_seqlens_q=batch.query_start_loc, max_seqlen_q=batch.max_query_len,
            seqused_k=batch.seq_lens, max_seqlen_k=batch.max_seq_len, softmax_scale=case.head_dim**-0.5, causal=True,
            window_size=(-1, -1), block_table=batch.block_table_tensor, softcap=0, q_descale=None, k_descale=scales[0],
            v_descale=scales[1], seq_threshold_3D=threshold, num_par_softmax_segments=SEGMENTS,
            softmax_segm_output=scratch[0], softmax_segm_max=scratch[1], softmax_segm_expsum=scratch[2], qq_bias=bias,
            mm_prefix_range=ranges,
            kv_quant_mode=KVQuantMode.FP8_PER_TENSOR if case.is_fp8 else KVQuantMode.NONE,
        )  # fmt: skip

    return build, run


def flex_peer(batch, block=None):
    """vLLM's FlexAttention backend. `block`: rows and columns of its blocks, instead of 16."""
    flex = importlib.import_module("vllm.v1.attention.backends.flex_attention")
    case, device = batch.case, batch.q.device
    if case.is_fp8:
        return None  # which it refuses
    if device.type == "cpu":
        flex.flex_attention_compiled, flex.create_block_mask_compiled = flex.flex_attention, flex.create_block_mask
    layer = types.SimpleNamespace()
    if case.variant in MASKS:
        layer.logical_mask_mod = mask_of_user(batch)
    if case.is_tree:
        # It cannot tell the request: this mask is that of equal lengths only.
        first, allowed = case.length - len(PARENTS), batch.allowed

        def tree(b, h, q_idx, kv_idx):
            inside = allowed[(q_idx - first).clamp(0, len(PARENTS) - 1), (kv_idx - first).clamp(0, len(PARENTS) - 1)]
            return (q_idx >= kv_idx) & ((kv_idx < first) | inside)

        layer.logical_mask_mod = tree
    space = types.SimpleNamespace
    config = space(
        model_config=space(
            get_num_attention_heads=lambda _: case.heads, get_num_kv_heads=lambda _: case.kv_heads,
            get_head_size=lambda: case.head_dim, max_model_len=case.length, rswa_window=None,
        ),
        parallel_config=None, cache_config=space(num_gpu_blocks=batch.pages),
        scheduler_config=space(max_num_seqs=case.requests, max_num_batched_tokens=batch.num_actual_tokens),
        attention_config=space(
            flex_attn_q_block_size=block, flex_attn_kv_block_size=block, flex_attn_block_m=None, flex_attn_block_n=None
        ),
        compilation_config=space(
            cudagraph_mode=space(has_full_cudagraphs=lambda: True), static_forward_context={"layer": layer}
        ),
    )  # fmt: skip
    made = flex.FlexAttentionMetadataBuilder(space(block_size=PAGE), ["layer"], config, device)
    impl = flex.FlexAttentionImpl(
        case.heads, case.head_dim, case.head_dim**-0.5, case.kv_heads, None, None, "auto"
    )

    def run(metadata):
        impl.forward(layer, batch.q, None, None, batch.cache, metadata, batch.out)

    return lambda: made.build(0, batch), run


def peer_of(name, batch):
    """Returns (build, run), or None if the peer refuses the case."""
    if name == "triton_vllm" and batch.case.variant in MASKS:
        return None  # which it has not
    if name == "flex_vllm_128":
        return flex_peer(batch, 128) if batch.case.kind == "prefill" else None
    return {"attnc": attnc_peer, "triton_vllm": triton_peer, "flex_vllm": flex_peer}[name](batch)


# ------------------------------------------------------------------------------------------------------------ times


def median_ms(run, repetitions=30, warm_up=5):
    """Returns milliseconds by device events around each run. Nothing is left in the L2 cache before it."""
    times, flushed = [], torch.empty(64 << 20, dtype=torch.int32, device="cuda")
    for step in range(warm_up + repetitions):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        flushed.zero_()
        start.record()
        run()
        end.record()
        torch.cuda.synchronize()
        if step >= warm_up:
            times.append(start.elapsed_time(end))
    return sorted(times)[len(times) // 2]


def graph_of(run):
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph


def measure(name, case, device):
    """Returns the lines of a peer and a case."""
    batch = Batch(case, device)
    peer = peer_of(name, batch)
    if peer is None:
        return
    build, run = peer
    synchronise = torch.cuda.synchronize if device == "cuda" else lambda: None

    def seconds(function):
        synchronise()
        start = time.perf_counter()
        result = function()
        synchronise()
        return time.perf_counter() - start, result

    _, metadata = seconds(build)
    first_call_s, _ = seconds(lambda: run(metadata))
    error, norm = batch.rmse()
    about = {"id": case.id, "peer": name}
    yield {**about, "rmse": {"out": error}, "norm": norm}
    if not error < 0.1 * norm:
        yield {**about, "error": f"out is off by {error / norm:.2g} of its norm"}
        return
    builds, again = zip(*(seconds(build) for _ in range(5)))
    metadata = again[-1]  # of the persistent tensors
    if device != "cuda":
        ms = seconds(lambda: run(metadata))[0] * 1e3
    elif case.kind == "decode":
        eager_ms = median_ms(lambda: run(metadata))
        graph = graph_of(lambda: run(metadata))
        batch.out.fill_(torch.nan)
        ms = median_ms(graph.replay)
        about["eager_ms"] = round(eager_ms, 5)
        error, norm = batch.rmse()
        if not error < 0.1 * norm:
            yield {**about, "error": f"out of the graph is off by {error / norm:.2g} of its norm"}
            return
    else:
        ms = median_ms(lambda: run(metadata))
    about |= {"ms": round(ms, 5), "first_call_s": round(first_call_s, 2), "build_ms": round(min(builds) * 1e3, 3)}
    if case.kind == "decode":
        yield {**about, "gbps": round(case.cache_bytes() / ms / 1e6, 1)}
    else:
        yield {**about, "tflops": round(case.flops() / ms / 1e9, 1)}


def serve(options):
    """Measures one peer, in a process of its own."""
    if options.peer != "attnc":
        import vllm_stubs

        vllm_stubs.install(options.vllm)
    for case in cases(options.device == "cpu"):
        if not re.search(options.only, case.id):
            continue
        try:
            lines = list(measure(options.peer, case, options.device))
        except Exception as error:  # of any kind: the other cases go on
            traceback.print_exc()
            text = str(error).splitlines()[0] if str(error) else ""
            lines = [{"id": case.id, "peer": options.peer, "error": f"{type(error).__name__}: {text}"[:300]}]
        with open(options.out, "a", encoding="utf-8") as file:
            for line in lines:
                print(json.dumps(line), flush=True)
                file.write(json.dumps(line) + "\n")
        torch._dynamo.reset()
        if options.device == "cuda":
            torch.cuda.empty_cache()


def folder_of_vllm():
    spec = importlib.util.find_spec("vllm")
    return pathlib.Path(spec.origin).parents[1] if spec and spec.origin else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vllm", type=pathlib.Path, default=folder_of_vllm(), help="default: that of this Python")
    parser.add_argument("--out", default="vllm.jsonl")
    parser.add_argument("--only", default="", help="a regular expression that ids must match")
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--total", type=int, default=150, help="seconds of a peer")
    parser.add_argument("--peer", choices=PEERS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    peers = [options.peer] if options.peer else options.peers.split(",")
    if peers != ["attnc"] and options.vllm is None:
        parser.error("--vllm is needed, as vllm is not installed")
    if options.peer:
        serve(options)
        return
    if options.device == "cuda":
        about = {"torch": torch.__version__, "date": time.strftime("%Y-%m-%d")}
        ceilings = {"id": "ceilings", "peer": torch.cuda.get_device_name(), **about}
        with open(options.out, "a", encoding="utf-8") as file:
            file.write(json.dumps(ceilings) + "\n")
    passed = ["--only", options.only, "--device", options.device, "--out", options.out]
    if options.vllm:
        passed += ["--vllm", str(options.vllm)]
    for peer in peers:
        try:
            command = [sys.executable, __file__, "--peer", peer, *passed]
            subprocess.run(command, timeout=options.total, check=False, env=os.environ)
        except subprocess.TimeoutExpired:
            print(f"{peer}: stopped after {options.total} s", flush=True)


if __name__ == "__main__":
    main()
