// The workloads of cases.json: the parameters of a case, its mod, and its captures.
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
  bool fp8Kv = false; ///< whether k and v are e4m3: "kv_dtype" of decode cases
  ProblemShape problem;
  int headDim = 0;
  std::vector<int64_t> documentLengths;
  int64_t pageSize = 0;           ///< for paged cases: K and V lie in a pool [pages, page_size, kv_heads, head_dim]
  std::vector<int32_t> kvLengths; ///< for each sequence; empty: all are whole
  bool packed = false;            ///< whether documents are the sequences of a ragged batch, under a causal mask
  bool deterministic = false;     ///< whether equal launches of a backward case give equal bits
  float qStd = 1;                 ///< standard deviation of q, and so of the scores, since k is standard normal
};

/// Returns the values of --kernel-family.
std::map<std::string, Family> familiesByName();

/// Reads a cases.json. Throws std::exception on a malformed file, since only a program uses this.
std::vector<Case> readCases(const std::string& path);

/// Returns a case of documents as a ragged batch, with its own id. All documents of the batch lie in one row.
Case packedCase(Case c);

/// Returns a backward case whose gradients are deterministic, with its own id.
Case deterministicCase(Case c);

/// A case's mod and its captures, in host memory.
struct CaseMod {
  Mod mod = Mod::identity();
  std::vector<float> slopes;
  std::vector<int32_t> documentId;
  Captures scalars; ///< the scalar captures; the caller adds tensors once they are on the device
};

/// Returns the library's mod for the case's variant, from the folder `mods`. The files are named after the variants.
Expected<CaseMod> caseMod(const Case& c, const std::string& mods);

/// Counts the query-key pairs of one (batch, head) that mask_mod lets live: full blocks as a whole, partial ones
/// element by element.
int64_t unmaskedPairs(const CaseMod& mod, const Captures& captures, const ProblemShape& problem);

/// Counts the columns of KV that some query of a decode or paged case sees, over all sequences, for one KV head. A
/// kernel must read these. The last query stands at the last key of its sequence. Masks are assumed alike in all heads.
int64_t liveColumns(const CaseMod& mod, const Captures& captures, const Case& c);

} // namespace attnc::bench
