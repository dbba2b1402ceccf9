"""Cases of speed.py and papers/, those of speed.py in the order of their importance: shapes, pairs and FLOPs, and mods as FlexAttention's users write them.

Ids are those of cases.json files. Makes no operands, and needs torch only for mods.
"""

import dataclasses

D64, D128, D256 = (2, 32, 32, 8192, 64, 64), (2, 16, 16, 8192, 128, 128), (2, 8, 8, 8192, 256, 256)
LATENT = (2, 16, 16, 8192, 192, 128)
WINDOW, PREFIX, CAP = 1024, 1024, 30.0
SHORT = 512
BYTES = {"bf16": 2, "fp16": 2, "e4m3": 1}
DOCUMENTS = {8192: (295, 3850, 2955, 603, 489), 16384: (295, 3850, 2955, 603, 1400, 1222, 2159, 3183, 201, 58, 458)}
FREQUENT, OTHERS = ("causal", "noop", "document", "packed", "sliding_window"), ("alibi", "softcap", "prefix_lm")

# (variants, (batch, heads, kv_heads, length, head dim, head dim of v)); "packed": documents as a ragged batch
ROWS = [
    (FREQUENT, D128),
    (FREQUENT, D64),
    (OTHERS, D128),
    (("causal",), D256),
    (("causal",), LATENT),
    (("causal", "noop"), (2, 64, 8, 8192, 128, 128)),
    (("causal",), (32, 16, 16, 512, 128, 128)),
    (("causal",), (8, 16, 16, 2048, 128, 128)),
    (("causal",), (1, 32, 2, 16384, 256, 256)),
    (("sliding_window_128",), (2, 64, 8, 8192, 64, 64)),
    (("noop",), (1, 32, 32, 13312, 128, 128)),
    (OTHERS, D64),
    (("noop",), D256),
    (("noop",), LATENT),
    (("causal",), (16, 16, 16, 1024, 128, 128)),
    (("causal",), (4, 16, 16, 4096, 128, 128)),
    ((*FREQUENT, *OTHERS), (4, 16, 16, 16384, 64, 64)),
    (("causal", "sliding_window", "alibi"), (2, 16, 2, 8192, 128, 128)),
    (("causal", "sliding_window", "alibi"), (2, 32, 4, 8192, 64, 64)),
    ((*FREQUENT[2:], *OTHERS), D256),
    ((*FREQUENT[2:], *OTHERS), LATENT),
]


