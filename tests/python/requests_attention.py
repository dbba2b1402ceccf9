"""What tests of serving engines share: attention of a server's requests by its definition, and attnc as a plugin."""

import contextlib
import pathlib
import re
import sys
import tempfile
from unittest import mock

import needs
import torch


@contextlib.contextmanager
def entry_point_of(engine):
    """Lets the engine find the package's entry point, as if the package were installed."""
    text = (needs.ROOT / "tools/python/pyproject.toml").read_text(encoding="utf-8")
    group, entry = re.search(rf'\[project.entry-points."({engine}\..*)"\]\nattnc = "(.*)"', text).groups()
    with tempfile.TemporaryDirectory() as folder:
        about = pathlib.Path(folder) / "attnc-0.0.0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text("Metadata-Version: 2.1\nName: attnc\nVersion: 0.0.0\n")
        (about / "entry_points.txt").write_text(f"[{group}]\nattnc = {entry}\n")
        with mock.patch.object(sys, "path", [folder, *sys.path]):
            yield


def causal(b, h, q, kv):
    return q >= kv


def attention_of_requests(q, caches, q_lens, mask=None, score=None, sinks=None):
    """Returns out [tokens, H, D] in fp64, with the scale D ** -0.5.

    q [tokens, H, D]: the last q_lens[i] tokens of request i, one request behind the other. `caches`: k and v
    [length, HKV, D] of each request, with the new tokens. mask(request, h, q_idx, kv_idx), causal if None, and
    score(score, request, h, q_idx, kv_idx) are given positions of the request. `sinks` [H]: scores of no key."""
    parts = []
    for request, (part, cache) in enumerate(zip(q.split(list(q_lens)), caches)):
        q_len, heads, width = part.shape
        k, v = (x.double().transpose(0, 1).repeat_interleave(heads // x.shape[1], dim=0) for x in cache)
        length = k.shape[1]
        h = torch.arange(heads, device=q.device)[:, None, None]
        q_idx = torch.arange(length - q_len, length, device=q.device)[None, :, None]
        kv_idx = torch.arange(length, device=q.device)[None, None]
        scores = part.double().transpose(0, 1) @ k.transpose(1, 2) * width**-0.5
        if score is not None:
            scores = score(scores, request, h, q_idx, kv_idx)
        live = (mask or causal)(request, h, q_idx, kv_idx)
        scores = scores.masked_fill(~live.expand_as(scores), -torch.inf)
        if sinks is not None:
            scores = torch.cat((scores, sinks.double().view(-1, 1, 1).expand(heads, q_len, 1)), dim=-1)
        parts.append((scores.softmax(-1)[..., :length].nan_to_num() @ v).transpose(0, 1))
    return torch.cat(parts)
