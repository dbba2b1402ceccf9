// The workloads of cases.json: what a case asks for, its mod, and its captures.
#pragma once

#include "attnc/attnc.h"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace attnc::bench {

struct Case {
  std::string id, kind, variant;
  nlohmann::json params;
  DType dtype = DType::BF16;
  bool fp8Kv = false; ///< k and v are e4m3: "kv_dtype" of decode cases
  ProblemShape problem;
  int headDim = 0;
  std::vector<int64_t> documentLengths;
  int64_t pageSize = 0; ///< of paged cases: K and V lie in a pool [pages, page_size, kv_heads, head_dim]
  std::vector<int32_t> kvLengths; ///< of each sequence; empty: all are whole
  bool packed = false; ///< documents are the sequences of a ragged batch, under a causal mask
  float qStd = 1; ///< standard deviation of q, and so of the scores: k is standard normal
};

/// What --kernel-family takes.
std::map<std::string, Family> familiesByName();

/// Reads a cases.json. Throws std::exception on a malformed file: this is a program, not the library.
std::vector<Case> readCases(const std::string& path);

/// A case of documents as one of a ragged batch, with an id of its own.
Case packedCase(Case c);

/// A case's mod and what it captures, in host memory.
struct CaseMod {
  Mod mod = Mod::identity();
  std::vector<float> slopes;
  std::vector<int32_t> documentId;
  Captures scalars; ///< the scalar captures; tensors are added by the caller once they are on the device
};

/// The library's mod for the case's variant, from the folder `mods`. Variants are named as the files are.
Expected<CaseMod> caseMod(const Case& c, const std::string& mods);

/// Query-key pairs of one (batch, head) that mask_mod lets live: full blocks counted whole, partial ones element by
/// element.
int64_t unmaskedPairs(const CaseMod& mod, const Captures& captures, const ProblemShape& problem);

/// Columns of KV that some query of a decode or paged case sees, over all sequences, for one KV head: what a kernel must
/// read. The last query stands at the last key of its sequence. Masks are taken to be alike in all heads.
int64_t liveColumns(const CaseMod& mod, const Captures& captures, const Case& c);

} // namespace attnc::bench
