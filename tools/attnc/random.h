// Random operands: q, k, v, and captures of which only the declaration is known.
#pragma once

#include "host_tensor.h"

#include "attnc/block_mask.h"
#include "attnc/error.h"
#include "attnc/mod.h"

#include <map>
#include <optional>
#include <random>
#include <string>

namespace attnc::cli {

/// Shown in `attnc run --help`, since it decides on which data a mod is tried.
extern const char* const kRandomHelp;

/// Scores that are large, as masks of -1e9 are, and by which elements: `--large SIZE[,PATTERN]`.
struct LargeScores {
  enum class Pattern { Half, FirstHalf, Rows, Tiles, Scattered, Mixed, All };
  static constexpr const char* kNames[] = {"half", "first-half", "rows", "tiles", "scattered", "mixed", "all"};
  double size = -1e9;             ///< a finite f32, not 0
  std::optional<Pattern> pattern; ///< not given: the seed chooses

  /// Throws CLI::ValidationError.
  static LargeScores parse(const std::string& text);
};

/// Draws from one seed; the same calls in the same order give the same numbers.
class Generator {
public:
  /// `mostElements`: of captured tensors, all together. `large`: what fill() draws, where isLarge().
  Generator(uint64_t seed, const ProblemShape& problem, int64_t mostElements, std::optional<LargeScores> large = {});

  /// Normally distributed, mean 0, variance 1; f32, f16 or bf16.
  HostTensor normal(DType dtype, std::vector<int64_t> shape);

  /// -1, 0 and 1: no two orders of summing their products differ.
  HostTensor signs(DType dtype, std::vector<int64_t> shape);
  /// Makes rows of k so long that scores are large by products. q and k: signs().
  void lengthenKeys(HostTensor& q, HostTensor& k, double scale);
  /// Whether a capture makes scores large: a float tensor along Q_LEN or KV_LEN.
  static bool isLarge(const CaptureInfo& capture);

  /// i32, one for each batch entry: 0 to `most`.
  HostTensor positions(int64_t most);

  /// Chooses the extents of free dims that `freeDims` lacks: 64, or what the conditions of the launch make of it.
  void chooseDims(const ir::Module& module, std::map<std::string, int64_t>& freeDims) const;
  /// The shape of a tensor as declared. `freeDims` gives extents for dims that are not built in.
  std::vector<int64_t> shapeOf(const CaptureInfo& capture, const std::map<std::string, int64_t>& freeDims) const;

  /// Draws the elements of a tensor that has its dtype and shape. Blame::Environment if there are too many.
  Status fill(const CaptureInfo& capture, HostTensor& tensor);

  /// A run-time scalar as declared.
  Captures::Item scalar(const CaptureInfo& capture);

private:
  /// Writes all elements, on all cores.
  template <class Distribution> void draw(const Distribution& distribution, HostTensor& tensor);
  void fillIntegers(const CaptureInfo& capture, HostTensor& tensor);
  void fillLarge(const CaptureInfo& capture, HostTensor& tensor);
  /// Returns what stands at a query and a key; `unit`: drawn from 0 .. 1.
  double largeAt(int64_t q, int64_t kv, int64_t kvLen, double unit) const;
  int64_t uniform(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random); }

  std::mt19937_64 random;
  ProblemShape problem;
  int64_t elementsLeft;
  std::optional<LargeScores> large;
};

} // namespace attnc::cli
