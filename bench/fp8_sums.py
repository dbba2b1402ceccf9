"""How far out of e4m3 falls short of the fp64 reference if v has one sign, on a GPU.

python3 bench/fp8_sums.py: per head dim, length and kind of weights a line with the error of out's mean and the RMS error.
"""

import attnc
import torch

E4M3 = torch.float8_e4m3fn


def errors(head_dim: int, length: int, kind: str) -> tuple[float, float]:
    """Returns both errors, relative to the mean and the RMS of out."""
    torch.manual_seed(1)
    q = torch.randn(1, 1, 128, head_dim, device="cuda") * (kind == "drawn")  # 0: equal weights
    k, v = (torch.randn(1, 1, length, head_dim, device="cuda") for _ in range(2))
    q, k, v = (x.to(E4M3) for x in (q, k, v.abs()))
    one = torch.ones(1, 1, device="cuda")
    out = attnc.attention("score", q, k, v, q_scales=one, k_scales=one, v_scales=one).double()
    scores = q.double() @ k.double().mT / head_dim**0.5
    expected = scores.softmax(-1) @ v.double()
    return (out.mean() / expected.mean() - 1).item(), ((out - expected).norm() / expected.norm()).item()


if __name__ == "__main__":
    print(torch.cuda.get_device_name())
    for head_dim in (64, 96, 128, 192, 256):
        for length in (1024, 8192, 65536):
            for kind in ("equal", "drawn"):
                mean, rms = errors(head_dim, length, kind)
                print(f"d{head_dim} {length} keys, {kind} weights: mean {mean:+.3%}, RMS {rms:.3%}")
