// The text of `attnc_config.cuh`: what is static in one kernel. templates/mod/identity/attnc_config.cuh is an instance.
#pragma once

#include "attnc/tensor.h"

#include <array>
#include <optional>
#include <string>
#include <vector>

namespace attnc::codegen {

struct Config {
  DType dtype = DType::BF16; ///< of q, k, v and out: BF16, F16 or F32
  int headDimQk = 128;
  int headDimV = 128;
  int blockM = 128; ///< q rows of a CTA's tile
  int blockN = 64;  ///< kv columns of a step
  int warps = 4;    ///< that compute
  bool blockSparse = false;
  int pageSize = 0;    ///< positions of a page of K and V; 0: they do not lie in pages
  bool appends = false; ///< new rows of K and V are given, which are written into K and V
  bool rowMax = false; ///< the row maximum may be asked for
  bool tf32 = false;
  int sharedBytes = 0;          ///< dynamic shared memory of a CTA: templates hold their own layout to it
  int kvStages = 0;             ///< slots of the K and V rings; 0: the template has none
  int qStages = 0;              ///< slots of the Q ring, likewise
  std::optional<bool> fp8Kv;         ///< k and v are e4m3; unset: the template does not ask
  std::optional<bool> deterministic; ///< whether the order of CTAs may not show; unset: the template does not ask
  std::optional<bool> takesTurns;    ///< whether it does as templates/algo/turns.cuh says, likewise
  std::optional<bool> sumsDiagonals; ///< gradients are added up along diagonals, too; unset: the template does not ask
  /// Of kernels by boxes of a grid: queries of a consumer, keys of a step, and the axis along which the consumers of a
  /// CTA lie side by side; and how many queries, one after the other in a consumer's box, pass over boxes of keys
  /// together. Or, if `ownsKeys`, keys of a CTA and queries of a step.
  struct Boxes {
    std::array<int, 3> queries, keys;
    int splitAxis = 2;
    int consumers = 1;
    int together = 64;
    bool ownsKeys = false;
  };
  std::optional<Boxes> boxes;
  std::vector<int> wgmmaShapes; ///< columns of its products by wgmma, if there are any
};

std::string emitConfig(const Config& config);

} // namespace attnc::codegen
