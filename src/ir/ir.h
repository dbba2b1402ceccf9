// The IR: a typed, pure, hash-consed DAG of scalar operations, in one basic block.
//
// A Module holds one mod file after tracing: what it captures, and its outputs: the score that score_mod returns, the
// mask that mask_mod returns, and whatever else is computed of them. Nodes live in an arena and are named by Value, an
// index into it. Operands always come before their users, so that walking the arena in order is a topological walk.
// make() returns the existing node when an equal one is there, which makes equality of values equality of indices.
// Passes add nodes and move the outputs to them; dce() compacts the arena.
#pragma once

#include "attnc/tensor.h"
#include "ir/ops.h"
#include "ir/outputs.h"

#include <llvm/ADT/ArrayRef.h>
#include <llvm/ADT/DenseMap.h>
#include <llvm/ADT/SmallVector.h>
#include <llvm/ADT/StringRef.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace attnc::ir {

struct Node {
  Op op;
  Type type;
  /// Const: the bits (bool 0/1, i32 and i64 sign-extended, f32 as its 32-bit pattern).
  /// Param: a ParamKind. Scalar, Dim, Load: index into scalars, dims, tensors of the module. Iter, Sum: a Loop. Coord,
  /// InGrid: a GridAxis. Else 0.
  int64_t attr = 0;
  llvm::SmallVector<Value, 3> operands;
  /// 1-based line of the mod's text that made this value; 0 if none. Not part of the node's identity.
  uint32_t line = 0;
};

inline bool isLeaf(const Node& node) { return info(node.op).rule == TypeRule::Leaf; }
/// Precondition: isLeaf(node).
inline Leaf leafOf(const Node& node) { return Leaf(node.op); }

/// The loop of a sum. A Sum binds the Iter with its own attr in its operand: the value of a node that depends on an
/// Iter stands for one round of the sum around it. An inner sum that depends on the index of an outer one has the
/// smaller id.
struct Loop {
  unsigned id = 0;   ///< below kMaxLoops in a module that verifies
  int64_t count = 1; ///< rounds; 1 to kMaxRounds

  int64_t attr() const { return int64_t(id) << 32 | count; }
  static Loop of(const Node& node) { return {unsigned(node.attr >> 32), node.attr & 0xffffffff}; }
};
constexpr unsigned kMaxLoops = 8;
constexpr int64_t kMaxRounds = int64_t(1) << 24;

/// One extent of a captured tensor: a constant, or one of the module's named dims.
struct Extent {
  bool isNamed = false;
  int64_t value = 0; ///< the constant, or the index into Module::dims
};

/// `name: dtype[dims]`
struct TensorCapture {
  std::string name;
  DType dtype = DType::F32;
  llvm::SmallVector<Extent, 4> shape;
};

/// `name: int|float|bool`: i32, f32 or bool, given at launch.
struct ScalarCapture {
  std::string name;
  Type type = Type::F32;
};

/// `grid(HEIGHT, WIDTH, before=TEXT)`: tokens `before` to `before + HEIGHT * WIDTH - 1` lie on a grid, row-major, the last
/// axis fastest; the others lie beside it. bind() sees to it that `before` is at least 0, each extent at least 1, and
/// that the tokens up to the grid's end are no more than kMaxExtent (bindings.h); the passes rely on it.
struct Grid {
  /// What is known at launch at the latest: a constant, or an i32 scalar or a dim of the module by its index. Rest, of
  /// extents[0] alone: what `before` and the other extents leave of a length, Q_LEN or KV_LEN by its index.
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
constexpr unsigned kMaxGrids = 16; ///< of a module

/// What Coord gives of its operand, the position of a token: the coordinate along one axis of a grid,
///
///     floor_mod(floor_div(position - before, product of the extents behind axis), extent of axis)
///
/// without the modulo of axis 0, which so lies outside its extent exactly for tokens beside the grid. InGrid asks whether
/// before <= position < before + product of all extents; its axis is 0, and its grid has no Rest.
struct GridAxis {
  unsigned grid = 0, axis = 0;
  int64_t attr() const { return int64_t(grid) * kMaxGridAxes + axis; }
  static GridAxis of(const Node& node) {
    return {unsigned(node.attr / kMaxGridAxes), unsigned(node.attr % kMaxGridAxes)};
  }
};

/// The type a gather from a tensor of this dtype has: f16, bf16, f32 -> f32; u8, i8, i16, i32 -> i32; i64; bool.
Type loadedType(DType dtype);

/// Tensors and scalars of a module together. However many axes and named extents they have, what is told of them at a
/// launch then fits into the parameters of a kernel.
constexpr size_t kMaxCaptures = 128;

/// Tensors that the pass `sequences` declares beside those of the mod, [B] i32 each: operands of a launch, no captures.
/// Starts and ends: of the rows of each sequence of a ragged batch, in q and in k and v.
inline constexpr llvm::StringLiteral kKvLengthsTensor = "attnc_kv_lengths";
inline constexpr llvm::StringLiteral kQOffsetsTensor = "attnc_q_offset";
inline constexpr llvm::StringLiteral kQStartsTensor = "attnc_q_starts";
inline constexpr llvm::StringLiteral kQEndsTensor = "attnc_q_ends";
inline constexpr llvm::StringLiteral kKvStartsTensor = "attnc_kv_starts";
inline constexpr llvm::StringLiteral kKvEndsTensor = "attnc_kv_ends";
inline constexpr llvm::StringLiteral kSequenceTensors[] = {kKvLengthsTensor, kQOffsetsTensor, kQStartsTensor,
                                                           kQEndsTensor,     kKvStartsTensor, kKvEndsTensor};
/// Whether a tensor is one of these.
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
  std::vector<Grid> grids; ///< each of them once
  /// A pass has moved masks from score_mod to mask_mod; for messages, not part of the identity.
  bool liftsMasks = false;
  /// The pass lift-masks leaves masks of score_mod where they are: full blocks of a caller's lists do not ask mask_mod.
  bool keepsMasks = false;
  /// There is an output q_offset, also while a pass is still writing the module: q_idx counts from there.
  bool offsetsQueries = false;
  /// Launches give i32 scalars from -kMaxExtent to kMaxExtent alone (bindings.h), others have another module.
  bool hasNearScalars = false;

