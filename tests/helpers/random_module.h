// Random modules: well-typed, verified, with captures, and data to run them with. For tests of every layer.
//
//   attnc::test::RandomModule random(seed);          // the same seed gives the same module and data everywhere
//   auto bindings = ir::bind(random.module, random.captures, random.problem);
//
// The modules contain what hand-written mods rarely do: negative gather indices, zero divisors, NaN and inf, saturating
// casts, wrap-around, shared subexpressions, sums inside sums. Both roots exist; mask_mod does not depend on score.
#pragma once

#include "attnc/block_mask.h"
#include "ir/ir.h"
#include "ir/walk.h"
#include "support/element.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <deque>
#include <limits>
#include <random>
#include <vector>

namespace attnc::test {

struct RandomModuleOptions {
  int operations = 24;        ///< operations drawn; some are shared or dead
  bool floats = true;         ///< f32 arithmetic and casts between f32 and integers; else only integers and bools
  bool transcendental = true; ///< exp, sin, random, ...; without them f32 results are exact or correctly rounded
  bool longRows = false;      ///< lengths of 2^24, the largest; tensors along them repeat one element (stride 0)
  bool lowRank = false;       ///< score_mod sees the score plus a low-rank term, which is exact in f32; needs floats
};

class RandomModule {
public:
  ir::Module module;
  Captures captures; ///< in host memory, owned by this object
  ProblemShape problem{.batch = 2, .qHeads = 4, .kvHeads = 2, .qLen = 13, .kvLen = 17};

  explicit RandomModule(uint64_t seed, RandomModuleOptions options = {}) : random(seed), options(options) {
    if (options.longRows) problem.qLen = problem.kvLen = ir::kMaxExtent;
    makeCaptures();
    makeLeaves();
    for (int i = 0; i < options.operations; ++i) makeOperation();
    module.setOutput(ir::kScore, scoreRoot());
    module.setOutput(ir::kMask, maskRoot());
    module.setOutput("of_row", kRowParams, rowRoot()); // an unknown name
  }
  RandomModule(const RandomModule&) = delete; // the captures point into this object

  /// Returns a value for `score` at the i-th sample: mostly usual ones, sometimes NaN, inf, -0, or large ones.
  static double sampleScore(uint64_t i) {
    static const double kSpecial[] = {0.0,
                                      -0.0,
                                      1.0,
                                      -1e9,
                                      std::numeric_limits<double>::infinity(),
                                      -std::numeric_limits<double>::infinity(),
                                      std::numeric_limits<double>::quiet_NaN(),
                                      1e4,
                                      -double(std::numeric_limits<float>::max()),
                                      float(3e38),
                                      -1e6};
    if (i % 5 == 4) return kSpecial[i / 5 % std::size(kSpecial)];
    return double(float((double(i * 2654435761u % 4001) - 2000) / 128));
  }

private:
  using Type = ir::Type;
  using Op = ir::Op;
  using Value = ir::Value;

  static constexpr ir::ParamSet kRowParams = {ir::ParamKind::B, ir::ParamKind::H, ir::ParamKind::QIdx};

  std::mt19937_64 random;
  RandomModuleOptions options;
  std::deque<std::vector<char>> storage;
  std::vector<Value> values[4];
  Value withTerm; ///< the score plus a low-rank term, if options ask for it

  // mt19937_64 is the same everywhere; the standard distributions are not.
  uint64_t below(uint64_t bound) { return random() % bound; }
  template <class T> const T& pick(const std::vector<T>& from) { return from[below(from.size())]; }

  Type pickType() {
    static const std::vector<Type> kAll = {Type::Bool, Type::I32, Type::I32, Type::I64, Type::F32, Type::F32};
    static const std::vector<Type> kIntegers = {Type::Bool, Type::I32, Type::I32, Type::I64};
    return pick(options.floats ? kAll : kIntegers);
  }

  // ---- Captures ----

  int64_t interestingInteger() {
    static const std::vector<int64_t> kSpecial = {0, 1, -1, 2, -2, 3, 7, 8, -8, 31, 33, 255, -128, 32767};
    return pick(kSpecial);
  }

