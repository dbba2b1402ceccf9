"""Masks as tensors, of the kinds that models make: a dictionary from names to (mask [B, H, Q, KV], form). Needs numpy.

`form` is what a mask comes back as: "formula", "intervals" or "table".
"""

import numpy as np

rng = np.random.default_rng(0)
MASKS = {}


def mask(name, q_len, kv_len=None, batch=1, heads=1, form="formula"):
    """Registers the mask of a function of (b, h, q, k), which are arrays that broadcast."""
    def add(function):
        kv = kv_len or q_len
        b, h = np.arange(batch)[:, None, None, None], np.arange(heads)[None, :, None, None]
        q, k = np.arange(q_len)[None, None, :, None], np.arange(kv)[None, None, None, :]
        MASKS[name] = (np.broadcast_to(function(b, h, q, k), (batch, heads, q_len, kv)).astype(bool), form)
        return function
    return add


def everywhere(name, function, *sizes, **options):
    mask(name, *sizes, **options)(function)


everywhere("full", lambda b, h, q, k: q >= 0, 512)
everywhere("causal", lambda b, h, q, k: q >= k, 1024)
everywhere("causal 4096", lambda b, h, q, k: q >= k, 4096)
everywhere("causal, last query at last key", lambda b, h, q, k: q + 700 >= k, 324, 1024)
everywhere("causal, first corner of a cache", lambda b, h, q, k: q >= k, 324, 1024)
everywhere("static cache", lambda b, h, q, k: q + 100 >= k, 64, 1024)
everywhere("decode", lambda b, h, q, k: k <= 700, 1, 1024)
everywhere("strictly causal", lambda b, h, q, k: q > k, 512)
everywhere("anticausal", lambda b, h, q, k: q <= k, 512)
everywhere("diagonal", lambda b, h, q, k: q == k, 512)
everywhere("window 128 (mistral)", lambda b, h, q, k: (q >= k) & (q - k < 128), 1024)
everywhere("window 4096 of 8192", lambda b, h, q, k: (q >= k) & (q - k < 1024), 4096)
everywhere("window, one off", lambda b, h, q, k: (q >= k) & (q - k <= 128), 1024)
everywhere("window with a cache", lambda b, h, q, k: (q + 500 >= k) & (q + 500 - k < 128), 524, 1024)
everywhere("window of both sides", lambda b, h, q, k: abs(q - k) <= 64, 1024)
everywhere("modernbert local", lambda b, h, q, k: (abs(q - k) <= 64), 777)
everywhere("window look-ahead", lambda b, h, q, k: (q - k <= 100) & (k - q <= 20), 600)
everywhere("sinks", lambda b, h, q, k: (q >= k) & ((q - k < 128) | (k < 4)), 1024)
everywhere("prefix-lm", lambda b, h, q, k: (q >= k) | (k < 100), 512)
prefix = np.array([10, 100, 37, 255])[:, None, None, None]
everywhere("prefix by batch (paligemma)", lambda b, h, q, k: (q >= k) | (k < prefix), 512, batch=4)
lengths = np.array([300, 512, 17, 411])[:, None, None, None]
starts = 512 - lengths
everywhere("padding", lambda b, h, q, k: k < lengths, 512, batch=4)
everywhere("padding both", lambda b, h, q, k: (k < lengths) & (q < lengths), 512, batch=4)
everywhere("padding, padding sees padding", lambda b, h, q, k: (k < lengths) == (q < lengths), 512, batch=4)
everywhere("causal + right padding", lambda b, h, q, k: (q >= k) & (k < lengths), 512, batch=4)
everywhere("causal + left padding", lambda b, h, q, k: (q >= k) & (k >= starts), 512, batch=4)
everywhere("causal + left padding, dead rows see all (sdpa)",
           lambda b, h, q, k: ((q >= k) & (k >= starts)) | (q < starts), 512, batch=4)
