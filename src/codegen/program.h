// The form between IR and text: expressions of CUDA C++ with holes, each with its level.
//
// In: a module. Out: one Expr per value that the outputs need, operands first, with all choices of spelling made:
// gathers are split into address arithmetic by level, divisions of scores are products with a hoisted reciprocal, casts
// of q_idx and kv_idx use the kernel's float indices. A sum is one Expr, whose operand depends on its index.
// mod_source.cpp decides what becomes a statement, a field or part of a larger expression.
#pragma once

#include "analysis/gradient_access.h"
#include "analysis/grid_box.h"
#include "codegen/names.h"
#include "codegen/pack_args.h"
#include "ir/capture_gradient.h"
#include "ir/loops.h"

#include <llvm/ADT/SmallVector.h>

#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

namespace attnc::codegen {

struct Expr {
  enum class Kind : uint8_t {
    Computed, ///< `text` is a pattern with {0} {1} ... for the operands
    Leaf,     ///< `text` is valid in every function: a literal or a field of ModArgs
    Param,    ///< score, b, h, q_idx, kv_idx; spelled differently by function
    Given,    ///< a parameter of row() or col(), e.g. q_float or a coordinate; a field if scores need it
    Iter,     ///< the index of a loop; `text` is its name
    Sum,      ///< sum of its one operand over `loop`
  };
  Kind kind = Kind::Computed;
  std::string text;
  llvm::SmallVector<uint32_t, 3> operands; ///< indices into Program::exprs
  std::string type;                        ///< C++ type: "float", "const int*", ...
  ir::Level level = ir::Level::Launch;
  std::string prefix, name; ///< name of a field or variable that holds it; see Names
  uint32_t line = 0;        ///< line of the mod's text; 0 if unknown
  ir::Loop loop = {};       ///< of Iter and Sum
  int cost = 1;             ///< for Computed: instructions, as ops.def counts them
  ir::LoopSet open = 0;     ///< the loops whose index it depends on; `level` then ignores that dependency
};

/// A field of ModArgs; its slot has the same index.
struct ArgField {
  std::string type, name;
};

/// A derived output.
struct Hook {
  const ir::OutputRole* role = nullptr;
  uint32_t expr = 0;
};

/// The box of keys that a query sees, along one axis of their grid. An unset bound does not restrict it.
struct BoxHook {
  std::optional<uint32_t> begin, end;
};

/// A place where a capture is read, and what it adds to the gradient.
struct GradientHook {
  unsigned capture = 0; ///< index among the requested captures
  int64_t rounds = 1;
  analysis::GradientAccess access;
  bool ofFactor = false; ///< kernels then have no reduction for it
  bool ofSink = false, ofOutputs = false, ofProb = false;
  uint32_t value = 0;
  std::optional<uint32_t> offset; ///< of the element in a dense tensor, i64; unset: 0
};

/// A reduction of the module, and its value.
struct ReductionHook {
  bool isMax = false, ofColumns = false, isOfWeights = false; ///< isOfWeights: whether the value is `prob`
  uint32_t value = 0;
};

struct Program {
  std::vector<Expr> exprs;
  std::optional<uint32_t> score, mask; ///< unset: the identity; always true
  std::optional<uint32_t> dScore;      ///< set if the module has gradients
  std::optional<uint32_t> probFactor;  ///< set if the mod has a prob_mod
  std::optional<uint32_t> sink;        ///< set if the mod has a sink_mod
  std::vector<Hook> hooks;             ///< in the order of their outputs
  bool scoresKeepNothing = false;      ///< whether functions for a score recompute values known per row and column
  bool onGrid = false;       ///< whether coordinates of q_idx and kv_idx are given: passes/grids/grid_kernel.h
  std::vector<BoxHook> box;  ///< if onGrid: by axis
  bool judgesBlocks = false; ///< whether judge() is wanted: mask_mod over ranges
  bool boxIsMask = false;    ///< if onGrid: whether mask_mod is exactly the box
  std::optional<analysis::BesideGrid> beside;         ///< if onGrid: mask_mod for off-grid tokens
  std::optional<std::vector<GradientHook>> gradients; ///< in the order of places; set if any is wanted
  std::vector<ReductionHook> reductions;              ///< in the order of ir::reductionsOf()
};

/// The fields of ModArgs, which the mods of one text share.
struct Arguments {
  std::vector<ArgWord> slots;
  std::vector<ArgField> fields;
  std::map<std::tuple<ArgWord::Kind, uint32_t, uint32_t>, size_t> indexOf;
  Names names;
};

/// Lowers a module, and adds to `arguments` what it reads. Values from `firstDerived` on are attnc's own. Outputs
/// without a role are omitted, except reductions and those of `gradients`.
Program lower(const ir::Module& module, size_t firstDerived, Arguments& arguments,
              const ir::CaptureGradients& gradients = {});

} // namespace attnc::codegen
