// What prepare() settles for a case with a given arch. Nothing is loaded.
#pragma once

#include "attnc/attnc.h"
#include "helpers/take.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <string>

namespace attnc::test {

inline TensorView tensor(int64_t batch, int64_t heads, int64_t length, int64_t dim, DType dtype = DType::BF16) {
  return TensorView::contiguous(nullptr, dtype, {batch, heads, length, dim});
}

struct Case {
  Operands operands{.q = tensor(2, 8, 1000, 64), .k = tensor(2, 2, 3000, 64), .v = tensor(2, 2, 3000, 32)};
  Outputs outputs{.out = tensor(2, 8, 1000, 32)};
  PrepareOptions options{.arch = "sm_90a"};
};

inline Mod mod(const char* text) { return take(Mod::parse(text)); }

inline Preparation settled(const Mod& m, const Case& c) {
  return take(Compiler().settle(m, c.operands, c.outputs, c.options));
}

/// Prepares for training, with gradients of q, k and v.
inline Preparation trained(const Mod& m, const Case& c) {
  BackwardOperands operands;
  static_cast<Operands&>(operands) = c.operands;
  operands.out = operands.dOut = *c.outputs.out;
  const auto& shape = c.operands.q.shape;
  operands.lse = TensorView::contiguous(nullptr, DType::F32, {shape[0], shape[1], shape[2]});
  Outputs outputs = c.outputs;
  outputs.lse = operands.lse;
  const BackwardOutputs gradients{.dQ = c.operands.q, .dK = c.operands.k, .dV = c.operands.v};
  return take(Compiler().settleTraining(m, operands, outputs, gradients, c.options));
}

inline std::string errorOf(const Mod& m, const Case& c) {
  return environmentErrorOf(Compiler().settle(m, c.operands, c.outputs, c.options));
}

inline const char* const kDocument =
    "ids: i32[B, KV_LEN]\ndef mask_mod(b, h, q_idx, kv_idx):\n    return ids[b, q_idx] == ids[b, kv_idx]\n";

/// A neighborhood mask over grids with the lengths of Case.
inline const char* const kNeighborhood = R"(
from attnc import grid

rows = grid(20, 50)
columns = grid(60, 50)

def mask_mod(b, h, q_idx, kv_idx):
    q, kv = rows.coords(q_idx), columns.coords(kv_idx)
    return (abs(kv[0] // 3 - q[0]) <= 2) & (abs(kv[1] - q[1]) <= 6)
)";

/// Returns a mask of qz, qy, qx and kz, ky, kx over grids whose extents are numbers of the launch.
inline Mod gridMod(int axes, const std::string& mask, const std::string& more = "") {
  const char* const names[] = {"{0}x,", "{0}y, {0}x", "{0}z, {0}y, {0}x"};
  const char* const extents[] = {"X", "Y, X", "Z, Y, X"};
  const auto of = [&](const char* side) { return fmt::format(fmt::runtime(names[axes - 1]), side); };
  return mod((std::string("from attnc import grid\nimport torch\nX: int\nY: int\nZ: int\n") + more + "tokens = grid(" +
              extents[axes - 1] + ")\ndef mask_mod(b, h, q_idx, kv_idx):\n  " + of("q") +
              " = tokens.coords(q_idx)\n  " + of("k") + " = tokens.coords(kv_idx)\n  return " + mask + "\n")
                 .c_str());
}

} // namespace attnc::test
