// The text of `attnc_config.cuh`: the static parameters of one kernel. Example:
// templates/mod/identity/attnc_config.cuh.
#pragma once

#include "attnc/tensor.h"

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace attnc::codegen {

struct Config {
  DType dtype = DType::BF16; ///< of q, k, v and out: BF16, F16 or F32
  int headDimQk = 128;
  int headDimV = 128;
  int blockM = 128; ///< q rows of a CTA's tile
  int blockN = 64;  ///< kv columns of a step
  int warps = 4;    ///< warps that compute
  bool blockSparse = false;
  int pageSize = 0;     ///< positions of a page of K and V; 0: not paged
  bool appends = false; ///< whether a launch gives new rows, which are written into K and V
  bool rowMax = false;  ///< whether a launch may ask for the row maximum
  bool tf32 = false;
  int sharedBytes = 0; ///< dynamic shared memory of a CTA: templates check their own layout against it
  int kvStages = 0;    ///< slots of the K and V rings; 0: the template has none
  int qStages = 0;     ///< slots of the Q ring; 0: the template has none
  /// Head dim of q and k, whose further columns come from tensors of their own; unset: the template does not read it.
  std::optional<int> narrowHeadDim;
  std::optional<bool> fp8;           ///< whether q, k and v are e4m3; unset: the template does not read it
  std::optional<bool> rowScales;     ///< whether e4m3 has factors of rows; unset: the template does not read it
  std::optional<bool> vInK;          ///< whether v is k's first columns; unset: the template does not read it
  std::optional<bool> deterministic; ///< whether the order of CTAs must not show; unset: the template does not read it
  std::optional<bool> takesTurns;    ///< whether CTAs take turns (algo/turns.cuh); unset: the template does not read it
  /// CTAs that load K and V for one another, and the query heads that their tiles are of: all of one, or one each.
  struct Cluster {
    int ctas = 1, heads = 1;
  };
  std::optional<Cluster> cluster;    ///< unset: the template does not read it
  std::optional<bool> sumsDiagonals; ///< whether to sum along diagonals as well; unset: the template does not read it
  /// For low_rank.cu and low_rank_gradients.cu: columns of the wider q and k, rounds of the factors, and the numbers of
  /// 16 bits that each factor is divided into.
  struct LowRank {
    int wideHeadDim = 0, rank = 0, qPieces = 1, kvPieces = 1;
    bool isApart = false;                 ///< whether these columns are tensors of their own
    std::optional<bool> sumsFactors = {}; ///< whether factors have gradients; unset: the template does not read it
  };
  std::optional<LowRank> lowRank;
  /// For box kernels: queries of a consumer; keys of a step; the axis along which the consumers of a CTA are adjacent;
  /// and how many consecutive queries in a consumer's box skip boxes of keys together. With `ownsKeys`: keys of a CTA
  /// and queries of a step.
  struct Boxes {
    std::array<int, 3> queries, keys;
    int splitAxis = 2;
    int consumers = 1;
    int together = 64;
    bool ownsKeys = false;
  };
  std::optional<Boxes> boxes;
  std::vector<int> wgmmaShapes; ///< columns of its wgmma products, if any
  std::string constants;        ///< other constants of its template, each by constantText()
};

/// Returns the declaration of a constant: "constexpr int kRank = 16;".
std::string constantText(std::string_view name, bool value);
std::string constantText(std::string_view name, int value);
std::string constantText(std::string_view name, float value);

std::string emitConfig(const Config& config);

} // namespace attnc::codegen
