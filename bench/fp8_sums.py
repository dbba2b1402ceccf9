"""How far out of e4m3 falls short of fp64 if v has one sign, next to FlashAttention-3 (fa3-fwd, vLLM's) if it can be imported.

  ATTNC_LIBRARY=libattnc.so python3 bench/fp8_sums.py

Prints for each head dim, length and kind of weights the error of out's mean, and the RMS error.
"""

import functools
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tools" / "python"))
import peers
import torch

import attnc

E4M3 = torch.float8_e4m3fn


def by_attnc(q, k, v):
    one = torch.ones(1, 1, device="cuda")
    return attnc.attention("score", q, k, v, q_scales=one, k_scales=one, v_scales=one)


def by_flash_attention(q, k, v, peer):
    one = torch.ones(1, 1, device="cuda")
    operands = (x.transpose(1, 2).contiguous() for x in (q, k, v))
    return peer.attention(*operands, q_descale=one, k_descale=one, v_descale=one).transpose(1, 2)


def errors(function, head_dim, length, kind):
    """Returns both errors, relative to the mean and the RMS of out."""
    torch.manual_seed(1)
    q = torch.randn(1, 1, 128, head_dim, device="cuda") * (kind == "drawn")  # 0: equal weights
    k, v = (torch.randn(1, 1, length, head_dim, device="cuda") for _ in range(2))
    q, k, v = (x.to(E4M3) for x in (q, k, v.abs()))
    out = function(q, k, v).double()
    expected = (q.double() @ k.double().mT / head_dim**0.5).softmax(-1) @ v.double()
    return (out.mean() / expected.mean() - 1).item(), ((out - expected).norm() / expected.norm()).item()


def main():
    functions = {"attnc": by_attnc}
    for peer in peers.found(["flash3", "flash3_vllm"]):
        functions[peer.version()] = functools.partial(by_flash_attention, peer=peer)
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}")
    for head_dim in (64, 96, 128, 192, 256):
        for length in (1024, 8192, 65536):
            for kind in ("equal", "drawn"):
                row = f"d{head_dim} {length} keys, {kind} weights:"
                for name, function in functions.items():
                    mean, rms = errors(function, head_dim, length, kind)
                    row += f"  {name} mean {mean:+.2%}, RMS {rms:.2%}"
                print(row, flush=True)


if __name__ == "__main__":
    main()
