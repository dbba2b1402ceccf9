"""Functions pasted without the head of their file: modules, helpers and dtypes are known, and definitions win."""
slopes: f32[H]
starts: i32[KV_LEN]
WIDTH = math.floor(2.5) + functools.reduce(lambda x, y: x + y, [1, 2])


def relu(x):
    return x * 3


def score_mod(score, b, h, q_idx, kv_idx):
    F = 0.5
    distance = torch.abs(q_idx - kv_idx).to(float32)
    return relu(score) * F + slopes[h] * distance.to(torch.float32) + math.sqrt(WIDTH) * torch.nn.functional.relu(score)


def near(width, b, h, q_idx, kv_idx):
    return abs(q_idx - kv_idx) < width


def positive(b, h, q_idx, kv_idx):
    return F.relu(kv_idx - starts[q_idx] * 2.0) > 1


mask_mod = or_masks(partial(near, WIDTH), and_masks(functools.partial(near, 30), positive, noop_mask))