  void store(DType dtype, char* at) {
    static const std::vector<float> kReals = {0.f,
                                              -0.f,
                                              1.f,
                                              -1.f,
                                              0.5f,
                                              3.25f,
                                              -2.75f,
                                              1e30f,
                                              -1e-30f,
                                              1e4f,
                                              -1e9f,
                                              std::numeric_limits<float>::lowest(),
                                              std::numeric_limits<float>::infinity(),
                                              std::numeric_limits<float>::quiet_NaN()};
    int64_t integer = interestingInteger();
    float real = pick(kReals);
    uint16_t bf16 = toBf16(real), f16 = uint16_t(below(0x10000));
    switch (dtype) {
    case DType::Bool: *at = char(below(2)); break;
    case DType::U8:
    case DType::I8:
    case DType::E4M3: *at = char(integer); break;
    case DType::I16: std::memcpy(at, &integer, 2); break;
    case DType::I32: std::memcpy(at, &integer, 4); break;
    case DType::I64: std::memcpy(at, &integer, 8); break;
    case DType::F16: std::memcpy(at, &f16, 2); break;
    case DType::BF16: std::memcpy(at, &bf16, 2); break;
    case DType::F32: std::memcpy(at, &real, 4); break;
    }
  }

  /// Declares a tensor and gives it data. Sometimes two axes are transposed in memory; long ones have stride 0.
  void addTensor(const char* name, DType dtype, std::initializer_list<std::pair<ir::Extent, int64_t>> axes) {
    ir::TensorCapture capture{name, dtype, {}};
    TensorView view{.dtype = dtype, .rank = int(axes.size())};
    int64_t count = 1;
    bool transposed = below(2);
    for (const auto& [extent, value] : axes) {
      view.shape[capture.shape.size()] = value;
      capture.shape.push_back(extent);
    }
    for (int i = 0; i < view.rank; ++i) {
      int axis = transposed ? i : view.rank - 1 - i;
      bool isLong = view.shape[axis] > 1000;
      view.stride[axis] = isLong ? 0 : count;
      count *= isLong ? 1 : view.shape[axis];
    }
    storage.emplace_back(size_t(count * dtypeBytes(dtype)));
    for (int64_t i = 0; i < count; ++i) store(dtype, storage.back().data() + i * dtypeBytes(dtype));
    view.data = storage.back().data();
    captures.set(name, view);
    module.tensors.push_back(std::move(capture));
  }

  static ir::Extent named(ir::BuiltinDim dim) { return {true, int64_t(dim)}; }
  static ir::Extent constant(int64_t value) { return {false, value}; }

  void makeCaptures() {
    static const std::vector<DType> kIntegers = {DType::Bool, DType::U8, DType::I8, DType::I16, DType::I32, DType::I64};
    static const std::vector<DType> kReals = {DType::F16, DType::BF16, DType::F32};
    const ir::Extent free = {true, int64_t(ir::kBuiltinDims)};
    module.sourceName = "random.py";
    module.dims.push_back("N");
    if (options.floats) addTensor("slopes", DType::F32, {{named(ir::BuiltinDim::H), problem.qHeads}});
    addTensor("document_id", DType::I32, {{named(ir::BuiltinDim::KvLen), problem.kvLen}});
    addTensor("table", pick(kIntegers), {{free, 5}, {constant(3), 3}});
    addTensor("bias", pick(options.floats ? kReals : kIntegers),
              {{named(ir::BuiltinDim::QLen), problem.qLen}, {free, 5}});
    addTensor("offset", DType::I32, {});
    module.scalars = {{"window", Type::I32}, {"causal", Type::Bool}};
    captures.set("window", interestingInteger()).set("causal", below(2) == 1);
    if (!options.floats) return;
    module.scalars.push_back({"cap", Type::F32});
    captures.set("cap", double(float(below(64)) / 4 - 4));
    if (!options.lowRank) return;
    addFactors("of_queries", pick(kReals), {named(ir::BuiltinDim::QLen), problem.qLen});
    addFactors("of_keys", pick(kReals), {named(ir::BuiltinDim::KvLen), problem.kvLen});
  }

  /// Declares factors of a low-rank term. They are small multiples of 1/4.
  void addFactors(const char* name, DType dtype, std::pair<ir::Extent, int64_t> rows) {
    addTensor(name, dtype, {rows, {constant(kFactors), kFactors}});
    std::vector<char>& data = storage.back();
    for (int64_t i = 0; i < int64_t(data.size()) / dtypeBytes(dtype); ++i)
      writeElement(data.data(), dtype, i, (double(below(17)) - 8) / 4);
  }

  // ---- Values ----

  void remember(Value value) { values[size_t(module[value].type)].push_back(value); }

