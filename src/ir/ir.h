// The IR: a typed, pure, hash-consed DAG of scalar operations, in one basic block.
//
// A Module holds one mod file after tracing: its captures and its outputs, which are the score that score_mod returns,
// the mask that mask_mod returns, and any outputs derived from these. Nodes live in an arena; a Value is an index into
// it. Operands always precede their users, so walking the arena in order is a topological walk. make() returns the
// existing node if there is an equal one, so equal values have equal indices. Passes add nodes and move the outputs to
// them; dce() compacts the arena.
#pragma once

#include "attnc/problem.h"
#include "attnc/tensor.h"
#include "ir/ops.h"
#include "ir/outputs.h"

#include <llvm/ADT/ArrayRef.h>
#include <llvm/ADT/DenseMap.h>
#include <llvm/ADT/SmallVector.h>
#include <llvm/ADT/StringRef.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace attnc::ir {

/// The largest batch, number of heads, and length of kernels, so that an index and the difference of two indices are
/// exact in f32. bind() refuses larger problems, and a number of heads that is not a multiple of HKV. The passes rely
/// on both.
using attnc::kMaxExtent;

struct Node {
  Op op;
  Type type;
  /// Const: the bits (bool 0/1, i32 and i64 sign-extended, f32 as its 32-bit pattern). Param: a ParamKind. Scalar, Dim,
  /// Load: index into scalars, dims, tensors of the module. Iter, Sum: a Loop. Coord, InGrid: a GridAxis. Otherwise 0.
  int64_t attr = 0;
  llvm::SmallVector<Value, 3> operands;
  /// 1-based line of the mod's text that made this value; 0 if unknown. Not part of the node's identity.
  uint32_t line = 0;
};

inline bool isLeaf(const Node& node) { return info(node.op).rule == TypeRule::Leaf; }
/// Precondition: isLeaf(node).
inline Leaf leafOf(const Node& node) { return Leaf(node.op); }

/// The loop of a sum. A Sum binds every Iter in its operand that has the same attr: a node that depends on an Iter is
/// computed in each round of the sum around it. If an inner sum depends on the index of an outer one, the inner sum has
/// the smaller id.
struct Loop {
  unsigned id = 0;   ///< less than kMaxLoops in a verified module
  int64_t count = 1; ///< number of rounds, 1 to kMaxRounds

  int64_t attr() const { return int64_t(id) << 32 | count; }
  static Loop of(const Node& node) { return {unsigned(node.attr >> 32), node.attr & 0xffffffff}; }
};
constexpr unsigned kMaxLoops = 8;
constexpr int64_t kMaxRounds = int64_t(1) << 24;

/// One extent of a captured tensor: a constant, or one of the module's named dims.
struct Extent {
  bool isNamed = false;
  int64_t value = 0; ///< the constant, or an index into Module::dims
};

/// `name: dtype[dims]`
struct TensorCapture {
  std::string name;
  DType dtype = DType::F32;
  llvm::SmallVector<Extent, 4> shape;
  /// Number of mods that its elements choose between: they are 0 to that less one. 0 if they choose none. Passes may
  /// not rely on it: launches on a GPU do not read elements.
  int64_t choices = 0;

  /// Takes its elements for choices between `count` mods as well; 0: does nothing.
  void addChoices(int64_t count) { choices = choices && count ? std::min(choices, count) : choices + count; }
};

/// `name: int|float|bool`: i32, f32 or bool, given at launch.
struct ScalarCapture {
  std::string name;
  Type type = Type::F32;
};

/// `grid(HEIGHT, WIDTH, before=TEXT)`: tokens `before` to `before + HEIGHT * WIDTH - 1` lie on a grid, row-major, the
/// last axis fastest. All other tokens are off-grid. bind() enforces `before` >= 0, each extent >= 1, and at most
/// kMaxExtent tokens up to the grid's end. The passes rely on this.
struct Grid {
  /// A number known at launch at the latest: a constant, or the index of an i32 scalar or of a dim of the module. Rest,
  /// only for extents[0]: the number of slices that `before` and the other extents leave of a length, with the index of
  /// Q_LEN or KV_LEN.
  struct Number {
    enum class Kind : uint8_t { Constant, Scalar, Dim, Rest } kind = Kind::Constant;
    int64_t value = 0;
    friend bool operator==(const Number& a, const Number& b) { return a.kind == b.kind && a.value == b.value; }
  };
  llvm::SmallVector<Number, 3> extents; ///< 1 to kMaxGridAxes, the slowest axis first
  Number before;
  bool hasRest() const { return !extents.empty() && extents[0].kind == Number::Kind::Rest; }
  friend bool operator==(const Grid& a, const Grid& b) { return a.extents == b.extents && a.before == b.before; }
};
constexpr unsigned kMaxGridAxes = 3;
constexpr unsigned kMaxGrids = 16; ///< per module

/// The axis of a Coord, whose operand is the position of a token. Coord is the coordinate along one axis of a grid,
///
///     floor_mod(floor_div(position - before, product of the extents behind axis), extent of axis)
///
/// without the modulo for axis 0. So coordinate 0 lies outside its extent exactly for off-grid tokens. InGrid is before
/// <= position < before + product of all extents; its axis is 0, and its grid has no Rest.
struct GridAxis {
  unsigned grid = 0, axis = 0;
  int64_t attr() const { return int64_t(grid) * kMaxGridAxes + axis; }
  static GridAxis of(const Node& node) {
    return {unsigned(node.attr / kMaxGridAxes), unsigned(node.attr % kMaxGridAxes)};
  }
};

