"""Loops, comprehensions, while, break, else, enumerate, zip, sum, any, nested loops over captured lists."""

COEFFICIENTS = [0.5, -0.25, 0.125]
RANGES = ((0, 4), (9, 14), (20, 30))


def score_mod(score, b, h, q_idx, kv_idx):
    x = score / 8
    y = 0.0
    for i, c in enumerate(COEFFICIENTS):
        y = y + c * x**i
    for lo, hi in zip(range(3), range(3, 0, -1)):
        y = y + lo * hi
    n = 5
    while n > 0:
        n -= 1
        if n == 3:
            continue
        if n < 2:
            break
        y += n * h
    else:
        y += 1000
    for k in range(2):
        for m in range(2):
            y += k * m * b
    else:
        y += 0.5
    values = [c * 2 for c in COEFFICIENTS if c > 0]
    values.append(h)
    values[0] += 1
    values += [q_idx % 2]
    y += sum(values) + len(values) + max(values) + sum(c for c in COEFFICIENTS) + values[-1] + sum(values[1:])
    return y if len(COEFFICIENTS) == 3 else score


def mask_mod(b, h, q_idx, kv_idx):
    return any((lo <= kv_idx) & (kv_idx < hi) for lo, hi in RANGES) and all([q_idx > 1, True, kv_idx != 22]) or h == 3
