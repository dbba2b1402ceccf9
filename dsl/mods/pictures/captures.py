#!/usr/bin/env python3
"""Writes captured tensors for 256 tokens, for the pictures of the library, as a safetensors file to stdout."""
import json
import random
import struct
import sys

N = 256
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
    """A prompt of 128 tokens, and behind it a tree of drafts, four levels deep, in depth-first order."""
    ends = [N] * 128

    def grow(depth):
        at = len(ends)
        ends.append(0)
        if depth:
            for _ in range((3, 2, 3, 4)[depth - 1]):
                grow(depth - 1)
        ends[at] = len(ends)

    while len(ends) < N:
        grow(4 if len(ends) < 200 else 2)
    return [min(end, N) for end in ends[:N]]


def chosen(heads=2, blocks=16, top_k=4):
    lists = []
    for _ in range(heads):
        for row in range(blocks):
            others = list(range(1, max(row, 1)))
            draw.shuffle(others)
            lists += sorted([0, row, *others, *others, 0, 0][:top_k])
    return lists


def hops():
    """A ring of 192 nodes, and a path of 64 apart from it."""
    def apart(a, b):
        if (a < 192) != (b < 192):
            return -1
        distance = abs(a - b)
        return min(distance, 192 - distance) if a < 192 else distance
    return [min(apart(a, b), 100) for a in range(N) for b in range(N)]


DOCUMENTS = [70, 30, 90, 66]
TENSORS = {  # name: dtype, struct code, shape, values
    "document_id": ("I32", "i", [N], runs(DOCUMENTS)),
    "document": ("I32", "i", [N], runs(DOCUMENTS)),
    "in_prefix": ("BOOL", "B", [N], runs([30, 40, 10, 20, 40, 50, 20, 46], [1, 0, 1, 0, 1, 0, 1, 0])),
    "branch": ("I32", "i", [N], runs([96, 50, 40, 70])),
    "subtree_end": ("I32", "i", [N], subtree_ends()),
    "image": ("I32", "i", [N], runs([40, 64, 30, 64, 58], [0, 1, 0, 2, 0])),
    "last_image": ("I32", "i", [1, N], runs([20, 70, 90, 40, 36], [-1, 0, 1, 2, 3])),
    "rank": ("I32", "i", [1, 128], shuffled(128)),
    "lengths": ("I32", "i", [2], [180, 100]),
    "prefix": ("I32", "i", [2], [100, 40]),
    "chosen": ("I32", "i", [1, 2, 16, 4], chosen()),
    "temporal": ("BOOL", "B", [2], [0, 1]),
    "hops": ("I8", "b", [1, N, N], hops()),
}


def main():
    header, data = {}, b""
    for name, (dtype, code, shape, values) in TENSORS.items():
        packed = struct.pack(f"<{len(values)}{code}", *values)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(packed)]}
        data += packed
    text = json.dumps(header).encode()
    sys.stdout.buffer.write(struct.pack("<Q", len(text)) + text + data)


if __name__ == "__main__":
    main()