  void makeLeaves() {
    using ir::ParamKind;
    for (ParamKind param : {ParamKind::B, ParamKind::H, ParamKind::QIdx, ParamKind::KvIdx})
      remember(module.param(param));
    for (unsigned dim = 0; dim < module.dims.size(); ++dim) remember(module.dim(dim));
    for (unsigned i = 0; i < module.scalars.size(); ++i) remember(module.scalar(i));
    for (bool value : {false, true}) remember(module.constBool(value));
    for (int64_t value : {0, 1, -1, 2, 7, -3, 64}) remember(module.constInt(Type::I32, value));
    for (int64_t value : {0, 1, -5, 1 << 30}) remember(module.constInt(Type::I64, value));
    remember(module.constInt(Type::I32, int64_t(uint32_t(random()))));
    remember(module.constInt(Type::I64, int64_t(random())));
    if (!options.floats) return;
    for (float value : {0.f, -0.f, 1.f, -1.f, 2.f, 0.5f, 0.1f, 3e38f, 1e-40f, -1e9f}) remember(module.constF32(value));
    remember(module.constF32(std::numeric_limits<float>::infinity()));
    remember(module.constF32(std::numeric_limits<float>::quiet_NaN()));
    if (options.lowRank) withTerm = scoreWithTerm();
    remember(options.lowRank ? withTerm : module.param(ParamKind::Score));
    if (options.lowRank && below(8) == 0) remember(module.param(ParamKind::Score)); // without the term
  }

  // ---- Low-rank terms ----

  static constexpr int64_t kFactors = 5; ///< of a row, and of a column

  /// Returns a sum of products over a loop, or one product.
  Value term() {
    static const std::vector<float> kGains = {1, -1, 0.5f, 2, 4};
    const int64_t tensors = int64_t(module.tensors.size());
    const ir::Loop loop{0, int64_t(2 + below(kFactors - 1))};
    const bool isSum = below(3);
    const Value at = isSum ? module.iter(loop) : module.constInt(Type::I32, int64_t(below(kFactors)));
    const auto factor = [&](ir::ParamKind row, int64_t tensor) {
      return module.make(Op::Load, Type::F32, {module.param(row), at}, tensor, 2);
    };
    Value q = factor(ir::ParamKind::QIdx, tensors - 2), kv = factor(ir::ParamKind::KvIdx, tensors - 1);
    if (below(3) == 0) q = module.make(Op::Mul, Type::F32, {q, module.scalar(2)});
    if (below(3) == 0) std::swap(q, kv);
    Value value = module.make(Op::Mul, Type::F32, {q, kv}, 0, 2);
    if (isSum) value = module.make(Op::Sum, Type::F32, {value}, loop.attr(), 2);
    const Value gain = module.constF32(pick(kGains));
    return below(2) ? module.make(below(2) ? Op::Mul : Op::Div, Type::F32, {value, gain}, 0, 2) : value;
  }

  Value scoreWithTerm() {
    const Value score = module.param(ir::ParamKind::Score);
    const auto join = [&](Op op, Value x, Value y) { return module.make(op, Type::F32, {x, y}, 0, 3); };
    Value sum = below(4) ? join(below(2) ? Op::Add : Op::Sub, score, term()) : join(Op::Add, term(), score);
    if (below(3) == 0) sum = join(below(2) ? Op::Add : Op::Sub, sum, term());
    if (!options.longRows && below(3) == 0) { // an addend that is no product
      const Value distance =
          module.make(Op::Sub, Type::I32, {module.param(ir::ParamKind::KvIdx), module.param(ir::ParamKind::QIdx)});
      sum = join(Op::Add, sum, module.make(Op::Cast, Type::F32, {distance}));
    }
    return sum;
  }

  Value operandOf(Type type) {
    const std::vector<Value>& from = values[size_t(type)];
    if (type == Type::I32 && below(4) == 0) return indexLike();
    size_t recent = std::min<size_t>(from.size(), 6); // chains grow deep only if fresh values are preferred
    return below(2) ? from[from.size() - 1 - below(recent)] : pick(from);
  }

  bool isTranscendental(Op op) { return op >= Op::Exp && op <= Op::Pow && !(op >= Op::Floor && op <= Op::Round); }

