// Random operands: q, k, v, and captures of which only the declaration is known.
#pragma once

#include "safetensors.h"

#include "attnc/block_mask.h"
#include "attnc/mod.h"

#include <map>
#include <random>
#include <string>

namespace attnc::cli {

/// Told in `attnc run --help`, since it decides what a mod is tried on.
extern const char* const kRandomHelp;

/// Draws from one seed; the same calls in the same order give the same numbers.
class Generator {
public:
  Generator(uint64_t seed, const ProblemShape& problem) : random(seed), problem(problem) {}

  /// Normally distributed, mean 0, variance 1; f32, f16 or bf16.
  HostTensor normal(DType dtype, std::vector<int64_t> shape);

  /// A tensor as declared. `freeDims` gives extents for dims that are not built in, and receives those that it lacks.
  Expected<HostTensor> tensor(const CaptureInfo& capture, std::map<std::string, int64_t>& freeDims);

  /// A run-time scalar as declared.
  Captures::Value scalar(const CaptureInfo& capture);

private:
  HostTensor integers(const CaptureInfo& capture, std::vector<int64_t> shape);
  int64_t uniform(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random); }

  std::mt19937_64 random;
  ProblemShape problem;
};

} // namespace attnc::cli
