#!/usr/bin/env python3
"""Runs a mod's text under CPython and prints what its functions return: the oracle of the front end.

    python3 oracle.py REQUEST.json

REQUEST: {"text", "defines": {name: literal}, "dims": {name: int}, "captures": {name: {"shape", "data"} or {"value"}},
"coords": [[score, b, h, q_idx, kv_idx], ...]}. Prints {"score": [...] or null, "mask": [...] or null, "prob" and "sink" as well,
or null, and "outputs": {name: [...]}}; prob_mod, and functions of outputs, are given the score as weight.

`torch` is the stub of torch_stub.py.
"""
import ast
import functools
import importlib.util
import json
import math
import pathlib
import sys
import types

sys.dont_write_bytecode = True
from torch_stub import T, flex, fold_and, fold_or, torch


def choice(which, *mods):
    """attnc.choice. On a GPU, launches get any ints: main() masks sequences that name no mod."""
    choice.made[id(which)] = which, len(mods)
    return lambda *at: mods[min(int(which[at[-4]]) % 2**32, len(mods) - 1)](*at)


choice.made = {}


class Output:
    """attnc.reduce_sum(function), attnc.reduce_max(function)."""

    def __init__(self, function):
        self.function = function


def attnc_module():
    """`attnc` without its library: the parts that mods use."""
    def part(name):
        path = pathlib.Path(__file__).parents[2] / f"tools/python/attnc/{name}.py"
        spec = importlib.util.spec_from_file_location(f"attnc_{name}", path)
        made = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(made)
        return made

    attnc, philox = types.ModuleType("attnc"), part("_philox")
    attnc.grid = part("grid").grid
    attnc.choice = choice
    attnc.reduce_sum = attnc.reduce_max = Output
    attnc.random = lambda *values: T([philox.random_of([int(x) for x in values])])
    return attnc


sys.modules["attnc"] = attnc_module()


DTYPES = ("u8", "i8", "i16", "i32", "i64", "f16", "bf16", "f32")


class Annotation:
    """f32, f32[H, N]: CPython evaluates these annotations, and ignores the result."""

    def __getitem__(self, index):
        return self


def override(tree, defines):
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id in defines:
            node.value = ast.parse(defines[node.targets[0].id], mode="eval").body
    return tree


class Lenient(ast.NodeTransformer):
    """`and`, `or`, `not`, chained comparisons, `in` and `~` steer CPython by truth; the mod language combines traced
    bools instead, and takes `~` of a bool as its negation. They become calls of functions that do so."""

    @staticmethod
    def call(name, *args):
        return ast.Call(ast.Name(name, ast.Load()), list(args), [])

    def visit_BoolOp(self, node):
        self.generic_visit(node)
        thunks = [ast.Lambda(ast.arguments([], [], None, [], [], None, []), value) for value in node.values]
        return self.call("and__" if isinstance(node.op, ast.And) else "or__", *thunks)

    def visit_UnaryOp(self, node):
        self.generic_visit(node)
        name = {ast.Not: "not__", ast.Invert: "invert__"}.get(type(node.op))
        return self.call(name, node.operand) if name else node

    def visit_Compare(self, node):
        self.generic_visit(node)
        operands, links = [node.left, *node.comparators], []
        for op, left, right in zip(node.ops, operands, operands[1:]):
            is_in = isinstance(op, (ast.In, ast.NotIn))
            link = self.call("in__", left, right) if is_in else ast.Compare(left, [op], [right])
            links.append(self.call("not__", link) if isinstance(op, ast.NotIn) else link)
        return self.call("fold_and", ast.List(links, ast.Load())) if len(links) > 1 else links[0]


def combine(thunks, stop, fold):
    traced = []
    for thunk in thunks:
        value = thunk()
        if isinstance(value, T):
            traced.append(value)
        elif bool(value) is stop:
            return stop if traced else value
    return fold(traced) if traced else value


def contains(item, container):
    return fold_or([item == other for other in container])


