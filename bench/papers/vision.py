#!/usr/bin/env python3
"""Tables 5 to 8 of Faster Neighborhood Attention (arXiv:2403.04690): models of images whose attention is neighborhoods.

  ATTNC_LIBRARY=libattnc.so python3 bench/papers/vision.py --out FILE.jsonl --seconds 200

classify: a forward pass of NAT, DiNAT (arXiv:2209.15001) and DiNAT_s, 128 images of 224 x 224. train: a step of them, forward,
backward and AdamW. generate: the synthesis network of StyleNAT (arXiv:2211.05770) for 256 x 256, 8 images, also in fp32 as in the
paper. All others in bf16, with random weights, windows of 7 x 7 and heads of 32; without positional biases, layer scale and stochastic depth. Attention is
attnc.natten's, NATTEN's, or PyTorch's over all tokens, which is another function; "none" returns the values, so what it takes
is the rest of the model. NATTEN needs kernels for heads of 32: build_natten.py --head-dims 32. --attentions: only these of attnc,
natten, self_attention and none.
"""

import argparse
import contextlib
import dataclasses
import time
import types

import common
from common import Section, peers, speed
from report import OURS, peer_name, table

NAME = "vision"
WINDOW, HEAD = 7, 32
NONE, SELF = "none", "self_attention"


@dataclasses.dataclass(frozen=True)
class Shape:
    """A pyramid of four levels: blocks of each, columns and heads of the first, columns of a block's MLP for each of its
    input; whether every second block is dilated; whether pixels become tokens by patches of 4 x 4."""

    depths: tuple
    columns: int
    ratio: int
    is_dilated: bool = False
    is_patched: bool = False


DEEP = (3, 4, 18, 5)
MODELS = {
    "nat_tiny": Shape(DEEP, 64, 3), "nat_small": Shape(DEEP, 96, 2), "nat_base": Shape(DEEP, 128, 2),
    "dinat_tiny": Shape(DEEP, 64, 3, True), "dinat_small": Shape(DEEP, 96, 2, True), "dinat_base": Shape(DEEP, 128, 2, True),
    "dinats_tiny": Shape((2, 2, 6, 2), 96, 4, True, True), "dinats_small": Shape((2, 2, 18, 2), 96, 4, True, True),
    "dinats_base": Shape((2, 2, 18, 2), 128, 4, True, True),
}  # fmt: skip
LEVELS = {8: 512, 16: 512, 32: 512, 64: 512, 128: 256, 256: 128}  # columns of StyleNAT's image by its side
STYLE = 512


@dataclasses.dataclass(frozen=True)
class Model:
    """A case of speed.run()."""

    kind: str
    variant: str
    batch: int
    side: int = 224
    levels: tuple = tuple(LEVELS)
    columns: int = 0  # 0: those of MODELS and LEVELS
    dtype: str = "bf16"

    @property
    def id(self):
        return f"{self.kind}-{self.variant}-b{self.batch}-{self.side}x{self.side}" + ("-fp32" if self.dtype == "fp32" else "")

    def rate(self, ms):
        return {"images_per_s": float(f"{1000 * self.batch / ms:.5g}")}

    def tiny(self):
        return dataclasses.replace(self, batch=1, side=32 if self.kind != "generate" else 16, levels=(8, 16), columns=32)


CLASSIFY = tuple(Model("classify", name, 128) for name in MODELS)
TRAIN = tuple(Model("train", name, 128) for name in MODELS)
GENERATE = tuple(Model("generate", "stylenat", 8, 256, dtype=dtype) for dtype in ("bf16", "fp32"))


class Attention:
    """What all blocks of a model call: (q, k, v, window, dilation) -> out, all [B, X, Y, H, D]."""

    def __init__(self):
        self.function = None

    def __call__(self, *operands):
        return self.function(*operands)


