// The IR: a typed, pure, hash-consed DAG of scalar operations, in one basic block.
//
// A Module holds one mod file after tracing: what it captures, and the values that score_mod and mask_mod return.
// Nodes live in an arena and are named by Value, an index into it. Operands always come before their users, so that
// walking the arena in order is a topological walk. make() returns the existing node when an equal one is there, which
// makes equality of values equality of indices. Passes add nodes and move the roots; dce() compacts the arena.
#pragma once

#include "attnc/tensor.h"

#include <llvm/ADT/ArrayRef.h>
#include <llvm/ADT/DenseMap.h>
#include <llvm/ADT/SmallVector.h>
#include <llvm/ADT/StringRef.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace attnc::ir {

enum class Type : uint8_t { Bool, I32, I64, F32 };
constexpr bool isInt(Type type) { return type == Type::I32 || type == Type::I64; }

enum class Op : uint8_t {
#define OP(Name, text, arity, rule, cuda) Name,
#include "ir/ops.def"
};

/// How the operands and the result of an operation are typed; see ops.def.
enum class TypeRule : uint8_t { Leaf, Arith, Int, Bits, Shift, Float, Compare, Test, Select, Cast, Load, Sum };

/// One row of ops.def.
struct OpInfo {
  const char* text;
  int arity; ///< -1: the rank of the tensor
  TypeRule rule;
  const char* cuda;
};
const OpInfo& info(Op op);
const char* name(Type type);

/// What a mod's functions are called with. `Score` exists in score_mod alone.
enum class ParamKind : uint8_t { Score, B, H, QIdx, KvIdx };
const char* name(ParamKind param);

/// Index of a node in its module.
struct Value {
  uint32_t id = 0;
  friend bool operator==(Value a, Value b) { return a.id == b.id; }
  friend bool operator!=(Value a, Value b) { return a.id != b.id; }
};

struct Node {
  Op op;
  Type type;
  /// Const: the bits (bool 0/1, i32 and i64 sign-extended, f32 as its 32-bit pattern).
  /// Param: a ParamKind. Scalar, Dim, Load: index into scalars, dims, tensors of the module. Iter, Sum: a Loop. Else 0.
  int64_t attr = 0;
  llvm::SmallVector<Value, 3> operands;
  /// 1-based line of the mod's text that made this value; 0 if none. Not part of the node's identity.
  uint32_t line = 0;
};

/// The loop of a sum. A Sum binds the Iter with its own attr in its operand: the value of a node that depends on an Iter
/// stands for one round of the sum around it. An inner sum that depends on the index of an outer one has the smaller id.
struct Loop {
  unsigned id = 0;   ///< below kMaxLoops in a module that verifies
  int64_t count = 1; ///< rounds; 1 to kMaxRounds

  int64_t attr() const { return int64_t(id) << 32 | count; }
  static Loop of(const Node& node) { return {unsigned(node.attr >> 32), node.attr & 0xffffffff}; }
};
constexpr unsigned kMaxLoops = 8;
constexpr int64_t kMaxRounds = int64_t(1) << 24;

/// A named extent. The first five of every module are B, H, HKV, Q_LEN, KV_LEN (BuiltinDim), then free names.
enum class BuiltinDim : uint8_t { B, H, HKV, QLen, KvLen };
constexpr unsigned kBuiltinDims = 5;

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

/// The type a gather from a tensor of this dtype has: f16, bf16, f32 -> f32; u8, i8, i16, i32 -> i32; i64; bool.
Type loadedType(DType dtype);

/// Tensors and scalars of a module together. However many axes and named extents they have, what is told of them at a
/// launch then fits into the parameters of a kernel.
constexpr size_t kMaxCaptures = 128;

class Module {
public:
  Module();

  /// File name for messages and #line; not part of the identity.
  std::string sourceName;
  std::vector<std::string> dims; ///< kBuiltinDims built-in names, then the free ones
  std::vector<TensorCapture> tensors;
  std::vector<ScalarCapture> scalars;
  std::optional<Value> scoreMod; ///< f32
  std::optional<Value> maskMod;  ///< bool
  /// A pass has moved masks from score_mod to mask_mod; for messages, not part of the identity.
  bool liftsMasks = false;

  const Node& operator[](Value value) const { return nodes[value.id]; }
  size_t size() const { return nodes.size(); }

  /// The node with this content; made if it is not there. Asserts the typing rule.
  Value make(Op op, Type type, llvm::ArrayRef<Value> operands = {}, int64_t attr = 0, uint32_t line = 0);

  Value constant(Type type, int64_t bits);
  Value constBool(bool value) { return constant(Type::Bool, value); }
  Value constInt(Type type, int64_t value) { return constant(type, type == Type::I32 ? int32_t(value) : value); }
  Value constF32(float value);
  Value param(ParamKind param) {
    return make(Op::Param, param == ParamKind::Score ? Type::F32 : Type::I32, {}, int64_t(param));
  }
  Value dim(unsigned index) { return make(Op::Dim, Type::I32, {}, index); }
  Value scalar(unsigned index) { return make(Op::Scalar, scalars[index].type, {}, index); }
  Value iter(Loop loop) { return make(Op::Iter, Type::I32, {}, loop.attr()); }

  bool isConst(Value value) const { return nodes[value.id].op == Op::Const; }
  /// The number a Const holds. Preconditions: isConst(value) and the fitting type.
  float f32(Value value) const;
  int64_t integer(Value value) const { return nodes[value.id].attr; }

private:
  std::vector<Node> nodes;
  llvm::DenseMap<uint64_t, llvm::SmallVector<uint32_t, 1>> index; // content hash -> candidates
};

/// Where a value becomes known. Row and Column are both outside Element and inside Head.
enum class Level : uint8_t { Launch, Head, Row, Column, Element };
const char* name(Level level);
/// The outermost level at which values of both levels are known.
Level join(Level a, Level b);
/// The level at which a parameter is known.
Level levelOf(ParamKind param);
/// Level at which every node of the module is computed, indexed by Value::id: launch (scalars, dims), head (b, h), row
/// (q_idx), column (kv_idx), element (score, or row and column together). What depends on the index of a sum is
/// computed with the sum.
std::vector<Level> levels(const Module& module);
/// Whether a captured tensor is read at this level.
bool hasLoad(const Module& module, Level level);

} // namespace attnc::ir