/// Returns the type of a gather from a tensor of this dtype: f16, bf16, f32 -> f32; u8, i8, i16, i32 -> i32; i64; bool.
Type loadedType(DType dtype);

/// Limit of a module's tensors and scalars together. Whatever their number of axes and named extents, a launch's values
/// then fit into the parameters of a kernel.
constexpr size_t kMaxCaptures = 128;

/// Tensors that the pass `sequences` declares in addition to those of the mod, i32 [B] each. They are operands of a
/// launch, not captures. Starts and ends are rows of each sequence of a ragged batch, in q and in k and v.
inline constexpr llvm::StringLiteral kKvLengthsTensor = "attnc_kv_lengths";
inline constexpr llvm::StringLiteral kQOffsetsTensor = "attnc_q_offset";
inline constexpr llvm::StringLiteral kQStartsTensor = "attnc_q_starts";
inline constexpr llvm::StringLiteral kQEndsTensor = "attnc_q_ends";
inline constexpr llvm::StringLiteral kKvStartsTensor = "attnc_kv_starts";
inline constexpr llvm::StringLiteral kKvEndsTensor = "attnc_kv_ends";
inline constexpr llvm::StringLiteral kSequenceTensors[] = {kKvLengthsTensor, kQOffsetsTensor, kQStartsTensor,
                                                           kQEndsTensor,     kKvStartsTensor, kKvEndsTensor};
/// The tensor that a second walk of two reads lse from: f32, by row of q (src/passes/two_walks.h).
inline constexpr llvm::StringLiteral kLseTensor = "attnc_lse";
/// Whether a tensor is one of the pass `sequences`.
inline bool isOfSequences(const TensorCapture& tensor) {
  for (const llvm::StringLiteral& name : kSequenceTensors)
    if (tensor.name == name) return true;
  return false;
}

class Module {
public:
  Module();

  /// File name for messages and #line; not part of the identity.
  std::string sourceName;
  std::vector<std::string> dims; ///< kBuiltinDims built-in names, then the free ones
  std::vector<TensorCapture> tensors;
  std::vector<ScalarCapture> scalars;
  std::vector<Grid> grids; ///< each one once
  /// Whether a pass has moved masks from score_mod to mask_mod. For messages; not part of the identity.
  bool liftsMasks = false;
  /// Whether lift-masks leaves masks of score_mod in place, since full blocks of a caller's lists skip mask_mod.
  bool keepsMasks = false;
  /// Whether there is an output q_offset, from which q_idx counts. Also set while a pass is still writing the module.
  bool offsetsQueries = false;
  /// Whether all i32 scalars of a launch are within [-kMaxExtent, kMaxExtent]. Other launches need another
  /// module.
  bool hasNearScalars = false;

  /// Returns the same declarations, without nodes and outputs.
  Module declarations() const;

  /// Returns the outputs, in an order independent of when they were set: those with a role as in kRoles, then the
  /// others by name.
  llvm::ArrayRef<Output> outputs() const { return allOutputs; }
  /// Returns the value of the output of this name (or role), if any.
  std::optional<Value> output(llvm::StringRef name) const;
  /// Adds the output, or replaces the one of this name.
  void setOutput(llvm::StringRef name, ParamSet params, Value value);
  void setOutput(const OutputRole& role, Value value) { setOutput(role.name, role.params, value); }
  void setOutput(Output output);
  /// Removes the outputs of these names (or roles), if present.
  void dropOutputs(llvm::ArrayRef<std::string> names);
  void dropOutput(llvm::StringRef name) { dropOutputs(name.str()); }

  const Node& operator[](Value value) const { return nodes[value.id]; }
  size_t size() const { return nodes.size(); }

  /// Returns the node with this content; makes it if needed. Asserts the typing rule.
  Value make(Op op, Type type, llvm::ArrayRef<Value> operands = {}, int64_t attr = 0, uint32_t line = 0);

  Value constant(Type type, int64_t bits);
  Value constBool(bool value) { return constant(Type::Bool, value); }
  Value constInt(Type type, int64_t value) { return constant(type, type == Type::I32 ? int32_t(value) : value); }
  Value constF32(float value);
  Value param(ParamKind param) { return make(Op::Param, typeOf(param), {}, int64_t(param)); }
  Value dim(unsigned index) { return make(Op::Dim, Type::I32, {}, index); }
  Value scalar(unsigned index) { return make(Op::Scalar, scalars[index].type, {}, index); }
  /// Returns a number of a grid as an i32. Precondition: its kind is not Rest.
  Value numberOf(const Grid::Number& number);
  Value iter(Loop loop) { return make(Op::Iter, Type::I32, {}, loop.attr()); }

  bool isConst(Value value) const { return nodes[value.id].op == Op::Const; }
  bool isParam(Value value, ParamKind param) const {
    return nodes[value.id].op == Op::Param && nodes[value.id].attr == int64_t(param);
  }
  /// Return the number of a Const. Preconditions: isConst(value) and a matching type.
  float f32(Value value) const;
  int64_t integer(Value value) const { return nodes[value.id].attr; }

private:
  /// Returns the index of the output of this name, or where it would be inserted.
  size_t placeOf(llvm::StringRef name) const;

  std::vector<Output> allOutputs;
  std::vector<Node> nodes;
  llvm::DenseMap<uint64_t, llvm::SmallVector<uint32_t, 1>> index; // content hash -> candidates
};

/// Whether the value is the score that the mod is given, unchanged.
inline bool isScore(const Module& module, Value value) { return module.isParam(value, ParamKind::Score); }

} // namespace attnc::ir