  bool admits(Op op, Type type) {
    switch (ir::info(op).rule) {
    case ir::TypeRule::Arith: return type != Type::Bool;
    case ir::TypeRule::Int:
    case ir::TypeRule::Shift: return type == Type::I32 || type == Type::I64;
    case ir::TypeRule::Bits: return type != Type::F32;
    case ir::TypeRule::Float:
    case ir::TypeRule::Test: return type == Type::F32 && (options.transcendental || !isTranscendental(op));
    case ir::TypeRule::Random: return type == Type::F32 && options.transcendental;
    case ir::TypeRule::Compare:
    case ir::TypeRule::Select:
    case ir::TypeRule::Cast:
    case ir::TypeRule::Load: return true;
    case ir::TypeRule::Leaf:
    case ir::TypeRule::Grid:
    case ir::TypeRule::Sum: return false;
    }
    return false;
  }

  Value makeLoad(int64_t tensor) {
    llvm::SmallVector<Value, 3> index;
    for (size_t axis = 0; axis < module.tensors[tensor].shape.size(); ++axis)
      index.push_back(operandOf(below(4) ? Type::I32 : Type::I64));
    return module.make(Op::Load, ir::loadedType(module.tensors[tensor].dtype), index, tensor, uint32_t(1 + below(9)));
  }

  /// Returns a value as in masks and index expressions.
  Value indexLike() {
    switch (below(6)) {
    case 0:
    case 1: return module.param(ir::ParamKind::QIdx);
    case 2:
    case 3: return module.param(ir::ParamKind::KvIdx);
    case 4: return module.scalar(0);
    default: return module.constInt(Type::I32, interestingInteger());
    }
  }

  /// Returns indexLike() as an i64: as PyTorch's positions, or a number beyond 32 bits.
  Value wideIndexLike() {
    if (below(6) == 0) return module.constInt(Type::I64, int64_t(1) << (29 + below(34)));
    return module.make(Op::Cast, Type::I64, {indexLike()});
  }

  Value indexSum(Type type) {
    const auto leaf = [&] { return type == Type::I64 ? wideIndexLike() : indexLike(); };
    Value sum = leaf();
    for (uint64_t terms = below(4); terms-- > 0;) {
      static const std::vector<Op> kOps = {Op::Add, Op::Add, Op::Sub, Op::Sub, Op::Mul, Op::Neg};
      static const std::vector<Op> kWideOps = {Op::Add, Op::Sub,      Op::Sub, Op::Mul, Op::Neg,
                                               Op::And, Op::FloorDiv, Op::Mod, Op::Shr};
      Op op = pick(type == Type::I64 ? kWideOps : kOps);
      sum = op == Op::Neg ? module.make(op, type, {sum}) : module.make(op, type, {sum, leaf()});
    }
    return sum;
  }

  /// Makes an idiom of real mods that random draws seldom produce: a comparison of index sums, the wrap or the clamp of
  /// an index by select, and (`floats`) the cast of an index sum. Sums may be distances.
  Value makeIdiom() {
    static const std::vector<Op> kCompare = {Op::Lt, Op::Le, Op::Eq, Op::Ne};
    uint64_t kind = below(options.floats ? 4 : 3);
    const Type type = below(3) ? Type::I32 : Type::I64;
    if (kind == 3) return module.make(Op::Cast, Type::F32, {indexSum(type)});
    Value x = indexSum(type), y = indexSum(type);
    if (below(3) == 0) x = module.make(Op::Abs, type, {x});
    Value condition = module.make(pick(kCompare), Type::Bool, {x, y});
    if (kind == 0) return condition;
    Value other = kind == 1 ? y : module.make(Op::Add, type, {x, type == Type::I64 ? wideIndexLike() : indexLike()});
    return module.make(Op::Select, type, {condition, below(2) ? other : x, below(2) ? x : other});
  }

  /// Makes a value that depends on the index of a sum, plain or in the form in which indices are used; `depth` bounds
  /// it.
  Value openTerm(Type type, Value index, int depth) {
    static const std::vector<Op> kOps = {Op::Add, Op::Sub, Op::Mul, Op::Min};
    if (depth > 0 && below(2))
      return module.make(pick(kOps), type, {openTerm(type, index, depth - 1), operandOf(type)}, 0, 3);
    const int64_t tensor = int64_t(below(module.tensors.size()));
    const ir::TensorCapture& capture = module.tensors[tensor];
    if (ir::loadedType(capture.dtype) == type && !capture.shape.empty()) {
      llvm::SmallVector<Value, 3> at(capture.shape.size(), index);
      if (at.size() > 1 && below(2)) at[below(at.size())] = operandOf(Type::I32);
      return module.make(Op::Load, type, at, tensor, 4);
    }
    return type == Type::I32 ? index : module.make(Op::Cast, type, {index});
  }