everywhere("causal + left padding, diagonal lives", lambda b, h, q, k: (q >= k) & (k >= starts) | (q == k), 512, batch=4)
everywhere("window + left padding", lambda b, h, q, k: (q >= k) & (q - k < 64) & (k >= starts), 512, batch=4)
everywhere("prefix + padding", lambda b, h, q, k: ((q >= k) | (k < 50)) & (k < lengths), 512, batch=4)
everywhere("cross attention, padded keys", lambda b, h, q, k: k < lengths, 77, 512, batch=4)
everywhere("decode, padded", lambda b, h, q, k: (k >= starts) & (k < 500), 1, 512, batch=4)
scattered = rng.random((4, 512)) < 0.8
everywhere("scattered padding", lambda b, h, q, k: scattered[b, k], 512, batch=4)
everywhere("causal + scattered padding", lambda b, h, q, k: scattered[b, k] & (q >= k), 512, batch=4)
everywhere("chunks (llama 4)", lambda b, h, q, k: (q // 128 == k // 128) & (q >= k), 1024)
everywhere("chunks, not causal", lambda b, h, q, k: q // 128 == k // 128, 1000)
everywhere("chunks + left padding", lambda b, h, q, k: ((q - starts) // 64 == (k - starts) // 64) & (q >= k) & (k >= starts), 512, batch=4)
everywhere("chunks causal by chunks (streaming)", lambda b, h, q, k: q // 64 >= k // 64, 1024)
everywhere("chunks, 2 before", lambda b, h, q, k: (q // 64 >= k // 64) & (q // 64 - k // 64 <= 2), 1024)
document = np.repeat(np.arange(9), [100, 3, 200, 50, 71, 300, 100, 1, 199])
everywhere("documents", lambda b, h, q, k: document[q] == document[k], 1024)
everywhere("documents, causal", lambda b, h, q, k: (document[q] == document[k]) & (q >= k), 1024)
everywhere("documents, windows", lambda b, h, q, k: (document[q] == document[k]) & (q >= k) & (q - k < 64), 1024)
document2 = np.stack([document, np.sort(rng.integers(0, 6, 1024))])
everywhere("documents by batch, causal", lambda b, h, q, k: (document2[b, q] == document2[b, k]) & (q >= k), 1024, batch=2)
padded_document = np.where(np.arange(1024) < 900, document, -1)
everywhere("documents, causal, padding dead", lambda b, h, q, k: (padded_document[q] == padded_document[k]) & (q >= k) & (padded_document[k] >= 0), 1024)
everywhere("documents of equal size", lambda b, h, q, k: (q // 256 == k // 256) & (q >= k), 1024)
interleaved = np.arange(1024) * 7919 % 5
everywhere("documents, shuffled", lambda b, h, q, k: interleaved[q] == interleaved[k], 1024)
random_ids = rng.integers(0, 12, 700)
everywhere("documents, random order", lambda b, h, q, k: random_ids[q] == random_ids[k], 700)
everywhere("document prefix-lm", lambda b, h, q, k: (document[q] == document[k]) & ((q >= k) | (k - np.searchsorted(document, document[k]) < 20)), 1024)
branch = np.repeat(np.arange(6), [200, 100, 60, 64, 100, 100])
everywhere("shared prefix", lambda b, h, q, k: (q >= k) & ((branch[k] == 0) | (branch[q] == branch[k])), 624)
image = np.where((np.arange(512) % 200 > 20) & (np.arange(512) % 200 < 120), np.arange(512) // 200, -1)
everywhere("images in text (gemma 3)", lambda b, h, q, k: (q >= k) | ((image[q] == image[k]) & (image[q] >= 0)), 512)
everywhere("images in text + window", lambda b, h, q, k: ((q >= k) & (q - k < 128)) | ((image[q] == image[k]) & (image[q] >= 0)), 512)
everywhere("longformer", lambda b, h, q, k: (abs(q - k) <= 64) | (q < 4) | (k < 4), 1024)
is_global = np.isin(np.arange(1024), [0, 17, 300, 555, 900])
everywhere("longformer, scattered global", lambda b, h, q, k: (abs(q - k) <= 64) | is_global[q] | is_global[k], 1024)
everywhere("longformer dilated", lambda b, h, q, k: (abs(q - k) <= 64) & ((q - k) % 4 == 0), 1024)
random_blocks = rng.random((16, 16)) < 0.2
everywhere("bigbird", lambda b, h, q, k: (abs(q // 64 - k // 64) <= 1) | (q < 64) | (k < 64) | (q // 64 == 15) | (k // 64 == 15) | random_blocks[q // 64, k // 64], 1024, form="table")
everywhere("bigbird without random", lambda b, h, q, k: (abs(q // 64 - k // 64) <= 1) | (q < 64) | (k < 64), 1024)
everywhere("block-sparse random", lambda b, h, q, k: random_blocks[q // 64, k // 64], 1024, form="table")
everywhere("block-sparse random, causal", lambda b, h, q, k: random_blocks[q // 64, k // 64] & (q >= k), 1024, form="table")
everywhere("strided (sparse transformer)", lambda b, h, q, k: (q >= k) & ((q - k < 32) | ((q - k) % 32 == 0)), 512)
everywhere("fixed (sparse transformer)", lambda b, h, q, k: (q >= k) & ((q // 32 == k // 32) | (k % 32 >= 28)), 512)
everywhere("dilated", lambda b, h, q, k: (q >= k) & (q - k <= 256) & ((q - k) % 4 == 0), 1024)
everywhere("dilated, all", lambda b, h, q, k: (q - k) % 8 == 0, 512)
everywhere("longnet, one head", lambda b, h, q, k: (q // 128 == k // 128) & (q % 4 == 0) & (k % 4 == 0), 512)
everywhere("longnet", lambda b, h, q, k: (q // 128 == k // 128) & (q % 4 == h % 4) & (k % 4 == h % 4), 512, heads=4)
everywhere("axial", lambda b, h, q, k: (q // 32 == k // 32) | (q % 32 == k % 32), 1024)
everywhere("criss-cross rows", lambda b, h, q, k: q % 32 == k % 32, 1024)
everywhere("neighborhood 1d (natten)", lambda b, h, q, k: (k >= np.clip(q - 6, 0, 499)) & (k < np.clip(q - 6, 0, 499) + 13), 512)


def near(q, k, n, w):
    start = np.clip(q - w // 2, 0, n - w)
    return (k >= start) & (k < start + w)


everywhere("neighborhood 2d (natten)", lambda b, h, q, k: near(q // 32, k // 32, 24, 7) & near(q % 32, k % 32, 32, 7), 768)
everywhere("neighborhood 2d, two widths", lambda b, h, q, k: near(q // 40, k // 40, 20, 5) & near(q % 40, k % 40, 40, 9), 800)
everywhere("neighborhood 2d, plain box", lambda b, h, q, k: (abs(q // 32 - k // 32) <= 3) & (abs(q % 32 - k % 32) <= 3), 1024)
everywhere("neighborhood 2d, dilated", lambda b, h, q, k: ((q // 32 % 2 == k // 32 % 2) & (q % 32 % 2 == k % 32 % 2) & near(q // 64, k // 64, 16, 5) & near(q % 32 // 2, k % 32 // 2, 16, 5)), 1024)
everywhere("neighborhood 3d", lambda b, h, q, k: near(q // 100, k // 100, 8, 3) & near(q // 10 % 10, k // 10 % 10, 10, 5) & near(q % 10, k % 10, 10, 5), 800)
everywhere("neighborhood 2d, causal rows", lambda b, h, q, k: (q // 32 >= k // 32) & (q // 32 - k // 32 < 5) & near(q % 32, k % 32, 32, 7), 1024)
everywhere("swin", lambda b, h, q, k: (q // 28 // 7 == k // 28 // 7) & (q % 28 // 7 == k % 28 // 7), 784)
everywhere("swin, shifted", lambda b, h, q, k: ((q // 28 - 3) // 7 == (k // 28 - 3) // 7) & ((q % 28 - 3) // 7 == (k % 28 - 3) // 7), 784)
region = np.zeros((56, 56), int)
for i, rows in enumerate((slice(0, 49), slice(49, 53), slice(53, 56))):
    for j, columns in enumerate((slice(0, 49), slice(49, 53), slice(53, 56))):
        region[rows, columns] = 3 * i + j
windows = region.reshape(8, 7, 8, 7).transpose(0, 2, 1, 3).reshape(64, 49)
everywhere("swin's attn_mask by windows", lambda b, h, q, k: windows[b, q] == windows[b, k], 49, batch=64)
everywhere("joint text and image", lambda b, h, q, k: (q < 100) | (k < 100) | (near((q - 100) // 24, (k - 100) // 24, 24, 7) & near((q - 100) % 24, (k - 100) % 24, 24, 7)), 676)
everywhere("frames, causal (video)", lambda b, h, q, k: q // 100 >= k // 100, 900)
everywhere("video, same frame or first", lambda b, h, q, k: (q // 100 == k // 100) | (k < 100), 900)
everywhere("text then image (mmdit, masked text)", lambda b, h, q, k: (k < lengths // 4) | (k >= 128), 640, batch=4)
parent = [-1] + [int(rng.integers(0, i)) for i in range(1, 64)]
tree = np.eye(64, dtype=bool)
for i in range(1, 64):
    tree[i] |= tree[parent[i]]
everywhere("tree", lambda b, h, q, k: tree[q, k], 64)
everywhere("tree behind a prompt", lambda b, h, q, k: np.concatenate([np.ones((64, 300), bool), tree], 1)[q, k], 64, 364)
medusa = np.eye(26, dtype=bool)
paths = [()]
for a in range(5):
    paths.append((a,))
for a in range(5):
    for c in range(4):
        paths.append((a, c))
for i, p in enumerate(paths):
    for j, r in enumerate(paths):
        medusa[i, j] = p[: len(r)] == r
everywhere("medusa", lambda b, h, q, k: medusa[q, k], 26)
full_tree = np.tril(np.ones((364, 364), bool)); full_tree[300:, 300:] = tree
everywhere("prompt and tree", lambda b, h, q, k: full_tree[q, k], 364)
lts = np.array([min(512, i + 1 + int(rng.integers(0, 300))) for i in range(512)])
everywhere("flashmask, causal, start", lambda b, h, q, k: (q >= k) & (q < lts[k]), 512, form="intervals")
lte = np.minimum(512, lts + rng.integers(0, 90, 512))
everywhere("flashmask, causal, start end", lambda b, h, q, k: (q >= k) & ~((q >= lts[k]) & (q < lte[k])), 512, form="intervals")
ute = np.array([int(rng.integers(0, i + 1)) for i in range(512)])
everywhere("flashmask, start of lower, end of upper", lambda b, h, q, k: ~(q >= lts[k]) & ~(q < ute[k]), 512, form="intervals")
uts = (ute * rng.random(512)).astype(int)
everywhere("flashmask, four", lambda b, h, q, k: ~((q >= lts[k]) & (q < lte[k])) & ~((q >= uts[k]) & (q < ute[k])), 512, form="intervals")
everywhere("rows by interval", lambda b, h, q, k: (k >= ute[q]) & (k < lts[q]), 512, form="intervals")
window_of = np.array([16, 64, 128, 512])[None, :, None, None]
everywhere("windows by head", lambda b, h, q, k: (q >= k) & (q - k < window_of), 512, heads=4)
everywhere("heads that alternate", lambda b, h, q, k: (q >= k) & ((h % 2 == 0) | (q - k < 64)), 512, heads=4)
everywhere("retrieval heads", lambda b, h, q, k: (q >= k) & ((h < 2) | (q - k < 64) | (k < 4)), 512, heads=4)
block = 16
qc, kc = None, None
everywhere("block diffusion", lambda b, h, q, k: np.where(q < 256, np.where(k < 256, q // block == k // block, q // block > (k - 256) // block), (k >= 256) & ((q - 256) // block >= (k - 256) // block)), 512)
everywhere("semi-causal blocks", lambda b, h, q, k: q // 32 >= k // 32, 1024)
everywhere("compressed keys (nsa)", lambda b, h, q, k: q >= 16 * k + 31, 1024, 63)
everywhere("transformer-xl memory", lambda b, h, q, k: (k <= q + 256) & (k > q), 256, 512)
everywhere("dead rows", lambda b, h, q, k: (q >= k) & (q >= 100), 512)
everywhere("nothing", lambda b, h, q, k: q < 0, 128)
everywhere("noise", lambda b, h, q, k: rng.random((512, 512)) < 0.5, 512, form="table")
flips = rng.random((1024, 1024)) < 0.0005
everywhere("causal with noise", lambda b, h, q, k: (q >= k) ^ flips, 1024, form="table")
everywhere("documents with noise", lambda b, h, q, k: ((document[q] == document[k]) & (q >= k)) ^ flips, 1024, form="table")
one_flip = np.zeros((512, 512), bool); one_flip[300, 20] = True
everywhere("window with a flip", lambda b, h, q, k: ((q >= k) & (q - k < 64)) ^ one_flip, 512)
