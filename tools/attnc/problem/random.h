// Random operands: q, k, v, and captures known only by their declarations.
#pragma once

#include "problem/host_tensor.h"

#include "attnc/block_mask.h"
#include "attnc/error.h"
#include "attnc/mod.h"

#include <map>
#include <optional>
#include <random>
#include <string>

namespace attnc::cli {

/// Shown in `attnc run --help`, because it decides which data a mod is tried on.
extern const char* const kRandomHelp;

/// Large scores, as from masks of -1e9, and the pattern of their elements: `--large SIZE[,PATTERN]`.
struct LargeScores {
  enum class Pattern { Half, FirstHalf, Rows, Tiles, Scattered, Mixed, All };
  static constexpr const char* kNames[] = {"half", "first-half", "rows", "tiles", "scattered", "mixed", "all"};
  double size = -1e9;             ///< a finite f32, not 0
  std::optional<Pattern> pattern; ///< Default: the seed chooses

  /// Parses the option. Throws CLI::ValidationError.
  static LargeScores parse(const std::string& text);
};

/// Draws from one seed. The same calls in the same order give the same numbers.
class Generator {
public:
  /// `mostElements` limits the elements of all captured tensors together. `large`: what fill() draws for tensors of
  /// which isLarge() holds.
  Generator(uint64_t seed, const ProblemShape& problem, int64_t mostElements, std::optional<LargeScores> large = {});

  /// Draws normally distributed numbers, mean 0, variance 1, in f32, f16, bf16 or e4m3.
  HostTensor normal(DType dtype, std::vector<int64_t> shape);

  /// Draws factors of elements of e4m3, from 0.5 to 1.5, in f32.
  HostTensor scales(std::vector<int64_t> shape);

  /// Draws -1, 0 and 1, whose sums of products are the same in every order.
  HostTensor signs(DType dtype, std::vector<int64_t> shape);
  /// Makes rows of k long enough for large scores. q and k: signs().
  void lengthenKeys(HostTensor& q, HostTensor& k, double scale);
  /// Whether a capture makes scores large: a float tensor along Q_LEN or KV_LEN.
  static bool isLarge(const CaptureInfo& capture);

  /// Draws i32 numbers from 0 to `most`, one for each batch entry.
  HostTensor positions(int64_t most);

  /// Chooses the extents of free dims that `freeDims` lacks: 64, or what the conditions of the launch require.
  void chooseDims(const Mod& mod, std::map<std::string, int64_t>& freeDims) const;
  /// Returns the shape of a tensor as declared. `freeDims` gives extents of dims that are not built in.
  std::vector<int64_t> shapeOf(const CaptureInfo& capture, const std::map<std::string, int64_t>& freeDims) const;

  /// Draws the elements of a tensor, whose dtype and shape are set. Blame::Environment if there are too many.
  Status fill(const CaptureInfo& capture, HostTensor& tensor);

  /// Draws a run-time scalar as declared.
  Captures::Item scalar(const CaptureInfo& capture);

private:
  /// Writes all elements, on all cores.
  template <class Distribution> void draw(const Distribution& distribution, HostTensor& tensor);
  void fillIntegers(const CaptureInfo& capture, HostTensor& tensor);
  void fillLarge(const CaptureInfo& capture, HostTensor& tensor);
  /// Returns the large number at a query and a key. `unit` is drawn from 0 .. 1.
  double largeAt(int64_t q, int64_t kv, int64_t kvLen, double unit) const;
  int64_t uniform(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random); }

  std::mt19937_64 random;
  ProblemShape problem;
  int64_t elementsLeft;
  std::optional<LargeScores> large;
};

} // namespace attnc::cli
