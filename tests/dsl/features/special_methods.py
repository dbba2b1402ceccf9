# Methods that Python calls by itself, and what @dataclass makes of a class.
from dataclasses import dataclass
from typing import ClassVar


class Always:
    def __init__(self, said=True):
        self.said = said

    def __eq__(self, other):
        return self.said


class Unequal(Always):
    def __ne__(self, other):
        return "unequal"


class Number:
    def __init__(self, value):
        self.value = value

    def __eq__(self, other):
        if not isinstance(other, Number):
            return NotImplemented
        return self.value == other.value


class Special(Number):
    def __eq__(self, other):
        return True


class Truth:
    def __init__(self, value):
        self.value = value

    def __bool__(self):
        return self.value > 2


class Sized:
    def __init__(self, *items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getattr__(self, name):
        if name == "last":
            return self.items[-1]
        raise AttributeError(name)


class Plain:
    pass


class Inside:
    log = []

    def __enter__(self):
        self.log.append(1)
        return self.log

    def __exit__(self, kind, value, trace):
        self.log.append(8 if kind is None else 9)


@dataclass
class Config:
    width: int
    KINDS: ClassVar[int] = 3
    cap: float = 2.0


@dataclass
class Wide(Config):
    height: int = 7


@dataclass(frozen=True)
class Frozen:
    x: int


@dataclass(eq=False)
class Identity:
    x: int = 1


class Sub(Config):
    def __post_init__(self):
        self.area = self.width * 2


@dataclass
class Made(Config):
    def __post_init__(self):
        self.area = self.width * 2


class Derived(Config):
    def __init__(self, width, cap):
        super().__init__(width, cap=2 * cap)
        self.area = 7


def inside():
    with Inside() as log, Inside():
        log.append(4)
        return len(log)


ENTERED = inside() * 100 + sum(Inside.log) * 1000
ONE = Identity()
PLAIN = Plain()
FACTS = [
    Always() == 3, 3 == Always(), Always() != 3, Always(False) == Always(False), Unequal() != 3, Unequal() == 3,
    Number(3) == Number(3), Number(3) != Number(3), Number(3) == 3, Number(3) == Number(4), Number(1) == Special(2),
    Special(2) == Number(1), 3 in [Always()], Number(4) in (Number(3), Number(4)), [Number(1)] == [Number(1)],
    (Number(1), 2) != (Number(2), 2), bool(Truth(3)), not Truth(3), bool(Truth(1)), bool(Sized()), bool(Sized(0)),
    bool(Plain()), Plain() == Plain(), PLAIN == PLAIN, PLAIN != PLAIN, PLAIN == None, Config(8) == Config(8),
    Config(8) != Config(8), Config(8) == Config(9), Config(8, 3.0) == Config(8, cap=3.0), Config(8) == Wide(8),
    Wide(8) == Wide(8), Wide(8, height=6) == Wide(8), Identity() == Identity(), ONE == ONE, ONE is ONE,
    Config(8) == 8, Config(8) is Config(8), [1] is [1], Sub(8) == Sub(8), Sub(8) == Config(8),
    Config([1, (2, 3)]) == Config([1, (2, 3)]),
    Derived(5, 1.5) == Derived(5, 1.5), Derived(5, 1.5).cap == 3.0, Derived(5, 1.5).area == 7,
    hasattr(Sized(1), "last"), hasattr(Sized(1), "first"), Config(1).KINDS == 3, hasattr(Sub(4), "area"), Made(4).area == 8,
    Frozen(3) == Frozen(3), Frozen(3).x == 3,
]


def score_mod(score, b, h, q_idx, kv_idx):
    facts = 0
    for i, fact in enumerate(FACTS):
        if fact:
            facts += 1 << i
    x = torch.where(h == 0, facts & 0xFFFFF, torch.where(h == 1, facts >> 20 & 0xFFFFF, facts >> 40))
    x += len(Sized(1, 2)) + Sized(4, 5).last + ENTERED
    if Config(8) == Config(8) and (Truth(3) and not Sized()):
        x += 7
    return score + x / 256 + torch.where(Number(q_idx) == Number(kv_idx), 1, 0)