@dataclasses.dataclass(frozen=True)
class Workload:
    """A case. If it is packed, all sequences of the batch are one, whose documents are those of a ragged batch. `length`
    is that of keys; a decode case has one query, at the last position. `page`: rows of a page of k and v; 0: contiguous. The
    variant "latent" is causal, and v is the first columns of k: peers get k twice."""

    kind: str
    variant: str
    batch: int
    heads: int
    kv_heads: int
    length: int
    width: int
    width_v: int
    window: int = WINDOW
    is_packed: bool = False
    dtype: str = "bf16"
    page: int = 0

    @property
    def id(self):
        sizes = f"b{self.batch}h{self.heads}k{self.kv_heads}-q{self.q_length}k{self.length}-d{self.width}"
        rest = (f"-v{self.width_v}" if self.width_v != self.width else "") + ("-packed" if self.is_packed else "")
        rest += (f"-{self.dtype}" if self.dtype != "bf16" else "") + (f"-p{self.page}" if self.page else "")
        return f"{self.kind}-{self.variant}-{sizes}{rest}"

    @property
    def q_length(self):
        return 1 if self.kind == "decode" else self.length

    @property
    def is_short(self):
        """Whether the host may take longer for a call than the GPU."""
        return self.kind == "decode" or self.kind == "forward" and self.length <= SHORT

    @property
    def is_latent(self):
        return self.variant == "latent"

    def sequences(self):
        """Returns the number of sequences of the operands, and their length."""
        return (1, self.batch * self.length) if self.is_packed else (self.batch, self.length)

    def documents(self):
        """Returns the lengths of the documents of a sequence."""
        return DOCUMENTS[self.length] * (self.batch if self.is_packed else 1)

    def pairs(self):
        """Returns the unmasked pairs of all sequences and heads."""
        causal = lambda n: n * (n + 1) // 2
        sequences, length = self.sequences()
        if self.kind == "decode":
            found = min(length, self.window + 1) if self.variant == "sliding_window" else length
        elif self.variant == "noop":
            found = length * length
        elif self.variant == "sliding_window":
            found = causal(length) - causal(max(0, length - self.window - 1))
        elif self.variant == "prefix_lm":
            found = causal(length) + causal(PREFIX - 1)
        elif self.variant == "document":
            found = sum(map(causal, self.documents()))
        else:
            found = causal(length)
        return found * sequences * self.heads

    def flops(self):
        """Returns the FLOPs of unmasked pairs: forward two products, backward five."""
        columns = 3 * self.width + 2 * self.width_v if self.kind == "backward" else self.width + self.width_v
        return 2 * self.pairs() * columns

    def rate(self, ms):
        """Returns {unit: figure} of a time: bytes of k and v that live in decode cases, otherwise FLOPs."""
        if self.kind == "decode":
            columns = self.width + (0 if self.is_latent else self.width_v)
            size = self.pairs() // self.heads * self.kv_heads * columns * BYTES[self.dtype]
            return {"gbps": float(f"{size / ms / 1e6:.5g}")}
        return {"tflops": float(f"{self.flops() / ms / 1e9:.5g}")}

    def mods(self, device):
        """Returns (score_mod, mask_mod); None: no such function. They see the position of a query that decodes."""
        score_mod, mask_mod = self.mods_of_positions(device)
        if self.kind != "decode":
            return score_mod, mask_mod
        last = self.length - 1
        return (
            score_mod and (lambda score, b, h, q, k: score_mod(score, b, h, q + last, k)),
            mask_mod and (lambda b, h, q, k: mask_mod(b, h, q + last, k)),
        )

    def mods_of_positions(self, device):
        causal = lambda b, h, q, k: q >= k
        if self.variant == "noop":
            return None, None
        if self.variant == "alibi":
            slopes = alibi_slopes(self.heads, device)
            return (lambda score, b, h, q, k: score + slopes[h] * (k - q)), causal
        if self.variant == "softcap":
            import torch

            return (lambda score, b, h, q, k: CAP * torch.tanh(score / CAP)), causal
        if self.variant == "sliding_window":
            window = self.window
            return None, lambda b, h, q, k: (q >= k) & (q - k <= window)
        if self.variant == "prefix_lm":
            return None, lambda b, h, q, k: (k < PREFIX) | (q >= k)
        if self.variant == "document":
            ids = self.document_ids(device)
            return None, lambda b, h, q, k: (ids[q] == ids[k]) & (q >= k)
        return None, causal

    def document_ids(self, device):
        import torch

        lengths = torch.tensor(self.documents(), device=device)
        return torch.repeat_interleave(torch.arange(len(lengths), device=device, dtype=torch.int32), lengths)

    def cu_seqlens(self, device):
        import torch

        ends = torch.tensor((0, *self.documents()), device=device).cumsum(0)
        return ends.to(torch.int32)


def alibi_slopes(heads, device):
    import torch

    return torch.exp2(-8.0 * (torch.arange(heads, device=device) + 1) / heads)


def workloads():
    """Returns all cases, the most important first."""
    found = []
    for variants, shape in ROWS:
        for variant in variants:
            more = {}
            if variant == "packed":
                variant, more = "document", {"is_packed": True}
            elif variant == "sliding_window_128":
                variant, more = "sliding_window", {"window": 128}
            found += [Workload(kind, variant, *shape, **more) for kind in ("forward", "backward")]
    return found
