#!/usr/bin/env python3
"""The library's neighborhoods, run by CPython, against NATTEN's definition as it is published.

`classic` is get_window_start and get_window_end of NATTEN's first kernels (odd windows, dilation), transcribed from C;
`generalized` the mask of its later ones: windows of any size, stride, causal axes, dilation by partition.
"""
import ast
import pathlib
import sys

ROOT = pathlib.Path(__file__).parents[2]
sys.dont_write_bytecode = True
from oracle import Lenient


def mod(name, **constants):
    """The names of a mod of the library, with constants replaced."""
    lines = (ROOT / "dsl/mods" / f"{name}.py").read_text().split("\n")
    for key, value in constants.items():
        at = [i for i, line in enumerate(lines) if line.startswith(f"{key} = ")]
        assert len(at) == 1, (name, key)
        lines[at[0]] = f"{key} = {value!r}"
    tree = ast.fix_missing_locations(Lenient().visit(ast.parse("\n".join(lines))))
    names = {"invert__": lambda x: not x}  # Python's own ~True is -2
    exec(compile(tree, name, "exec"), names)
    return names


def classic(i, n, window, dilation):
    """The keys of query i of n; the window is odd."""
    half = window // 2
    if dilation == 1:
        start = max(i - half, 0) + ((i + half >= n) * (n - i - half - 1))
        end = n if i + half >= n else max(i - half, 0) + window
        return set(range(start, end))
    start = i - half * dilation
    if start < 0:
        start = i % dilation
    elif i + half * dilation >= n:
        rest, whole = i % dilation, n // dilation * dilation
        left = n - whole
        start = n - left + rest - 2 * half * dilation if rest < left else whole + rest - window * dilation
    return set(range(start, start + window * dilation, dilation))


def generalized(i, n, window, dilation, stride, causal):
    group, i = i % dilation, i // dilation
    n = len(range(group, n, dilation))
    if causal:
        leader = min(i // stride * stride + stride - 1, n - 1)
        keys = range(max(leader - window + 1, 0), i + 1)
    else:
        left, right = window // 2, window // 2 + (window % 2 - 1)
        leader = min(i // stride * stride + stride // 2, n - 1)
        start = max(leader - left, 0) + ((leader + right >= n) * (n - right - leader - 1))
        keys = range(start, start + window)
    return {key * dilation + group for key in keys}


def compare(name, shape, window, dilation, stride, causal):
    extents = dict(zip(("HEIGHT", "WIDTH") if len(shape) == 2 else ("FRAMES", "HEIGHT", "WIDTH"), shape))
    mask = mod(name, **extents, WINDOW=window, DILATION=dilation, STRIDE=stride, CAUSAL=causal)["mask_mod"]
    per_axis = [[generalized(i, n, *rest) for i in range(n)]
                for n, *rest in zip(shape, window, dilation, stride, causal)]
    for axis, (n, size, apart, shared, is_causal) in enumerate(zip(shape, window, dilation, stride, causal)):
        if size % 2 and shared == 1 and not is_causal:
            assert per_axis[axis] == [classic(i, n, size, apart) for i in range(n)], (n, size, apart)
    places = [()]
    for n in shape:
        places = [(*place, i) for place in places for i in range(n)]
    for q, at in enumerate(places):
        for kv, other in enumerate(places):
            expected = all(key in keys[i] for keys, i, key in zip(per_axis, at, other))
            assert bool(mask(0, 0, q, kv)) == expected, (name, shape, window, dilation, stride, causal, at, other)
    return len(places) ** 2


def main():
    off, one = (False, False), (1, 1)
    pairs = 0
    for shape, window, dilation, stride, causal in [
            ((5, 7), (3, 5), one, one, off), ((6, 6), (6, 1), one, one, off), ((1, 9), (1, 4), one, one, off),
            ((7, 8), (2, 4), one, one, off), ((9, 8), (3, 2), (2, 4), one, off), ((11, 7), (3, 3), (3, 2), one, off),
            ((8, 9), (4, 5), one, (2, 3), off), ((8, 9), (4, 5), one, (4, 5), (True, False)),
            ((6, 7), (6, 3), one, one, (True, True)), ((10, 7), (3, 2), (3, 2), (2, 1), (False, True))]:
        pairs += compare("neighborhood2d", shape, window, dilation, stride, causal)
    for shape, window, dilation, stride, causal in [
            ((3, 4, 5), (2, 3, 3), (1, 1, 1), (1, 1, 1), (True, False, False)),
            ((4, 5, 3), (4, 2, 1), (1, 2, 3), (2, 1, 1), (False, False, False))]:
        pairs += compare("neighborhood3d", shape, window, dilation, stride, causal)
    joint = mod("joint_image", HEIGHT=5, WIDTH=6, TEXT=3, WINDOW=4)["mask_mod"]
    plain = mod("neighborhood2d", HEIGHT=5, WIDTH=6, WINDOW=(4, 4))["mask_mod"]
    for q in range(36):
        for kv in range(36):
            are_text = not (3 <= q < 33 and 3 <= kv < 33)
            assert bool(joint(0, 0, q, kv)) == (are_text or plain(0, 0, q - 3, kv - 3)), (q, kv)
    print(f"{pairs} pairs agree")


if __name__ == "__main__":
    main()
