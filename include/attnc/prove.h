// Claims about a mask, proved for all launches or refuted by an example.
#pragma once

#include "attnc/error.h"
#include "attnc/mod.h"
#include "attnc/problem.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace attnc {

/// What is claimed of a mod. A score lives if mask_mod is true and score_mod does not return a written -inf for it, as
/// in `torch.where(near, score, -float("inf"))`. A -inf that comes from captured values counts as a score.
struct Claim {
  /// Kind of a claim.
  enum class Kind {
    Holds,         ///< `other` is true for each live score.
    Never,         ///< `other` is false for each live score.
    EveryRowLives, ///< Each row of q has a live score.
    SameMask,      ///< The scores that live are those of `other`.
    Same,          ///< The same, and live scores are equal, NaN to NaN.
  };
  Kind kind = Kind::Holds;  ///< Kind of the claim.
  std::optional<Mod> other; ///< A property as a mod with a mask_mod; for SameMask and Same, the other mod. Captures and
                            ///< extents of equal names are the same.
};

/// How a claim is proved.
struct ProofOptions {
  std::vector<Mod> assumptions;           ///< Mods whose mask_mod is taken to be true at the score in question.
  std::vector<std::string> nondecreasing; ///< Captured tensors whose elements do not decrease along the last axis.
  double seconds = 10;                    ///< Time for the solver.
  std::string solver;                     ///< Path of libz3. Default: $ATTNC_Z3, else the system's.
  /// Whether the claim is about launches with KV lengths (Operands::kvLengths): all lengths from 1 to KV_LEN.
  bool kvLengths = false;
  /// Where queries stand in the launches. Default: FromLengths if kvLengths, else None. For FromLengths and Tensor the
  /// claim is about queries that stand at a key: Tensor is all offsets for which a query does.
  std::optional<QueryOffsets> offsets;
};

/// An element of a captured tensor, or a captured scalar, in an example.
struct ExampleCapture {
  std::string name;           ///< Name of the capture.
  std::vector<int64_t> index; ///< Index of the element; empty for a scalar.
  std::string value;          ///< Value as text: "3", "-inf", "True".
};

/// A line of a mod's text.
struct TextLine {
  int64_t number = 0; ///< Number of the line, from 1.
  std::string text;   ///< The line without the space around it; empty if the mod has no text.
};

/// What came of a claim.
struct Proof {
  /// Answer to a claim.
  enum class Answer {
    Proved,    ///< It holds for all b, h, indices, extents of at least 1, and captures that the assumptions allow.
               ///< Some do: assumptions that nothing meets are Undecided.
    Refuted,   ///< It does not hold; the members below are an example.
    Undecided, ///< Neither was found; `why` says what stands in the way.
  };
  Answer answer = Answer::Undecided;      ///< Answer to the claim.
  std::string by;                         ///< What decided: "intervals", "examples", "Z3 4.8.12".
  std::string why;                        ///< Why it is undecided. Otherwise empty.
  ProblemShape problem;                   ///< Extents of the example.
  std::map<std::string, int64_t> extents; ///< Other extents of the example, by name.
  std::optional<int64_t> kvLength;        ///< KV length of the example's sequence, for ProofOptions::kvLengths.
  std::optional<int64_t> qOffset;         ///< Position of its first query, if queries have offsets.
  int64_t b = 0;                          ///< Batch entry of the example.
  int64_t h = 0;                          ///< Query head of the example.
  int64_t qIdx = 0;                       ///< Query of the example, by position.
  int64_t kvIdx = 0;                      ///< Key of the example; 0 for EveryRowLives.
  std::vector<ExampleCapture> captures;   ///< Captures that the claim reads there.
  /// The mask of b and h, a line for each row: '#' live, '.' not, 'X' or 'o' the element in question, live or not.
  /// Only 32 rows and columns around it if there are more.
  std::string picture;
  int64_t pictureQIdx = 0;  ///< Query of the picture's first row, by position.
  int64_t pictureKvIdx = 0; ///< Key of the picture's first column.
  /// Lines of the mod that make the score in question live, or masked. A false `&` is decided by its first false
  /// operand, a true `|` by its first true one. For EveryRowLives, the lines that mask the row.
  std::vector<TextLine> deciding;
};

/// Proves a claim about a mod, or finds an example against it, small extents first. It is about launches whose
/// positions count from 0, unless the options say otherwise. Intervals and examples come first, then Z3
/// (https://github.com/Z3Prover/z3), which is opened at run time. Integers are bit-vectors, f32 are IEEE floats,
/// captured tensors are functions; an example of Z3 is evaluated before it is told. Without Z3, claims that neither
/// intervals nor examples decide are Undecided. Needs no GPU. Errors (environment): `other` is missing, one capture
/// has two declarations, or a capture has a name that attnc reserves.
Expected<Proof> prove(const Mod& mod, const Claim& claim, const ProofOptions& options = {});

/// Returns the mod whose mask_mod is an expression: "kv_idx <= q_idx". It may use the captures of `mod`, and the
/// constants and functions of its text. `name` is the expression's name in messages. Errors: those of Mod::parse().
Expected<Mod> propertyOf(const Mod& mod, std::string_view expression, const std::string& name = "<claim>");

/// Adds assumptions of a text, which semicolons separate: expressions, or "NAME does not decrease". `name` is the
/// text's name in messages. Errors: those of propertyOf(); Blame::Environment if the mod captures no tensor NAME with
/// an axis.
Status addAssumptions(const Mod& mod, std::string_view text, ProofOptions& options,
                      const std::string& name = "<assumption>");

/// Returns one JSON object of a proof: {"answer", "by", "why", "example"}. Members that are empty are left out.
std::string toJson(const Proof& proof);

} // namespace attnc
