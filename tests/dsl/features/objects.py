# Classes, dicts, decorators and the statements around them.
import functools
from dataclasses import dataclass

import torch

table: f32[H, 4]
n: int


class Base:
    scale = 2

    def __init__(self, start, step=3):
        self.start = start
        self.step = step

    def at(self, x):
        return self.start + x * self.step * self.scale

    @property
    def twice(self):
        return 2 * self.start

    @staticmethod
    def half(x):
        return x // 2

    @classmethod
    def make(cls, start):
        return cls(start)


class Near(Base):
    scale = 5

    def __init__(self, start, **options):
        super().__init__(start, **options)
        self.items = [start]

    def at(self, x):
        return super().at(x) + self.items[-1]

    def __call__(self, b, h, q_idx, kv_idx):
        return self.at(q_idx) % 7 >= self.half(kv_idx) % 5


@dataclass
class Config:
    cap: float
    window: int = 9
    kind: str = "soft"


config = Config(2.5, kind="hard")
options = {"a": 1, "b": {"c": [2, 3]}, 7: "x"}
options["d"] = options.get("e", 4)
options.update(f=5)
copy = {**options, "a": 6}
squares = {i: i * i for i in range(4) if i != 1}
first, *rest = [1, 2, 3, 4]
count = 0


def bump():
    global count
    count += 1


bump()
bump()


def doubled(function):
    @functools.wraps(function)
    def inner(*arguments, **keywords):
        return 2 * function(*arguments, **keywords)
    return inner


@functools.lru_cache(maxsize=None)
def limit():
    total = 0

    def add(x):
        nonlocal total
        total += x
    for x in rest:
        add(x)
    return total


@doubled
def shifted(x, by=1, *, factor=1):
    return (x + by) * factor


def score_mod(score, b, h, q_idx, kv_idx):
    near = Near.make(4)
    with torch.no_grad():
        x = table[h, squares[0]] * config.cap + near.twice
    try:
        y = shifted(q_idx, factor=2) + shifted(kv_idx, **{"by": copy["a"]})
    except ValueError:
        y = 0
    finally:
        z = sum(options["b"]["c"]) + len(copy) + squares[3] + limit() + count
    if (m := options["d"]) > 3:
        z += m
    if "f" in options and isinstance(near, Base) and config.kind == "hard":
        z += m + getattr(config, "window") + getattr(config, "absent", 1)
    del m
    for key, value in options.items():
        if key == "a":
            z += value
    return score + x + y - z + first + near.step + [v for _, v in squares.items()][1] + n


near_mask = Near(3, step=2)


def mask_mod(b, h, q_idx, kv_idx):
    return near_mask(b, h, q_idx, kv_idx)
