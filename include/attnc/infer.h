// A mod from a tensor: the text of a mask that is given element by element.
#pragma once

#include "attnc/captures.h"
#include "attnc/error.h"
#include "attnc/mod.h"
#include "attnc/problem.h"

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace attnc {

/// A captured tensor that an inferred mod reads: i32 or bool, dense, in host memory.
struct InferredCapture {
  std::string name;           ///< Name of the capture.
  DType dtype = DType::I32;   ///< Type of its elements.
  std::vector<int64_t> shape; ///< Its extents.
  std::vector<char> bytes;    ///< Its elements, row-major.
  /// Returns a borrowed view, valid as long as this object lives unchanged.
  TensorView view() const;
};

/// A simpler mask from which a mask differs in few elements that lie apart.
struct MaskNoise {
  int64_t elements = 0;                       ///< Number of elements that differ, over all batch entries and heads.
  std::string expression;                     ///< The simpler mask_mod.
  std::vector<std::array<int64_t, 4>> places; ///< The first few: b, h, q_idx, kv_idx.
};

/// What a mask was found to be.
struct Inference {
  /// What the mod reads.
  enum class Form {
    Formula,   ///< Numbers, and captures by batch entry, head or position, such as documents and lengths.
    Intervals, ///< Also a first and a last query or key by position.
    Table,     ///< Also a table of blocks, of distances, or of all elements.
  };
  Form form = Form::Formula;             ///< What the mod reads.
  std::string text;                      ///< Text of the mod.
  std::string expression;                ///< What its mask_mod returns, in one line.
  Mod mod = Mod::identity();             ///< The mod.
  std::vector<InferredCapture> captures; ///< Captures of the mod.
  std::vector<std::string> recognised;   ///< What was recognised: "causal", "a window of 1024 keys".
  std::string otherLengths;              ///< What the text means for other lengths, as a sentence.
  std::optional<MaskNoise> noise;        ///< Set if few elements keep the mask from being a simpler one.
  ProblemShape problem;                  ///< Extents of the mask.
  double live = 0;                       ///< Share of live elements.
  int64_t fullBlocks = 0;                ///< Number of blocks of 128 x 128 whose elements all live.
  int64_t partialBlocks = 0;             ///< Number of blocks with live and masked elements.
  int64_t emptyBlocks = 0;               ///< Number of blocks without live elements.
  double seconds = 0;                    ///< Time that it took.

  /// Returns the captures by name, as views of this object.
  Captures views() const;
};

/// Finds the shortest mod that is equal to a mask on every element; each was compared. The mask is [Q, KV], [B, Q, KV]
/// or [B, H, Q, KV], in host memory, of any strides. A score lives where a bool is true, an int 1, a float 0. It is
/// masked where they are false, 0, or -1e4 and less. `name` is the mask's name in the text. Uses all cores; needs no
/// GPU. Errors (environment): another rank or dtype, an element that is neither, no elements, more than 2^33.
Expected<Inference> infer(const TensorView& mask, const std::string& name = "a mask");

/// Returns one JSON object: the members of an inference, with the values of captures.
std::string toJson(const Inference& inference);

} // namespace attnc
