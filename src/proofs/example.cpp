#include "proofs/example.h"

#include "proofs/claim.h"

#include "ir/bind.h"
#include "ir/interpreter.h"
#include "ir/outputs.h"
#include "ir/walk.h"
#include "support/element.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <random>

namespace attnc::proofs {
namespace {

constexpr int64_t kMaxBytes = 64 << 20;
constexpr int64_t kMostDrawn = 1 << 22; // elements
constexpr int64_t kMostRows = 32;       // of a picture, and columns

int64_t extentOf(const ir::Module& module, const ir::Extent& extent, const Launch& launch) {
  if (!extent.isNamed) return extent.value;
  const ProblemShape& p = launch.problem;
  const int64_t builtin[] = {p.batch, p.qHeads, p.kvHeads, p.qLen, p.kvLen};
  if (extent.value < int64_t(ir::kBuiltinDims)) return builtin[extent.value];
  const auto found = launch.extents.find(module.dims[size_t(extent.value)]);
  return found == launch.extents.end() ? 1 : found->second;
}

/// Calls `visit` with each index of a shape, the last axis fastest.
void forEachIndex(llvm::ArrayRef<int64_t> shape, llvm::function_ref<void(llvm::ArrayRef<int64_t>)> visit) {
  int64_t count = 1;
  for (int64_t extent : shape) count *= extent;
  llvm::SmallVector<int64_t, 4> index(shape.size());
  for (int64_t i = 0; i < count; ++i) {
    visit(index);
    for (size_t axis = shape.size(); axis-- > 0 && ++index[axis] == shape[axis];) index[axis] = 0;
  }
}

double doubleOf(ir::Type type, Number number) {
  return type == ir::Type::F32 ? double(number.real) : double(number.integer);
}

/// Returns an output about the sequence of a batch entry; `otherwise` if the claim has none.
int64_t ofSequence(const ir::Module& claim, const Launch& launch, const ir::OutputRole& role, int64_t b,
                   int64_t otherwise) {
  const std::optional<ir::Value> value = claim.output(role);
  return value ? ir::Evaluator(claim, launch.bound(), *value).evaluate(0, b, 0, 0, 0).integer : otherwise;
}

bool isOfSequences(llvm::StringRef tensor) { return llvm::is_contained(ir::kSequenceTensors, tensor); }

std::string textOf(ir::Type type, Number number) {
  if (type == ir::Type::Bool) return number.integer ? "True" : "False";
  return type == ir::Type::F32 ? fmt::format("{:g}", number.real) : fmt::format("{}", number.integer);
}

/// Adds the lines of the text that decide a condition, for the values of all that it needs.
void addDeciding(const ir::Module& module, llvm::ArrayRef<Number> values, ir::Value condition,
                 std::set<uint32_t>& lines) {
  const ir::Node& node = module[condition];
  const auto add = [&](ir::Value operand) { addDeciding(module, values, operand, lines); };
  switch (node.op) {
  case ir::Op::And:
  case ir::Op::Or: {
    const bool whole = values[condition.id].integer != 0, needsBoth = whole == (node.op == ir::Op::And);
    for (ir::Value operand : node.operands)
      if (needsBoth) {
        add(operand);
      } else if ((values[operand.id].integer != 0) == whole) {
        add(operand);
        return;
      }
    return;
  }
  case ir::Op::Not: add(node.operands[0]); return;
  case ir::Op::Select: {
    const ir::Value chosen = node.operands[values[node.operands[0].id].integer ? 1 : 2];
    add(module.isConst(chosen) ? node.operands[0] : chosen);
    return;
  }
  default:
    if (node.line) lines.insert(node.line);
  }
}

/// Returns the lines that make an element live or masked, or that mask all elements of a row.
std::vector<TextLine> decidingLines(const ir::Module& claim, const Launch& launch, const Element& at, bool isRow,
                                    llvm::StringRef text) {
  const ir::Value live = *claim.output(kLive);
  std::set<uint32_t> numbers;
  const int64_t end = isRow ? std::min(launch.problem.kvLen, kMostRows) : at.kv + 1;
  for (int64_t kv = isRow ? 0 : at.kv; kv < end; ++kv)
    addDeciding(claim, ir::valuesAt(claim, launch.bound(), live, 0, at.b, at.h, at.q, kv), live, numbers);
  llvm::SmallVector<llvm::StringRef> all;
  text.split(all, '\n');
  std::vector<TextLine> lines;
  for (uint32_t number : numbers)
    lines.push_back({number, number <= all.size() ? all[number - 1].trim().str() : std::string()});
  return lines;
}

} // namespace

bool Launch::fill(const ir::Module& module, const ElementOf& elementOf, const ScalarOf& scalarOf) {
  storage.clear();
  Captures captures;
  int64_t bytes = 0;
  for (size_t i = 0; i < module.tensors.size(); ++i) {
    const ir::TensorCapture& tensor = module.tensors[i];
    TensorView view;
    view.dtype = tensor.dtype, view.rank = int(tensor.shape.size());
    int64_t size = 1;
    for (size_t axis = tensor.shape.size(); axis-- > 0;) {
      view.stride[axis] = size;
      view.shape[axis] = extentOf(module, tensor.shape[axis], *this);
      size *= view.shape[axis];
      if (size > kMaxBytes) return false;
    }
    size *= dtypeBytes(tensor.dtype);
    if ((bytes += size) > kMaxBytes) return false;
    char* const data = storage.emplace_back(size_t(size)).data();
    view.data = data;
    const ir::Type type = ir::loadedType(tensor.dtype);
    int64_t at = 0;
    forEachIndex({view.shape.data(), size_t(view.rank)}, [&](llvm::ArrayRef<int64_t> index) {
      const Number value = elementOf(i, index);
      if (tensor.dtype == DType::I64)
        std::memcpy(data + 8 * at++, &value.integer, 8); // exact
      else
        writeElement(data, tensor.dtype, at++, doubleOf(type, value));
    });
    captures.set(tensor.name, view);
  }
  for (size_t i = 0; i < module.scalars.size(); ++i) {
    const Number value = scalarOf(i);
    switch (module.scalars[i].type) {
    case ir::Type::Bool: captures.set(module.scalars[i].name, value.integer != 0); break;
    case ir::Type::F32: captures.set(module.scalars[i].name, double(value.real)); break;
    default: captures.set(module.scalars[i].name, value.integer);
    }
  }
  auto bound = ir::bind(module, captures, problem);
  if (!bound) return false;
  bindings = *std::move(bound);
  return true;
}

int64_t Launch::elements() const {
  int64_t count = 0;
  for (const TensorView& tensor : bindings.tensors) count += tensor.elements();
  return count;
}

std::optional<Element> failureIn(const ir::Module& claim, const Launch& launch) {
  const ir::Evaluator holds(claim, launch.bound(), *claim.output(ir::kMask));
  const ProblemShape& p = launch.problem;
  for (int64_t b = 0; b < p.batch; ++b) {
    const int64_t first = ofSequence(claim, launch, ir::kQOffset, b, 0);
    for (int64_t h = 0; h < p.qHeads; ++h)
      for (int64_t q = first; q < first + p.qLen; ++q)
        for (int64_t kv = 0; kv < p.kvLen; ++kv)
          if (!holds.evaluate(0, b, h, q, kv).integer) return Element{b, h, q, kv};
  }
  return std::nullopt;
}

bool isFalse(const ir::Module& claim, const Launch& launch, const Element& at) {
  const ir::Evaluator holds(claim, launch.bound(), *claim.output(ir::kMask));
  return !holds.evaluate(0, at.b, at.h, at.q, at.kv).integer;
}

bool isRowDead(const ir::Module& claim, const Launch& launch, const Element& at) {
  const ir::Evaluator lives(claim, launch.bound(), *claim.output(kLive)),
      holds(claim, launch.bound(), *claim.output(kAssumed));
  for (int64_t kv = 0; kv < launch.problem.kvLen; ++kv)
    if (!holds.evaluate(0, at.b, at.h, at.q, kv).integer || lives.evaluate(0, at.b, at.h, at.q, kv).integer)
      return false;
  return true;
}

std::optional<Element> deadRowIn(const ir::Module& claim, const Launch& launch) {
  const ProblemShape& p = launch.problem;
  for (int64_t b = 0; b < p.batch; ++b) {
    const int64_t first = ofSequence(claim, launch, ir::kQOffset, b, 0);
    for (int64_t h = 0; h < p.qHeads; ++h)
      for (int64_t q = first; q < first + p.qLen; ++q)
        if (isRowDead(claim, launch, {b, h, q})) return Element{b, h, q};
  }
  return std::nullopt;
}

std::optional<Element> drawFailure(const ir::Module& module, const std::set<std::string>& nondecreasing, Launch& launch,
                                   const std::function<std::optional<Element>(const Launch&)>& fails) {
  std::mt19937_64 random(1);
  const auto below = [&](uint64_t bound) { return int64_t(random() % bound); };
  int64_t drawn = 0;
  for (int64_t size = 1; size <= 6; ++size)
    for (int64_t other = 1; other <= size; ++other)
      for (int turn = 0; turn < 16; ++turn) {
        const bool isLarge = turn >= 8;
        launch.problem = {.batch = isLarge ? 2 : 1,
                          .qHeads = isLarge ? 2 : 1,
                          .kvHeads = turn >= 12 ? 2 : 1,
                          .qLen = turn % 2 ? size : other,
                          .kvLen = turn % 2 ? other : size};
        launch.extents.clear();
        for (size_t dim = ir::kBuiltinDims; dim < module.dims.size(); ++dim)
          launch.extents[module.dims[dim]] = 1 + below(uint64_t(size) + 1);
        int64_t last = 0;
        const auto elementOf = [&](size_t tensor, llvm::ArrayRef<int64_t> index) {
          const ir::TensorCapture& capture = module.tensors[tensor];
          if (isOfSequences(capture.name))
            return Number{.integer = below(uint64_t(launch.problem.kvLen)) + (capture.name == ir::kKvLengthsTensor)};
          const bool isSorted = nondecreasing.count(capture.name), isBool = capture.dtype == DType::Bool;
          int64_t value = isBool ? below(2) : below(4) - (capture.dtype != DType::U8 && below(8) == 0 ? 2 : 0);
          if (isSorted) value = last = (index.empty() || index.back() == 0 ? 0 : last) + below(2);
          if (isBool) value = std::min<int64_t>(value, 1);
          return ir::loadedType(capture.dtype) == ir::Type::F32 ? Number{.real = float(value)}
                                                                : Number{.integer = value};
        };
        const auto scalarOf = [&](size_t scalar) {
          const ir::Type type = module.scalars[scalar].type;
          if (type == ir::Type::F32) return Number{.real = float(below(5)) / 2 - 0.5f};
          return Number{.integer = type == ir::Type::Bool ? below(2) : below(uint64_t(size) + 2) - (below(8) == 0)};
        };
        if (!launch.fill(module, elementOf, scalarOf)) continue;
        if (const auto at = fails(launch)) return at;
        if ((drawn += launch.elements()) > kMostDrawn) return std::nullopt;
      }
  return std::nullopt;
}

void tell(const ir::Module& claim, const Launch& launch, const Element& at, bool isRow, llvm::StringRef text,
          Proof& proof) {
  proof.deciding = decidingLines(claim, launch, at, isRow, text);
  proof.problem = launch.problem, proof.extents = launch.extents;
  proof.b = at.b, proof.h = at.h, proof.qIdx = at.q, proof.kvIdx = at.kv;
  const int64_t keys = ofSequence(claim, launch, ir::kKvLength, at.b, launch.problem.kvLen),
                first = ofSequence(claim, launch, ir::kQOffset, at.b, 0);
  if (claim.output(ir::kKvLength)) proof.kvLength = keys;
  if (claim.offsetsQueries) proof.qOffset = first;
  const ir::Value root = *claim.output(ir::kMask);
  const std::vector<Number> values = ir::valuesAt(claim, launch.bound(), root, 0, at.b, at.h, at.q, at.kv);
  const std::vector<bool> needed = ir::neededBy(claim, root);
  std::set<std::pair<std::string, std::vector<int64_t>>> told;
  for (uint32_t id = 0; id < claim.size(); ++id) {
    const ir::Node& node = claim[{id}];
    if (!needed[id]) continue;
    if (node.op == ir::Op::Scalar) {
      const ir::ScalarCapture& scalar = claim.scalars[size_t(node.attr)];
      if (told.insert({scalar.name, {}}).second)
        proof.captures.push_back({scalar.name, {}, textOf(scalar.type, values[id])});
    }
    if (node.op != ir::Op::Load) continue;
    const ir::TensorCapture& tensor = claim.tensors[size_t(node.attr)];
    if (isOfSequences(tensor.name)) continue;
    ExampleCapture element{.name = tensor.name, .value = textOf(node.type, values[id])};
    for (unsigned axis = 0; axis < node.operands.size(); ++axis) {
      const int64_t end = extentOf(claim, tensor.shape[axis], launch);
      element.index.push_back(std::clamp<int64_t>(values[node.operands[axis].id].integer, 0, end - 1));
    }
    if (told.insert({element.name, element.index}).second) proof.captures.push_back(element);
  }
  const auto begin = [](int64_t first, int64_t count, int64_t at) {
    return std::clamp(at - kMostRows / 2, first, first + std::max<int64_t>(count - kMostRows, 0));
  };
  proof.pictureQIdx = begin(first, launch.problem.qLen, at.q);
  proof.pictureKvIdx = begin(0, launch.problem.kvLen, at.kv);
  const int64_t qEnd = std::min(first + launch.problem.qLen, proof.pictureQIdx + kMostRows),
                kvEnd = std::min(launch.problem.kvLen, proof.pictureKvIdx + kMostRows);
  const ir::Evaluator lives(claim, launch.bound(), *claim.output(kLive));
  for (int64_t q = proof.pictureQIdx; q < qEnd; ++q) {
    const bool isAtKey = !claim.offsetsQueries || (q >= 0 && q < keys);
    for (int64_t kv = proof.pictureKvIdx; kv < kvEnd; ++kv) {
      const bool isLive = isAtKey && lives.evaluate(0, at.b, at.h, q, kv).integer,
                 isHere = q == at.q && (isRow || kv == at.kv);
      proof.picture += isHere ? (isLive ? 'X' : 'o') : isLive ? '#' : '.';
    }
    proof.picture += '\n';
  }
}

} // namespace attnc::proofs
