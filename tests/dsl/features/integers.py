"""Python's integer rules: floor division, remainders, shifts, bits, chained comparisons."""


def score_mod(score, b, h, q_idx, kv_idx):
    d = q_idx - kv_idx
    a = d // 3 + d % 3 + (-d) // 4 + (-d) % 4 + d // -5 + d % -5
    a += (d >> 1) + (q_idx << 2) + (d & 0xF) + (d | 1) + (d ^ 0b1010) + ~d
    a -= abs(d) * 0o17 + -d + +d
    a = a + 1_000 // 7 + 7 // -2 + -7 % 3 + 2**5 + (1 << 6) + (37 >> 2)
    return score + a / 7 + d / 2 + (d == 3) + (d != 3) * 2 + d**2 + d**3


def mask_mod(b, h, q_idx, kv_idx):
    d = q_idx - kv_idx
    return (0 <= d < 7) | (-9 < d <= -4) | (d % 5 == 0) | (not (q_idx < 20)) | (kv_idx in (3, 4, 11))
