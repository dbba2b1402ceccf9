#!/usr/bin/env python3
"""Writes captured tensors for the pictures of the library, as a safetensors file to stdout.

  captures.py       those of the masks, for 512 tokens
  captures.py MOD   those of a mod's scores
"""
import json
import math
import random
import struct
import sys

N = 512
draw = random.Random(7)


def runs(lengths, values=None):
    """A value for each token: of stretches of these lengths, as far as there are tokens."""
    values = range(len(lengths)) if values is None else values
    all_values = [value for length, value in zip(lengths, values) for _ in range(length)]
    return all_values + [all_values[-1]] * (N - len(all_values))


def shuffled(count):
    order = list(range(count))
    draw.shuffle(order)
    return order


def subtree_ends():
    """A prompt of 256 tokens, and behind it a tree of drafts, four levels deep, in depth-first order."""
    ends = [N] * 256

    def grow(depth):
        at = len(ends)
        ends.append(0)
        if depth:
            for _ in range((3, 2, 3, 4)[depth - 1]):
                grow(depth - 1)
        ends[at] = len(ends)

    while len(ends) < N:
        grow(4 if len(ends) < 456 else 2)
    return [min(end, N) for end in ends[:N]]


def chosen(heads=2, blocks=8, top_k=3):
    lists = []
    for _ in range(heads):
        for row in range(blocks):
            others = list(range(1, max(row, 1)))
            draw.shuffle(others)
            lists += sorted([0, row, *others, *others, 0, 0][:top_k])
    return lists


def hops(tokens):
    """A ring of three quarters of the nodes, and a path of the others."""
    ring = tokens * 3 // 4

    def apart(a, b):
        if (a < ring) != (b < ring):
            return -1
        distance = abs(a - b)
        return min(distance, ring - distance) if a < ring else distance
    return [min(apart(a, b), 100) for a in range(tokens) for b in range(tokens)]


DOCUMENTS = [200, 72, 150, 90]
def of_masks():
    return {
        "document_id": ("I32", [N], runs(DOCUMENTS)),
        "document": ("I32", [N], runs(DOCUMENTS)),
        "in_prefix": ("BOOL", [N], runs([90, 110, 20, 52, 64, 86, 30, 60], [1, 0, 1, 0, 1, 0, 1, 0])),
        "branch": ("I32", [N], runs([192, 100, 80, 140])),
        "subtree_end": ("I32", [N], subtree_ends()),
        "image": ("I32", [N], runs([80, 128, 60, 128, 116], [0, 1, 0, 2, 0])),
        "last_image": ("I32", [1, N], runs([40, 140, 90, 120, 60, 62], [-1, 0, 1, 2, 3, 4])),
        "rank": ("I32", [1, 128], shuffled(128)),
        "lengths": ("I32", [2], [360, 200]),
        "prefix": ("I32", [2], [200, 80]),
        "chosen": ("I32", [1, 2, 8, 3], chosen()),
        "temporal": ("BOOL", [2], [0, 1]),
        "hops": ("I8", [1, N, N], hops(N)),
    }


TOKENS, HEADS = 128, 2  # of scores


def log_forget():
    """Running sums of log(sigmoid(gate)): a token forgets little, and in each head some forget nearly all."""
    sums = []
    for head in range(HEADS):
        total = 0.0
        for token in range(TOKENS):
            total += -3.0 if token % (40 + 24 * head) == 30 else -0.02 * draw.random()
            sums.append(total)
    return sums


def bumps(head, q, kv, tokens=64):
    """A bias that is smooth in both positions."""
    near = math.exp(-((q - kv) / (6 + 8 * head)) ** 2)
    far = math.exp(-((q - tokens + kv) / 10) ** 2 - ((q - kv) / 40) ** 2)
    return 2 * near - 1.5 * far


def rotated(position, dims, first):
    """Cosine and sine of pairs from `first` on, as rope turns a vector of ones."""
    half = dims // 2
    angles = [position * 10000 ** (-pair / half) for pair in range(half)]
    return [0.0 if pair < first else turn(angle) for turn in (math.cos, math.sin) for pair, angle in enumerate(angles)]


def of_scores():
    window = range(1 - 4, 4)
    return {
        "alibi": {"slopes": ("F32", [HEADS], [2.0 ** -3, 2.0 ** -6])},
        "relative_bias": {"bias": ("F32", [HEADS, 97], [math.cos(d / (6 + 6 * h)) * math.exp(-abs(d) / 30)
                                                      for h in range(HEADS) for d in range(-48, 49)])},
        "t5_bias": {"bias": ("F32", [HEADS, 32], [(1.5 - 0.35 * (b % 16)) * (1 if b < 16 or h == 0 else 0.3)
                                                  for h in range(HEADS) for b in range(32)])},
        "kerple": {"scale": ("F32", [HEADS], [1.0, 2.5]), "rate": ("F32", [HEADS], [0.1, 1.0])},
        "forgetting": {"log_forget": ("F32", [1, HEADS, TOKENS], log_forget())},
        "learned_bias": {"bias": ("F32", [HEADS, 64, 64], [bumps(h, q, kv) for h in range(HEADS) for q in range(64)
                                                         for kv in range(64)])},
        "graph_bias": {"bias": ("F32", [1, 21], [1.5 - 0.25 * hop for hop in range(21)]),
                       "hops": ("I8", [1, TOKENS, TOKENS], hops(TOKENS))},
        "shifted_window": {"bias": ("F32", [1, 7, 7], [1.5 - 0.5 * math.hypot(y, x) + 0.2 * x for y in window for x in window])},
        "dropout": {"seed": ("I64", [], [7])},
        "learned_sink": {"sink": ("F32", [HEADS], [1.5, -0.5])},
        "scalable_softmax": {"factor": ("F32", [HEADS], [0.25, 0.6])},
        "latent_rope": {
            "query_rope": ("BF16", [1, HEADS, TOKENS, 64],
                           [x for h in range(HEADS) for q in range(TOKENS) for x in rotated(q, 64, 8 * h)]),
            "key_rope": ("BF16", [1, TOKENS, 64], [x for kv in range(TOKENS) for x in rotated(kv, 64, 0)])},
    }


CODES = {"I64": "q", "I32": "i", "I8": "b", "BOOL": "B", "F32": "f"}


def packed(dtype, values):
    if dtype == "BF16":  # the upper half of an f32, cut
        return b"".join(struct.pack("<f", value)[2:] for value in values)
    return struct.pack(f"<{len(values)}{CODES[dtype]}", *values)


def main():
    tensors = of_scores()[sys.argv[1]] if len(sys.argv) > 1 else of_masks()
    header, data = {}, b""
    for name, (dtype, shape, values) in tensors.items():
        own = packed(dtype, values)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(own)]}
        data += own
    text = json.dumps(header).encode()
    sys.stdout.buffer.write(struct.pack("<Q", len(text)) + text + data)


if __name__ == "__main__":
    main()
