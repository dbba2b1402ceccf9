#include "proofs/script.h"

#include "analysis/intervals.h"
#include "ir/outputs.h"

#include <bit>
#include <fmt/format.h>
#include <llvm/ADT/STLExtras.h>

namespace attnc::proofs {
namespace {

using ir::Op;
using ir::ParamKind;
using ir::Type;
using ir::Value;

/// Functions of f32 and bit-vectors that SMT-LIB lacks.
constexpr const char kPrelude[] = R"((define-sort F () (_ FloatingPoint 8 24))
(define-fun div32 ((a (_ BitVec 32)) (b (_ BitVec 32))) (_ BitVec 32) (ite (= b #x00000000) #x00000000
  (let ((q (bvsdiv a b))) (ite (and (not (= (bvsrem a b) #x00000000)) (not (= (bvslt a #x00000000) (bvslt b #x00000000))))
    (bvsub q #x00000001) q))))
(define-fun mod32 ((a (_ BitVec 32)) (b (_ BitVec 32))) (_ BitVec 32) (ite (= b #x00000000) #x00000000 (bvsmod a b)))
(define-fun div64 ((a (_ BitVec 64)) (b (_ BitVec 64))) (_ BitVec 64) (ite (= b (_ bv0 64)) (_ bv0 64)
  (let ((q (bvsdiv a b))) (ite (and (not (= (bvsrem a b) (_ bv0 64))) (not (= (bvslt a (_ bv0 64)) (bvslt b (_ bv0 64)))))
    (bvsub q (_ bv1 64)) q))))
(define-fun mod64 ((a (_ BitVec 64)) (b (_ BitVec 64))) (_ BitVec 64) (ite (= b (_ bv0 64)) (_ bv0 64) (bvsmod a b)))
(define-fun minf ((a F) (b F)) F (ite (or (fp.lt a b) (fp.isNaN a) (and (fp.eq a b) (fp.isNegative a))) a b))
(define-fun maxf ((a F) (b F)) F (ite (or (fp.gt a b) (fp.isNaN a) (and (fp.eq a b) (fp.isPositive a))) a b))
)";

int bitsOf(Type type) { return type == Type::I64 ? 64 : 32; }

std::string sortOf(Type type) {
  return type == Type::Bool ? "Bool" : type == Type::F32 ? "F" : fmt::format("(_ BitVec {})", bitsOf(type));
}

std::string number(Type type, int64_t value) {
  const uint64_t bits = type == Type::I64 ? uint64_t(value) : uint32_t(value);
  return fmt::format("(_ bv{} {})", bits, bitsOf(type));
}

class Writer {
public:
  Writer(const ir::Module& module, const std::set<std::string>& sorted)
      : module(module), sorted(sorted), intervals(module), names(module.size()) {}

  Script write() {
    script.text = kPrelude;
    const Value mask = *module.output(ir::kMask);
    define(mask);
    for (const ir::Grid& grid : module.grids) addGrid(grid);
    for (const ir::Output& output : module.outputs())
      if (output.isCondition()) define(output.value), add("(assert {})", names[output.value.id]);
    for (size_t i = 0; i < script.loads.size(); ++i)
      for (size_t j = 0; j < script.loads.size(); ++j) addOrder(script.loads[i], script.loads[j]);
    add("(assert (not {}))", names[mask.id]);
    return std::move(script);
  }

private:
  template <class... Args> void add(fmt::format_string<Args...> format, Args&&... args) {
    script.text += fmt::format(format, std::forward<Args>(args)...) + "\n";
  }
  const std::string& of(Value value) const { return names[value.id]; }
  Type typeOf(Value value) const { return module[value].type; }

  /// Defines a value and all that it needs.
  void define(Value root) {
    std::vector<bool> needed(root.id + 1);
    needed[root.id] = true;
    for (uint32_t id = root.id + 1; id-- > 0;)
      if (needed[id] && names[id].empty() && module[{id}].op != Op::Sum)
        for (Value operand : module[{id}].operands) needed[operand.id] = true;
    for (uint32_t id = 0; id <= root.id; ++id)
      if (needed[id] && names[id].empty()) defineOne({id});
  }

  void defineOne(Value value) {
    const ir::Node& node = module[value];
    if (node.op == Op::Const) {
      names[value.id] = node.type == Type::Bool  ? (node.attr ? "true" : "false")
                        : node.type == Type::F32 ? fmt::format("((_ to_fp 8 24) (_ bv{} 32))", uint32_t(node.attr))
                                                 : number(node.type, node.attr);
      return;
    }
    if (node.op == Op::Dim) return void(names[value.id] = dim(size_t(node.attr)));
    if (node.op == Op::Scalar) return void(names[value.id] = scalar(size_t(node.attr)));
    if (node.op == Op::Param) return void(names[value.id] = param(ParamKind(node.attr)));
    const std::string text = node.op == Op::Load ? load(value) : expression(value);
    names[value.id] = fmt::format("v{}", value.id);
    add("(define-fun {} () {} {})", of(value), sortOf(node.type), text);
    if (node.op == Op::Load) {
      script.loads.back().result = of(value);
      const analysis::Range range = analysis::Range::ofElement(module.tensors[size_t(node.attr)].dtype);
      if (ir::isInt(node.type))
        add("(assert (and (bvsle {} {}) (bvsle {} {})))", number(node.type, range.lo), of(value), of(value),
            number(node.type, range.hi));
    }
  }

  std::string dim(size_t index) {
    const std::string name = fmt::format("dim_{}", index);
    if (llvm::is_contained(script.dims, int64_t(index))) return name;
    script.dims.push_back(int64_t(index));
    add("(declare-const {} (_ BitVec 32))\n(assert (and (bvsle (_ bv1 32) {}) (bvsle {} {})))", name, name, name,
        number(Type::I32, index < ir::kBuiltinDims ? kMaxExtent : INT32_MAX));
    const auto has = [&](ir::BuiltinDim other) { return llvm::is_contained(script.dims, int64_t(other)); };
    const bool isHead = index == size_t(ir::BuiltinDim::H) || index == size_t(ir::BuiltinDim::HKV);
    if (isHead && has(ir::BuiltinDim::H) && has(ir::BuiltinDim::HKV))
      add("(assert (= (bvurem dim_{} dim_{}) (_ bv0 32)))", int(ir::BuiltinDim::H), int(ir::BuiltinDim::HKV));
    return name;
  }

  std::string scalar(size_t index) {
    const std::string name = fmt::format("scalar_{}", index);
    if (llvm::is_contained(script.scalars, int64_t(index))) return name;
    script.scalars.push_back(int64_t(index));
    add("(declare-const {} {})", name, sortOf(module.scalars[index].type));
    return name;
  }

  std::string param(ParamKind kind) {
    const std::string name = fmt::format("param_{}", int(kind));
    if (!script.params.insert(kind).second) return name;
    add("(declare-const {} {})", name, sortOf(ir::typeOf(kind)));
    const auto along = ir::extentOf(kind);
    if (kind == ParamKind::QIdx && module.offsetsQueries) {
      const Value first = *module.output(ir::kQOffset);
      define(first);
      add("(assert (and (bvsle {0} {1}) (bvslt (bvsub {1} {0}) {2})))", of(first), name, dim(size_t(*along)));
    } else if (along)
      add("(assert (and (bvsle (_ bv0 32) {}) (bvslt {} {})))", name, name, dim(size_t(*along)));
    return name;
  }

  std::string extent(const ir::Extent& extent) {
    return extent.isNamed ? dim(size_t(extent.value)) : number(Type::I32, extent.value);
  }

  std::string load(Value value) {
    const ir::Node& node = module[value];
    const ir::TensorCapture& tensor = module.tensors[size_t(node.attr)];
    LoadTerm term{.tensor = uint32_t(node.attr)};
    for (unsigned axis = 0; axis < node.operands.size(); ++axis) {
      const Value index = node.operands[axis];
      const std::string size = extent(tensor.shape[axis]), name = fmt::format("v{}_{}", value.id, axis);
      std::string text = of(index);
      const bool isWide = typeOf(index) == Type::I64;
      if (!intervals.provesInside(value, axis)) {
        const std::string end = isWide ? fmt::format("((_ sign_extend 32) {})", size) : size,
                          zero = number(typeOf(index), 0);
        text = fmt::format("(ite (bvslt {0} {1}) {1} (ite (bvslt {0} {2}) {0} (bvsub {2} {3})))", text, zero, end,
                           number(typeOf(index), 1));
      }
      if (isWide) text = fmt::format("((_ extract 31 0) {})", text);
      add("(define-fun {} () (_ BitVec 32) {})", name, text);
      term.indices.push_back(name);
    }
    std::string call = fmt::format("t{}", node.attr);
    if (declared.insert(call).second) {
      std::string arguments;
      for (unsigned axis = 0; axis < node.operands.size(); ++axis) arguments += "(_ BitVec 32) ";
      add("(declare-fun {} ({}) {})", call, arguments, sortOf(node.type));
    }
    if (!term.indices.empty()) call = fmt::format("({} {})", call, fmt::join(term.indices, " "));
    script.loads.push_back(term);
    return call;
  }

  /// Says that a sorted tensor has no larger element before a smaller one.
  void addOrder(const LoadTerm& a, const LoadTerm& b) {
    const ir::TensorCapture& tensor = module.tensors[a.tensor];
    if (a.tensor != b.tensor || &a == &b || a.indices.empty() || !sorted.count(tensor.name)) return;
    std::string before;
    for (size_t i = 0; i + 1 < a.indices.size(); ++i) before += fmt::format(" (= {} {})", a.indices[i], b.indices[i]);
    const Type type = ir::loadedType(tensor.dtype);
    add("(assert (=> (and (bvsle {} {}){}) ({} {} {})))", a.indices.back(), b.indices.back(), before,
        type == Type::Bool  ? "=>"
        : type == Type::F32 ? "fp.leq"
                            : "bvsle",
        a.result, b.result);
  }

  std::string where(Value value) const {
    return module[value].line ? fmt::format(" (line {})", module[value].line) : "";
  }

  /// Returns a function that the script knows only by name.
  std::string unknown(Value value, llvm::ArrayRef<std::string> operands) {
    const ir::Node& node = module[value];
    const std::string name = fmt::format("f_{}_{}{}", ir::info(node.op).text, int(node.type),
                                         operands.empty() ? fmt::format("_{}", value.id) : "");
    script.open.insert(ir::info(node.op).text + where(value));
    if (declared.insert(name).second) {
      std::string arguments;
      for (size_t i = 0; i < operands.size(); ++i) arguments += sortOf(typeOf(node.operands[i])) + " ";
      add("(declare-fun {} ({}) {})", name, arguments, sortOf(node.type));
    }
    return operands.empty() ? name : fmt::format("({} {})", name, fmt::join(operands, " "));
  }

  std::string expression(Value value) {
    const ir::Node& node = module[value];
    if (node.op == Op::Sum) return unknown(value, {});
    std::vector<std::string> operands;
    for (Value operand : node.operands) operands.push_back(of(operand));
    const Type from = node.operands.empty() ? node.type : typeOf(node.operands.back());
    const std::string a = operands.empty() ? "" : operands[0], b = operands.size() > 1 ? operands[1] : "";
    const auto call = [&](const char* function) { return fmt::format("({} {})", function, fmt::join(operands, " ")); };
    const bool isReal = from == Type::F32;
    switch (node.op) {
    case Op::Select: return fmt::format("(ite {} {} {})", a, b, operands[2]);
    case Op::Cast: return cast(typeOf(node.operands[0]), node.type, a);
    case Op::Eq: return call(isReal ? "fp.eq" : "=");
    case Op::Ne: return fmt::format("(not {})", call(isReal ? "fp.eq" : "="));
    case Op::Lt: return from == Type::Bool ? fmt::format("(and (not {}) {})", a, b) : call(isReal ? "fp.lt" : "bvslt");
    case Op::Le: return from == Type::Bool ? fmt::format("(or (not {}) {})", a, b) : call(isReal ? "fp.leq" : "bvsle");
    case Op::And: return call(from == Type::Bool ? "and" : "bvand");
    case Op::Or: return call(from == Type::Bool ? "or" : "bvor");
    case Op::Xor: return call(from == Type::Bool ? "xor" : "bvxor");
    case Op::Not: return call(from == Type::Bool ? "not" : "bvnot");
    default: break;
    }
    return isReal ? real(value, operands) : integer(value, operands);
  }

  std::string integer(Value value, const std::vector<std::string>& operands) {
    const ir::Node& node = module[value];
    const int bits = bitsOf(node.type);
    const std::string &a = operands[0], b = operands.size() > 1 ? operands[1] : "";
    const std::string zero = number(node.type, 0);
    switch (node.op) {
    case Op::Neg: return fmt::format("(bvneg {})", a);
    case Op::Abs: return fmt::format("(ite (bvslt {0} {1}) (bvneg {0}) {0})", a, zero);
    case Op::Add: return fmt::format("(bvadd {} {})", a, b);
    case Op::Sub: return fmt::format("(bvsub {} {})", a, b);
    case Op::Mul:
      if (!module.isConst(node.operands[0]) && !module.isConst(node.operands[1]))
        script.hard.insert("a product of two variables" + where(value));
      return fmt::format("(bvmul {} {})", a, b);
    case Op::Min: return fmt::format("(ite (bvslt {0} {1}) {0} {1})", a, b);
    case Op::Max: return fmt::format("(ite (bvslt {0} {1}) {1} {0})", a, b);
    case Op::FloorDiv:
    case Op::Mod: return quotient(value, a, b);
    case Op::Shl: return fmt::format("(bvshl {} (bvand {} {}))", a, b, number(node.type, bits - 1));
    case Op::Shr: return fmt::format("(bvashr {} (bvand {} {}))", a, b, number(node.type, bits - 1));
    default: return unknown(value, operands);
    }
  }

  /// Returns a floor_div or mod; in as few bits as the operands' ranges take, for solvers do it bit by bit.
  std::string quotient(Value value, const std::string& a, const std::string& b) {
    const ir::Node& node = module[value];
    const bool isDiv = node.op == Op::FloorDiv;
    const analysis::Range of = intervals.range(node.operands[0]), by = intervals.range(node.operands[1]);
    const int bits = bitsOf(node.type);
    if (!by.isSingle()) script.hard.insert("a division by a variable" + where(value));
    if (by.isSingle() && by.lo > 0 && std::has_single_bit(uint64_t(by.lo)))
      return isDiv ? fmt::format("(bvashr {} {})", a, number(node.type, std::countr_zero(uint64_t(by.lo))))
                   : fmt::format("(bvand {} {})", a, number(node.type, by.lo - 1));
    if (of.lo >= 0 && by.lo > 0) {
      const int width = std::bit_width(uint64_t(std::max(of.hi, by.hi)));
      if (width < bits)
        return fmt::format("((_ zero_extend {0}) ({1} ((_ extract {2} 0) {3}) ((_ extract {2} 0) {4})))", bits - width,
                           isDiv ? "bvudiv" : "bvurem", width - 1, a, b);
    }
    return fmt::format("({}{} {} {})", isDiv ? "div" : "mod", bits, a, b);
  }

  std::string real(Value value, const std::vector<std::string>& operands) {
    const std::string &a = operands[0], b = operands.size() > 1 ? operands[1] : "";
    switch (module[value].op) {
    case Op::Neg: return fmt::format("(fp.neg {})", a);
    case Op::Abs: return fmt::format("(fp.abs {})", a);
    case Op::Add: return fmt::format("(fp.add RNE {} {})", a, b);
    case Op::Sub: return fmt::format("(fp.sub RNE {} {})", a, b);
    case Op::Mul: return fmt::format("(fp.mul RNE {} {})", a, b);
    case Op::Div: return fmt::format("(fp.div RNE {} {})", a, b);
    case Op::Sqrt: return fmt::format("(fp.sqrt RNE {})", a);
    case Op::Min: return fmt::format("(minf {} {})", a, b);
    case Op::Max: return fmt::format("(maxf {} {})", a, b);
    case Op::Floor: return fmt::format("(fp.roundToIntegral RTN {})", a);
    case Op::Ceil: return fmt::format("(fp.roundToIntegral RTP {})", a);
    case Op::Trunc: return fmt::format("(fp.roundToIntegral RTZ {})", a);
    case Op::Round: return fmt::format("(fp.roundToIntegral RNE {})", a);
    case Op::IsNan: return fmt::format("(fp.isNaN {})", a);
    case Op::StopGradient: return a;
    default: return unknown(value, operands);
    }
  }

  static std::string cast(Type from, Type to, const std::string& a) {
    if (from == to) return a;
    if (to == Type::Bool)
      return from == Type::F32 ? fmt::format("(not (fp.isZero {}))", a)
                               : fmt::format("(not (= {} {}))", a, number(from, 0));
    if (from == Type::Bool)
      return to == Type::F32 ? fmt::format("(ite {} ((_ to_fp 8 24) RNE 1.0) ((_ to_fp 8 24) RNE 0.0))", a)
                             : fmt::format("(ite {} {} {})", a, number(to, 1), number(to, 0));
    if (to == Type::F32) return fmt::format("((_ to_fp 8 24) RNE {})", a);
    if (from == Type::F32) {
      const int bits = bitsOf(to);
      const std::string limit = fmt::format("((_ to_fp 8 24) RNE {}.0)", uint64_t(1) << (bits - 1));
      const uint64_t sign = uint64_t(1) << (bits - 1);
      return fmt::format("(ite (fp.isNaN {0}) (_ bv0 {1}) (ite (fp.leq {0} (fp.neg {2})) (_ bv{3} {1}) "
                         "(ite (fp.geq {0} {2}) (_ bv{4} {1}) ((_ fp.to_sbv {1}) RTZ {0}))))",
                         a, bits, limit, sign, sign - 1);
    }
    return to == Type::I64 ? fmt::format("((_ sign_extend 32) {})", a) : fmt::format("((_ extract 31 0) {})", a);
  }

  std::string numberOf(const ir::Grid::Number& of) {
    switch (of.kind) {
    case ir::Grid::Number::Kind::Constant: return number(Type::I32, of.value);
    case ir::Grid::Number::Kind::Scalar: return scalar(size_t(of.value));
    case ir::Grid::Number::Kind::Dim: return dim(size_t(of.value));
    case ir::Grid::Number::Kind::Rest: return number(Type::I32, 1);
    }
    return "";
  }

  /// Says what a launch's grids are: `before` is at least 0, extents are at least 1, and the last token is not too far.
  void addGrid(const ir::Grid& grid) {
    const auto wide = [](const std::string& text) { return fmt::format("((_ sign_extend 32) {})", text); };
    const std::string before = numberOf(grid.before), most = number(Type::I64, kMaxExtent);
    add("(assert (and (bvsle (_ bv0 32) {}) (bvsle {} {})))", before, before, number(Type::I32, kMaxExtent));
    std::string tokens = number(Type::I64, 1);
    for (const ir::Grid::Number& extent : grid.extents) {
      const std::string size = numberOf(extent);
      tokens = fmt::format("(bvmul {} {})", tokens, wide(size));
      add("(assert (and (bvsle (_ bv1 32) {}) (bvsle {} {}) (bvule {} {})))", size, size, number(Type::I32, kMaxExtent),
          tokens, most);
    }
    add("(assert (bvule (bvadd {} {}) {}))", wide(before), tokens, most);
  }

  const ir::Module& module;
  const std::set<std::string>& sorted;
  analysis::Intervals intervals;
  std::vector<std::string> names; ///< by Value::id: the term; empty if it is not defined
  std::set<std::string> declared;
  Script script;
};

} // namespace

Script scriptOf(const ir::Module& module, const std::set<std::string>& sorted) {
  return Writer(module, sorted).write();
}

} // namespace attnc::proofs
