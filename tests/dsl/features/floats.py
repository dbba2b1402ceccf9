"""Functions of floats, as functions and as methods."""
import math
import torch
import torch.nn.functional as F


def score_mod(score, b, h, q_idx, kv_idx):
    x = score / 4
    y = torch.exp(-x.abs()) + torch.exp2(x) + torch.log(x.abs() + 1.0) + (x * x + 0.5).log2() + torch.log1p(x * x) + torch.log10(x * x + 1)
    y = y + torch.tanh(x) + x.sigmoid() + torch.sin(x) + x.cos() + torch.tan(x / 8) + torch.sqrt(x * x + 1)
    y = y + (x * x + 1).rsqrt() + F.silu(x) + F.gelu(x) + F.gelu(x, approximate="tanh") + F.relu(x) + F.softplus(x)
    y = y + torch.erf(x) + torch.floor(x) + x.ceil() + torch.round(x) + x.trunc() + torch.sign(x) + torch.square(x)
    y = y + F.leaky_relu(x, 0.1) + F.logsigmoid(x) + torch.reciprocal(x * x + 1) + torch.pow(x, 3) + x**2 + 2**x
    y = y + x % 0.75 + x // 0.75 + torch.fmod(x, 0.75) + torch.remainder(x, -0.75) + (x * x + 1) ** -0.5 + x**-2 * 1e-9
    y = y + math.sqrt(2) * math.pi + math.floor(2.7) + math.exp(-0.5) + math.log(3, 2) + (x * x) ** 0.5 + (x * x) ** 1.3
    y = y + torch.expm1(x / 4) + (x * 1e-6).expm1() * 1e6 + math.expm1(1e-9)
    y = y + torch.asin(torch.tanh(x)) + torch.tanh(x).acos() + torch.arctan(x) + torch.atan2(x, q_idx - 3) + torch.sinh(x) - x.cosh()
    y = y + torch.asinh(x * 1000) + x.arcsinh() + (x * x + 1.5).acosh() + torch.arctanh(torch.tanh(x) / 2) + torch.erfc(x + 2) * 100
    y = y + torch.special.erfc(-x) + torch.sinc(x) + (x * 1e-3).sinc() + torch.special.sinc(q_idx / 4) + torch.hypot(x, h)
    y = y + math.hypot(3, 4, 12) + math.atan2(-1, -2) + math.asinh(-3.5) + math.erfc(2) + math.acos(0.25)
    return y + 0.1 * score - 1e-3 + 3.0 ** (x / 8) + math.floor(x) + torch.tensor(0.25)