def environment(request):
    names = {name: Annotation() for name in DTYPES}
    names.update(request["dims"])
    names.update({name: getattr(flex, name) for name in ("and_masks", "or_masks", "noop_mask")})
    names.update({name: getattr(torch, name) for name in ("tanh_approx", "where", "exp", "tanh", "minimum", "maximum",
                                                          "clamp", "inf", "nan", "pi")})
    names.update({"torch": torch, "F": torch.nn.functional, "math": math, "functools": functools,
                  "partial": functools.partial, "float32": torch.float32, "int32": torch.int32})
    names.update({name: getattr(sys.modules["attnc"], name) for name in ("choice", "grid", "random")})
    for name, capture in request["captures"].items():
        names[name] = capture["value"] if "value" in capture else T(capture["data"], capture["shape"])
    names["bool"] = type("bool", (), {"__new__": lambda cls, x=False: x.bool() if isinstance(x, T) else bool(x),
                                      "__class_getitem__": lambda cls, index: cls})
    names["and__"] = lambda *thunks: combine(thunks, False, fold_and)
    names["or__"] = lambda *thunks: combine(thunks, True, fold_or)
    names["not__"] = lambda x: torch.logical_not(x) if isinstance(x, T) else not x
    names["invert__"] = lambda x: torch.bitwise_not(x)
    names["in__"], names["fold_and"] = contains, fold_and
    names["float"] = lambda x=0.0: x.float() if isinstance(x, T) else float(x)
    names["int"] = lambda x=0: x.int() if isinstance(x, T) else int(x)
    names["max"] = lambda *xs: fold_extreme(torch.maximum, xs)
    names["min"] = lambda *xs: fold_extreme(torch.minimum, xs)
    names["any"] = lambda xs: fold_or(list(xs))
    names["all"] = lambda xs: fold_and(list(xs))
    # What a mod imports is what it sees without an import.
    for name in (*DTYPES, *request["dims"], "bool", "and_masks", "or_masks", "noop_mask", "tanh_approx"):
        setattr(sys.modules["attnc"], name, names[name])
    return names


def fold_extreme(fn, values):
    values = list(values[0]) if len(values) == 1 else list(values)
    result = values[0]
    for value in values[1:]:
        result = fn(result, value)
    return result


def plain(value):
    value = value.item() if isinstance(value, T) else value
    return repr(value) if isinstance(value, float) and not math.isfinite(value) else value


def main():
    with open(sys.argv[1]) as file:
        request = json.load(file)
    names = environment(request)
    tree = Lenient().visit(override(ast.parse(request["text"]), request["defines"]))
    ast.fix_missing_locations(tree)
    exec(compile(tree, "<mod>", "exec"), names)
    score_mod, mask_mod, prob_mod, sink_mod = map(names.get, ("score_mod", "mask_mod", "prob_mod", "sink_mod"))
    if weight_mod := names.get("weight_mod"):  # the interpreter's score is then the weight
        before = score_mod or (lambda score, *at: score)
        score_mod = lambda score, *at: weight_mod(before(score, *at), *at)
    coords = [(T([float(score)]), *(T([i]) for i in at)) for score, *at in request["coords"]]

    def is_live(at):
        value = plain(mask_mod(*at)) if mask_mod else True
        return value and all(0 <= int(which[at[0]]) < count for which, count in choice.made.values())

    print(json.dumps({"score": [plain(score_mod(*at)) for at in coords] if score_mod else None,
                      "mask": [is_live(at[1:]) for at in coords] if mask_mod or choice.made else None,
                      "prob": [plain(prob_mod(*at)) for at in coords] if prob_mod else None,
                      "sink": [plain(sink_mod(*at[1:4])) for at in coords] if sink_mod else None,
                      "outputs": {name: [plain(output.function(at[0], *at)) for at in coords]
                                  for name, output in names.items() if isinstance(output, Output)}}))


if __name__ == "__main__":
    main()