  Value makeSum() {
    static const std::vector<Type> kReal = {Type::I32, Type::I64, Type::F32, Type::F32};
    static const std::vector<Type> kWhole = {Type::I32, Type::I64};
    const Type type = pick(options.floats ? kReal : kWhole);
    const ir::Loop inner{0, int64_t(1 + below(20))}, outer{unsigned(1 + below(2)), int64_t(1 + below(6))};
    const bool isNested = below(3) == 0;
    Value i = module.iter(inner), j = isNested ? module.iter(outer) : operandOf(Type::I32);
    Value index = below(2) ? i : module.make(Op::Add, Type::I32, {i, j});
    Value sum = module.make(Op::Sum, type, {openTerm(type, index, 3)}, inner.attr(), 5);
    if (!isNested) return sum;
    Value term = module.make(below(2) ? Op::Add : Op::Mul, type, {sum, openTerm(type, j, 2)});
    return module.make(Op::Sum, type, {term}, outer.attr(), 6);
  }

  void makeOperation() {
    if (below(6) == 0) return remember(makeIdiom());
    if (below(8) == 0) return remember(makeSum());
    Type type = pickType();
    Op op;
    do op = Op(uint64_t(Op::Neg) + below(uint64_t(Op::Random) - uint64_t(Op::Neg) + 1));
    while (!admits(op, type));
    uint32_t line = uint32_t(1 + below(9));
    const ir::OpInfo& row = ir::info(op);
    if (op == Op::Random) {
      llvm::SmallVector<Value, 5> operands = {operandOf(Type::I64)};
      while (operands.size() < 5) operands.push_back(operandOf(Type::I32));
      return remember(module.make(op, type, operands, 0, line));
    }
    if (op == Op::Load) return remember(makeLoad(int64_t(below(module.tensors.size()))));
    if (op == Op::Select)
      return remember(module.make(op, type, {operandOf(Type::Bool), operandOf(type), operandOf(type)}, 0, line));
    if (op == Op::Cast) {
      Type to = pickType();
      return to == type ? makeOperation() : remember(module.make(op, to, {operandOf(type)}, 0, line));
    }
    bool isTest = row.rule == ir::TypeRule::Compare || row.rule == ir::TypeRule::Test;
    llvm::SmallVector<Value, 3> operands;
    for (int i = 0; i < row.arity; ++i) operands.push_back(operandOf(type));
    remember(module.make(op, isTest ? Type::Bool : type, operands, 0, line));
  }

  // ---- Roots: join the last few values, so that most of what was made is used ----

  Value scoreRoot() {
    if (!options.floats) return module.make(Op::Cast, Type::F32, {values[size_t(Type::I32)].back()});
    Value result = options.lowRank ? withTerm : module.param(ir::ParamKind::Score);
    const std::vector<Value>& reals = values[size_t(Type::F32)];
    for (size_t i = 0; i < 3; ++i) {
      Value last = reals[reals.size() - 1 - i];
      result = module.make(Op::Select, Type::F32, {operandOf(Type::Bool), result, last});
    }
    return result;
  }

  Value maskRoot() {
    Value result =
        module.make(Op::Le, Type::Bool, {module.param(ir::ParamKind::KvIdx), module.param(ir::ParamKind::QIdx)});
    const std::vector<Value>& bools = values[size_t(Type::Bool)];
    const std::vector<ir::ParamSet> params = ir::paramsOf(module);
    int joined = 0;
    for (size_t i = bools.size(); i-- > 0 && joined < 3;) {
      if (params[bools[i].id].contains(ir::ParamKind::Score)) continue;
      result = module.make(joined++ % 2 ? Op::And : Op::Xor, Type::Bool, {result, bools[i]});
    }
    return result;
  }

  /// Returns the newest integer that depends on the row.
  Value rowRoot() {
    const std::vector<ir::ParamSet> params = ir::paramsOf(module);
    const std::vector<Value>& integers = values[size_t(Type::I32)];
    for (size_t i = integers.size(); i-- > 0;)
      if (kRowParams.containsAll(params[integers[i].id])) return integers[i];
    return module.constInt(Type::I32, 0);
  }
};

} // namespace attnc::test