def blocks(attention):
    """Returns the classes of modules that the models are made of. Images are [B, X, Y, C]."""
    import torch
    from torch import nn

    def neighborhoods(qkv, dilations):
        """Attention of [B, X, Y, C] three times: heads in as many equal parts as there are dilations."""
        q, k, v = (x.unflatten(-1, (-1, HEAD)) for x in qkv.chunk(3, -1))
        parts = zip(*(x.chunk(len(dilations), 3) for x in (q, k, v)), dilations)
        return torch.cat([attention(*part) for part in parts], 3).flatten(3)

    class Block(nn.Module):
        def __init__(self, columns, ratio, *dilations):
            super().__init__()
            self.dilations = dilations
            self.before, self.behind = nn.LayerNorm(columns), nn.LayerNorm(columns)
            self.qkv, self.out = nn.Linear(columns, 3 * columns), nn.Linear(columns, columns)
            self.mlp = nn.Sequential(nn.Linear(columns, ratio * columns), nn.GELU(), nn.Linear(ratio * columns, columns))

        def forward(self, x):
            x = x + self.out(neighborhoods(self.qkv(self.before(x)), self.dilations))
            return x + self.mlp(self.behind(x))

    class Convolution(nn.Module):
        """Of sides and columns; `size` of its kernel."""

        def __init__(self, of, to, size, stride):
            super().__init__()
            self.convolution = nn.Conv2d(of, to, size, stride, 1 if size == 3 else 0)

        def forward(self, x):
            return self.convolution(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)

    class Classifier(nn.Module):
        def __init__(self, shape, columns, side):
            super().__init__()
            half, layers = columns // 2, []
            layers += [Convolution(3, columns, 4, 4)] if shape.is_patched else [Convolution(3, half, 3, 2), Convolution(half, columns, 3, 2)]
            side //= 4
            for level, depth in enumerate(shape.depths):
                layers += [nn.LayerNorm(columns)] if level == 0 else []
                for at in range(depth):
                    layers.append(Block(columns, shape.ratio, max(1, side // WINDOW) if shape.is_dilated and at % 2 else 1))
                if level + 1 < len(shape.depths):
                    size = 2 if shape.is_patched else 3
                    layers += [Convolution(columns, 2 * columns, size, 2), nn.LayerNorm(2 * columns)]
                    columns, side = 2 * columns, side // 2
            self.layers, self.norm, self.head = nn.Sequential(*layers), nn.LayerNorm(columns), nn.Linear(columns, 1000)

        def forward(self, image):
            return self.head(self.norm(self.layers(image)).mean((1, 2)))

    class Styled(nn.Module):
        """Instance norm, scaled and shifted by the style."""

        def __init__(self, columns):
            super().__init__()
            self.of_style = nn.Linear(STYLE, 2 * columns)

        def forward(self, x, style):
            scale, shift = self.of_style(style)[:, None, None].chunk(2, -1)
            centred = x - x.mean((1, 2), keepdim=True)
            return centred * (centred.square().mean((1, 2), keepdim=True) + 1e-6).rsqrt() * (1 + scale) + shift

    class StyledBlock(Block):
        """Half of its heads are dilated as far as the image allows."""

        def __init__(self, columns, side):
            super().__init__(columns, 4, 1, max(1, side // WINDOW))
            self.before, self.behind = Styled(columns), Styled(columns)

        def forward(self, x, style):
            x = x + self.out(neighborhoods(self.qkv(self.before(x, style)), self.dilations))
            return x + self.mlp(self.behind(x, style))

    class Generator(nn.Module):
        def __init__(self, levels, columns_of):
            super().__init__()
            self.first = nn.Parameter(torch.randn(1, levels[0], levels[0], columns_of(levels[0])))
            self.widths = nn.ModuleList()
            self.levels = nn.ModuleList()
            self.images = nn.ModuleList()
            for side, before in zip(levels, (levels[0], *levels)):
                columns = columns_of(side)
                self.widths.append(nn.Linear(columns_of(before), columns))
                self.levels.append(nn.ModuleList([StyledBlock(columns, side) for _ in range(2)]))
                self.images.append(nn.Linear(columns, 3))

        def forward(self, style):
            double = lambda x: nn.functional.interpolate(x.permute(0, 3, 1, 2), scale_factor=2, mode="bilinear").permute(0, 2, 3, 1)
            x, image = self.first.expand(len(style), -1, -1, -1), None
            for width, level, to_image in zip(self.widths, self.levels, self.images):
                x = width(x if image is None else double(x))
                for block in level:
                    x = block(x, style)
                image = to_image(x) if image is None else double(image) + to_image(x)
            return image

    return Classifier, Generator


class Network:
    """A model of a case, and what speed.run() asks of operands."""

    def __init__(self, case, device="cuda"):
        import torch

        self.torch, self.case, self.attention = torch, case, Attention()
        torch.manual_seed(0)
        classifier, generator = blocks(self.attention)
        dtype = torch.bfloat16 if device == "cuda" and case.dtype == "bf16" else torch.float32
        draw = lambda *shape: torch.randn(shape, device=device, dtype=dtype)
        with torch.device(device):
            if case.kind == "generate":
                self.model = generator(case.levels, lambda side: 2 * case.columns or LEVELS[side])
                self.given = draw(case.batch, STYLE)
            else:
                shape = MODELS[case.variant]
                self.model = classifier(shape, case.columns or shape.columns, case.side)
                self.given = draw(case.batch, case.side, case.side, 3)
            self.labels = torch.randint(1000, (case.batch,))
        self.model.to(dtype).train(case.kind == "train")
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 1e-6, fused=device == "cuda") if case.kind == "train" else None

    def gradients(self):
        return contextlib.nullcontext() if self.optimizer else self.torch.no_grad()

    def step(self, function):
        """Returns a call of the model with this attention."""

        def call():
            self.attention.function = function
            out = self.model(self.given)
            if self.optimizer:
                self.torch.nn.functional.cross_entropy(out.float(), self.labels).backward()
                self.optimizer.step()
                self.optimizer.zero_grad(set_to_none=True)
            return out.detach()

        return call

    def release(self):
        self.model = self.optimizer = None
        if self.given.is_cuda:
            self.torch.cuda.empty_cache()


def attentions(names):
    """Returns ({peer: attention}, {peer: version}) of what can be imported."""
    import torch

    import attnc
    from attnc import natten as ours

    def self_attention(q, k, v, _):
        rows = (x.flatten(1, 2).transpose(1, 2) for x in (q, k, v))
        return torch.nn.functional.scaled_dot_product_attention(*rows).transpose(1, 2).reshape(q.shape)

    def by(na2d):
        return lambda q, k, v, dilation: na2d(q, k, v, [min(WINDOW, side) for side in q.shape[1:3]], dilation=dilation)

    functions = {OURS: by(ours.na2d)}
    versions = {OURS: f"attnc {attnc.version()}", **dict.fromkeys((NONE, SELF), f"torch {torch.__version__}")}
    def natten_or_self(na2d):  # build_natten.py builds no kernels of attention without windows
        windows = by(na2d)
        return lambda q, *rest: (self_attention if max(q.shape[1:3]) <= WINDOW else windows)(q, *rest)

    for peer in peers.found(["natten"]):
        functions[peer.NAME] = natten_or_self(peer.natten.na2d)
        versions[peer.NAME] = peer.version()
    functions |= {SELF: self_attention, NONE: lambda q, k, v, dilation: v}
    return {name: functions[name] for name in functions if not names or name in (OURS, *names)}, versions


def measure_with(functions, versions):
    """Returns what measures a case for speed.run()."""

    def measure(gpu, network, _modules, options):
        calls, lines, expected = {}, {}, None
        for name, function in functions.items():
            line = lines[name] = {"id": network.case.id, "peer": name, "version": versions[name], "how": ""}
            call = network.step(function)
            try:
                with peers.told(f"  {name}: first call"):
                    found = call().float()
            except Exception as error:
                line["error"] = peers.reason(error)
                if name == OURS:
                    return [line]
                continue
            expected = found if name == OURS else expected
            off = float((found - expected).norm() / expected.norm())
            if name not in (SELF, NONE) and not off <= 0.05:
                line["error"] = f"differs from attnc's by {off:.2f}"
            else:
                calls[name] = call
        with peers.told("  all take turns"):
            times = common.clocks.in_turns(gpu, calls, rounds=options.rounds)
        for name, ms in times.items():
            lines[name] |= {"ms": round(ms, 4), **network.case.rate(ms)}
        return list(lines.values())

    return measure


def throughput(results, section):
    """Returns the table: images a second of each, and of attnc's time what is attention."""
    found = [case for case in section.cases if results.best(case.id, OURS)]
    names = [peer for peer in results.peers if peer not in (OURS, NONE)]
    rows = []
    for case in found:
        ours, rest = (results.best(case.id, peer) for peer in (OURS, NONE))
        cells = [f"{ours['images_per_s']:.0f}", f"{100 * (1 - rest['ms'] / ours['ms']):.0f} %" if rest else ""]
        for peer in names:
            row = results.best(case.id, peer)
            cells.append(f"{row['images_per_s']:.0f} ({row['ms'] / ours['ms']:.2f})" if row else "")
        rows.append([case.variant + (", fp32" if case.dtype == "fp32" else ""), *cells])
    return table(["images a second", OURS, "of it attention", *map(peer_name, names)], rows)


SECTIONS = (Section("tables-5-6", CLASSIFY, table=throughput), Section("table-8", TRAIN, table=throughput),
            Section("table-7", GENERATE, table=throughput))  # fmt: skip


def main(arguments=None):
    own = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    own.add_argument("--attentions", nargs="+", default=())
    of, rest = own.parse_known_args(arguments)
    options = common.parsed(rest, __doc__, modules=(), burst=0.0, rounds=6)
    cases = common.cases_of(SECTIONS, options)
    if options.list:
        return print("\n".join(case.id for case in cases))
    functions, versions = attentions(of.attentions)
    gpu = common.start(options)
    options.seconds -= time.monotonic() - options.begin
    of_cpu = (lambda case: Network(case, "cpu")) if options.is_dry else Network
    known = types.SimpleNamespace(serves=lambda case: True)
    speed.run(gpu, cases, [known] * len(functions), options, of_cpu, measure_with(functions, versions))


if __name__ == "__main__":
    main()