  /// The same declarations, without nodes and outputs.
  Module declarations() const;

  /// In one order however they were set: those with a role as in kRoles, then the others by name.
  llvm::ArrayRef<Output> outputs() const { return allOutputs; }
  /// The value of the output of this name (or role); nothing if there is none.
  std::optional<Value> output(llvm::StringRef name) const;
  /// Adds the output, or replaces the one of this name.
  void setOutput(llvm::StringRef name, ParamSet params, Value value);
  void setOutput(const OutputRole& role, Value value) { setOutput(role.name, role.params, value); }
  void setOutput(Output output);
  /// Removes the outputs of these names (or roles), as far as there are any.
  void dropOutputs(llvm::ArrayRef<std::string> names);
  void dropOutput(llvm::StringRef name) { dropOutputs(name.str()); }

  const Node& operator[](Value value) const { return nodes[value.id]; }
  size_t size() const { return nodes.size(); }

  /// The node with this content; made if it is not there. Asserts the typing rule.
  Value make(Op op, Type type, llvm::ArrayRef<Value> operands = {}, int64_t attr = 0, uint32_t line = 0);

  Value constant(Type type, int64_t bits);
  Value constBool(bool value) { return constant(Type::Bool, value); }
  Value constInt(Type type, int64_t value) { return constant(type, type == Type::I32 ? int32_t(value) : value); }
  Value constF32(float value);
  Value param(ParamKind param) { return make(Op::Param, typeOf(param), {}, int64_t(param)); }
  Value dim(unsigned index) { return make(Op::Dim, Type::I32, {}, index); }
  Value scalar(unsigned index) { return make(Op::Scalar, scalars[index].type, {}, index); }
  /// A number of a grid as an i32. It is no Rest.
  Value numberOf(const Grid::Number& number);
  Value iter(Loop loop) { return make(Op::Iter, Type::I32, {}, loop.attr()); }

  bool isConst(Value value) const { return nodes[value.id].op == Op::Const; }
  bool isParam(Value value, ParamKind param) const {
    return nodes[value.id].op == Op::Param && nodes[value.id].attr == int64_t(param);
  }
  /// The number a Const holds. Preconditions: isConst(value) and the fitting type.
  float f32(Value value) const;
  int64_t integer(Value value) const { return nodes[value.id].attr; }

private:
  /// Where the output of this name is, or would be.
  size_t placeOf(llvm::StringRef name) const;

  std::vector<Output> allOutputs;
  std::vector<Node> nodes;
  llvm::DenseMap<uint64_t, llvm::SmallVector<uint32_t, 1>> index; // content hash -> candidates
};

/// Whether the value is the score that the mod is given, unchanged.
inline bool isScore(const Module& module, Value value) { return module.isParam(value, ParamKind::Score); }

/// The level of a node, from those of its operands by Value::id; of what is inside a sum, as if it were outside.
Level levelOf(const Node& node, llvm::ArrayRef<Level> levels);
/// Level at which every node of the module is computed, indexed by Value::id: launch (scalars, dims), head (b, h), row
/// (q_idx), column (kv_idx), element (score, or row and column together). What depends on the index of a sum is
/// computed with the sum.
std::vector<Level> levels(const Module& module);
/// Whether a captured tensor is read at this level.
bool hasLoad(const Module& module, Level level);

} // namespace attnc::ir
