"""Shrinks a random mod that shows a fault: subtrees go while the fault stays. Needs only Python."""

import dataclasses

from trees import BITS, BOUNDS, INFIX, Node, nodes_of


def _replaced(node, path, new):
    if not path:
        return new
    args = list(node.args)
    args[path[0]] = _replaced(args[path[0]], path[1:], new)
    return dataclasses.replace(node, args=tuple(args))


def _paths(node, path=()):
    yield path, node
    for place, arg in enumerate(node.args):
        if isinstance(arg, Node):
            yield from _paths(arg, (*path, place))


def _simpler(node):
    """Yields nodes of the same dtype that may stand for a node."""
    inner = [arg for arg in node.args if isinstance(arg, Node)]
    yield from (arg for arg in inner if arg.dtype == node.dtype)
    deeper = [x for arg in inner for x in arg.args if isinstance(x, Node)]
    yield from (x for x in deeper if x.dtype == node.dtype)
    position = Node("position", "i64", (), "j")
    if node.dtype == "i64" and node.op != "position":
        yield position
        yield from (Node("cast", "i64", (arg,)) for arg in inner if arg.dtype in ("u8", "i8", "i16", "i32"))
    elif node.dtype == "bool" and len(list(nodes_of(node))) > 3:
        yield Node("ge", "bool", (Node("position", "i64", (), "i"), position))
    elif node.dtype in BITS and node.op not in ("load", "position") and inner:
        yield Node("cast", node.dtype, (position,))
    elif node.dtype == "f32" and node.op not in ("load", "score") and not (node.op == "cast" and position in node.args):
        yield Node("cast", "f32", (position,))
    for place, arg in enumerate(node.args):
        if not isinstance(arg, Node) or node.op not in INFIX or arg.dtype not in BITS or arg.op == "position":
            continue
        if getattr(node.args[1 - place], "dtype", None) == arg.dtype:
            yield dataclasses.replace(node, args=tuple(1 if at == place else x for at, x in enumerate(node.args)))


def smaller(mod):
    """Yields mods that are smaller by one step, the smallest first."""
    if mod.score is not None and mod.mask is not None:
        yield dataclasses.replace(mod, score=None)
        yield dataclasses.replace(mod, mask=None)
    if mod.problem[0] > 1:
        yield dataclasses.replace(mod, problem=(1, *mod.problem[1:]))
    for field in ("score", "mask"):
        tree = getattr(mod, field)
        for path, node in _paths(tree) if tree is not None else ():
            for new in _simpler(node):
                made = _replaced(tree, path, new)
                if field == "mask" or any(x.op == "clamp" and x.args[1:] == BOUNDS for x in nodes_of(made)):
                    yield dataclasses.replace(mod, **{field: made})


def shrunk(mod, differs, most=150):
    """Returns the smallest mod found that still differs(mod)."""
    left, changed = most, True
    while changed and left > 0:
        changed = False
        for candidate in smaller(mod):
            left -= 1
            if left <= 0:
                break
            if differs(candidate):
                mod, changed = candidate, True
                break
    return mod
