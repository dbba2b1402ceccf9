#include "problem/operands.h"

#include "problem/capture_text.h"
#include "problem/collect_captures.h"
#include "problem/operand_repair.h"
#include "problem/pages.h"
#include "problem/ragged.h"
#include "problem/random.h"
#include "text.h"

#include "attnc/compiler.h"
#include "reference/operand_values.h"
#include "reference/problem.h"
#include "support/element.h"
#include "support/try.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <llvm/ADT/STLExtras.h>
#include <llvm/ADT/StringExtras.h>

#include <algorithm>
#include <cstdio>
#include <set>
#include <tuple>

namespace attnc::cli {
namespace {

// Limit of the elements of all captures together.
constexpr int64_t kMaxDrawnToRun = int64_t(1) << 34;
constexpr int64_t kMaxDrawnToExplain = int64_t(1) << 28; // a gigabyte, drawn within seconds

/// Calls visit(name, tensor) for each optional tensor that the mod does not capture itself.
template <class Visit> void forEachOptionalHost(const Mod& mod, HostOperands& operands, Visit visit) {
  const auto visitUnlessCaptured = [&](const char* name, std::optional<HostTensor>& tensor) {
    if (llvm::none_of(mod.captures(), [&](const CaptureInfo& capture) { return capture.name == name; }))
      visit(name, tensor);
  };
#define ATTNC_OPTIONAL(member, name, feature) visitUnlessCaptured(#name, operands.member);
#include "attnc/operands.def"
}

/// Refuses a tensor that nothing takes, if its name is nearly that of an optional tensor: a launch without it would be
/// another one.
Status checkNames(const ProblemOptions& options, const std::vector<std::string>& names,
                  const std::map<std::string, Want>& wants, const Mod& mod) {
  std::vector<std::string> known;
  if (options.backward)
    for (const CaptureInfo& gradient : mod.reductionGradients()) known.push_back(gradient.name);
#define ATTNC_OPTIONAL(member, name, feature) known.push_back(#name);
#include "attnc/operands.def"
  for (const std::string& name : names) {
    if (wants.count(name) || std::find(known.begin(), known.end(), name) != known.end()) continue;
    if (!nearest(name, known).empty())
      return Error::environment(fmt::format("{}: nothing takes tensor {}", inQuotes(options.input), inQuotes(name)),
                                fmt::format("optional tensors are {}", fmt::join(known, ", ")));
  }
  return {};
}

/// Copies the first columns of rows.
Status takeColumns(const HostTensor& from, int64_t columns, HostTensor& to) {
  if (from.shape.empty() || from.shape.back() < columns)
    return Error::environment(fmt::format("k is {}, whose rows have no {} columns", shapeText(from.shape), columns),
                              "--v-in-k says how many columns of k are v");
  to = {from.dtype, from.shape, {}};
  to.shape.back() = columns;
  const size_t element = size_t(dtypeBytes(from.dtype)), ofRow = element * size_t(from.shape.back());
  for (size_t at = 0; at < from.bytes.size(); at += ofRow)
    to.bytes.insert(to.bytes.end(), from.bytes.begin() + ptrdiff_t(at),
                    from.bytes.begin() + ptrdiff_t(at + element * size_t(columns)));
  return {};
}

std::map<std::string, Want> capturesWanted(const Mod& mod, const Needed& needed) {
  std::map<std::string, Want> wants;
  for (const CaptureInfo& capture : mod.captures())
    wants[capture.name] = capture.kind != CaptureInfo::Kind::Tensor || needed(capture.name) ? Want::Data : Want::Shape;
  return wants;
}

Status readOperands(const Mod& mod, const ProblemOptions& options, const Needed& needed, Elements elements,
                    NamedTensors& file, HostOperands& operands) {
  std::map<std::string, Want> wants = capturesWanted(mod, needed);
  for (const auto& [name, value] : assignments("--set", options.sets)) wants.erase(name);
  for (const char* name : {"q", "k", "v"})
    if (name[0] != 'v' || !options.target.vInK) wants[name] = elements == Elements::All ? Want::Data : Want::Shape;
  forEachOptionalHost(mod, operands, [&](const char* name, auto&) { wants[name] = Want::Data; });
  if (options.backward) wants["dout"] = wants["dlse"] = Want::Data;
  const std::vector<CaptureInfo> ofOutputs =
      options.backward ? options.gradients.ofOutputs(mod) : std::vector<CaptureInfo>();
  for (const CaptureInfo& gradient : ofOutputs) wants[gradient.name] = Want::Data;
  ATTNC_TRY_AS(read, readSafetensors(options.input, wants));
  ATTNC_TRY(checkNames(options, read->names, wants, mod));
  file = std::move(read->tensors);
  if (const auto k = file.find("k"); options.backward && k != file.end() && k->second.dtype == DType::E4M3)
    return Error::environment(
        fmt::format("{}: k is e4m3, of which there is no backward pass", inQuotes(options.input)));
  const auto missing = [&](const char* name, const std::string& advice = "") {
    return Error::environment(fmt::format("{}: no tensor '{}'", inQuotes(options.input), name),
                              namesText(read->names) + advice);
  };
  std::vector<std::pair<const char*, HostTensor*>> needs{{"q", &operands.q}, {"k", &operands.k}};
  if (!options.target.vInK) needs.emplace_back("v", &operands.v);
  if (options.backward) needs.emplace_back("dout", &operands.dOut);
  for (auto [name, target] : needs) {
    auto node = file.extract(name);
    if (node.empty()) return missing(name, fmt::format("; save the operand as '{}'", name));
    *target = std::move(node.mapped());
  }
  forEachOptionalHost(mod, operands, [&](const char* name, std::optional<HostTensor>& tensor) {
    if (auto node = file.extract(name); !node.empty()) tensor = std::move(node.mapped());
  });
  if (options.gradients.areNamed())
    for (const CaptureInfo& gradient : mod.reductionGradients()) {
      const bool isRead = llvm::any_of(ofOutputs, [&](const CaptureInfo& one) { return one.name == gradient.name; });
      if (isRead && !file.count(gradient.name)) return missing(gradient.name.c_str());
      if (!isRead && llvm::is_contained(read->names, gradient.name))
        throw wrongUsage("--gradients",
                         fmt::format("{} has {}, whose sum is not named", inQuotes(options.input), gradient.name),
                         fmt::format("add {}, or take the tensor out of the file", sumOf(gradient)));
    }
  if (options.sequences.kvLengths && !operands.kvLengths) return missing("kv_lengths");
  if (options.sequences.ragged && !operands.cuSeqlensQ) return missing("cu_seqlens_q");
  if (auto node = file.extract("dlse"); options.backward && !node.empty()) operands.dLse = std::move(node.mapped());
  if (options.target.vInK) {
    ATTNC_TRY(takeColumns(operands.k, options.target.vInK, operands.v));
    if (operands.newK) ATTNC_TRY(takeColumns(*operands.newK, options.target.vInK, operands.newV.emplace()));
  }
  if (!operands.cuSeqlensQ) return {};
  if (options.target.vInK) needs.emplace_back("v", &operands.v);
  for (auto [name, target] : needs)
    if (!operands.pageTable || target == &operands.q) ATTNC_TRY(fromPacked(name, *target));
  for (auto [name, rows] : {std::pair("new_k", &operands.newK), {"new_v", &operands.newV}})
    if (*rows) ATTNC_TRY(fromPacked(name, **rows));
  return operands.dLse ? fromPacked("dlse", *operands.dLse) : Status();
}

/// Returns an f32 tensor whose element i is that of `from` at index(i).
template <class Index> HostTensor picked(std::vector<int64_t> shape, const HostTensor& from, Index index) {
  HostTensor tensor = HostTensor::make(DType::F32, std::move(shape));
  for (int64_t i = 0; i < tensor.elements(); ++i)
    writeElement(tensor.bytes.data(), DType::F32, i, readElement(from.bytes.data(), DType::F32, index(i)).real);
  return tensor;
}

/// Moves scales of rows or pages to the cache, and replaces them by those of positions, [B, HKV, KV_LEN].
void gatherScales(std::optional<HostTensor>& scales, std::optional<HostTensor>& stored, int64_t pageSize,
                  const HostTensor& table, const HostTensor& lengths) {
  if (!scales || scales->shape.size() < 3) return;
  const int64_t each = pageSize / std::max<int64_t>(scales->shape[2], 1);
  const std::vector<int64_t> shape{scales->shape[0], scales->shape[1], pageSize, 1};
  HostTensor rows = gatherPages(scales->bytes.empty() ? HostTensor::make(DType::F32, shape)
                                                      : picked(shape, *scales, [&](int64_t i) { return i / each; }),
                                table, lengths);
  rows.shape.pop_back();
  stored = std::move(scales);
  scales = std::move(rows);
}

/// Returns the problem of operands from a file with optional tensors, checked as for a launch; nullopt without.
Expected<std::optional<ProblemShape>> sequencesIn(const HostOperands& operands) {
  for (const HostTensor* tensor : {&operands.q, &operands.k, &operands.v})
    if (tensor->shape.size() != 4) return std::optional<ProblemShape>(); // a later check reports it
  bool isPlain = true;
  forEachOptional(operands, [&](const char*, const auto& tensor, Feature) { isPlain &= !tensor; });
  if (isPlain) return std::optional<ProblemShape>();
  const auto &q = operands.q.shape, &v = operands.v.shape;
  const Outputs outputs{
      .out = TensorView::contiguous(nullptr, Fp8Options().outOf(operands.q.dtype), {q[0], q[1], q[2], v[3]})};
  Operands views = viewsOf(operands);
  views.maxQLen = views.maxKvLen = 0; // the longest lengths are not known yet
  ATTNC_TRY_AS(settled, Compiler().settle(Mod::identity(), views, outputs, {.arch = archThatTakes(operands)}));
  ATTNC_TRY(reference::checkValues(views));
  return std::optional(settled->problem);
}

/// Moves k and v to the cache, and replaces them by the rows that are attended to.
void gatherCache(const ProblemShape& problem, HostOperands& operands) {
  operands.cache.emplace();
  std::swap(operands.cache->k, operands.k);
  std::swap(operands.cache->v, operands.v);
  for (auto [from, fresh, to, scales] : {std::tuple(&operands.cache->k, &operands.newK, &operands.k, &operands.kScales),
                                         {&operands.cache->v, &operands.newV, &operands.v, &operands.vScales}}) {
    const HostTensor* table = operands.pageTable ? &*operands.pageTable : nullptr;
    *to = *from;
    if (to->bytes.empty()) { // only shapes are needed
      to->shape = {problem.batch, to->shape[1], problem.kvLen, to->shape[3]};
      continue;
    }
    if (*fresh) appendRows(*to, **fresh, table, *operands.kvLengths, operands.cuSeqlensQ, *scales);
    if (table) *to = gatherPages(*to, *table, *operands.kvLengths);
  }
  if (!operands.pageTable || operands.cache->k.bytes.empty()) return;
  for (auto [scales, stored] :
       {std::pair(&operands.kScales, &operands.cache->kScales), {&operands.vScales, &operands.cache->vScales}})
    if (*scales && (operands.q.dtype != DType::E4M3 || scalesAreOfRows((*scales)->view(), problem.kvLen, true)))
      gatherScales(*scales, *stored, operands.cache->k.shape[2], *operands.pageTable, *operands.kvLengths);
}

/// Returns the shape of random scales. `length`: Q_LEN or KV_LEN.
std::vector<int64_t> scalesShape(const ProblemOptions& options, const HostTensor& of, int64_t length) {
  if (options.target.fp8.areOfRows()) return {of.shape.begin(), of.shape.end() - 1};
  std::vector<int64_t> shape{options.random->shape.batch, of.shape[1]};
  if (options.target.fp8.scales == "blocks") shape.push_back((length + kRowsOfScale - 1) / kRowsOfScale);
  return shape;
}

/// Distributes drawn rows to pages.
void dealCache(const ProblemOptions& options, HostOperands& operands) {
  const int rows = options.sequences.pageSize;
  const auto& shape = operands.k.shape;
  HostCache cache;
  operands.pageTable = drawPageTable(shape[0], shape[2] / rows, options.seed);
  for (auto [from, to] : {std::pair(&operands.k, &cache.k), {&operands.v, &cache.v}})
    *to = dealToPages(*from, *operands.pageTable, *operands.kvLengths, operands.pageTable->elements(), rows);
  for (auto [from, to] : {std::pair(&operands.kScales, &cache.kScales), {&operands.vScales, &cache.vScales}}) {
    if (!options.target.fp8.areOfRows() || !*from) continue;
    const bool areOfPages = options.target.fp8.scales == "pages";
    HostTensor& scales = **from; // [B, HKV, KV_LEN]
    if (areOfPages) scales = picked(scales.shape, scales, [&](int64_t i) { return i / rows * rows; });
    HostTensor column = scales;
    column.shape.push_back(1);
    *to = dealToPages(column, *operands.pageTable, *operands.kvLengths, operands.pageTable->elements(), rows);
    if (areOfPages) // one for each
      *to = picked({(*to)->shape[0], (*to)->shape[1], 1, 1}, **to, [&](int64_t i) { return i * rows; });
  }
  operands.cache = std::move(cache);
}

Status drawOperands(const Mod& mod, const ProblemOptions& options, Generator& generator, HostOperands& operands) {
  const auto& [shape, headDim] = *options.random;
  const DType dtype = dtypeOf(options.target.dtype), kvDType = options.target.fp8.kv ? DType::E4M3 : dtype;
  const bool isPaged = options.sequences.pageSize != 0;
  int64_t batch = shape.batch, kvBatch = batch, rows = shape.qLen, kvRows = shape.kvLen;
  if (options.sequences.ragged) {
    const auto draw = [&](std::optional<HostTensor>& to, int64_t longest) {
      HostTensor lengths = generator.positions(longest);
      if (shape.batch) writeElement(lengths.bytes.data(), DType::I32, 0, double(longest)); // the maximum occurs
      to = cumulative(lengths);
      return readElement(to->bytes.data(), DType::I32, shape.batch).integer;
    };
    batch = 1;
    rows = draw(operands.cuSeqlensQ, shape.qLen);
    if (!isPaged) kvBatch = 1, kvRows = shape.qLen == shape.kvLen ? rows : draw(operands.cuSeqlensKv, shape.kvLen);
  }
  const auto draw = [&](DType dtype, std::vector<int64_t> shape) {
    return options.large ? generator.signs(dtype, std::move(shape)) : generator.normal(dtype, std::move(shape));
  };
  operands.q = draw(dtype, {batch, shape.qHeads, rows, headDim});
  operands.k = draw(kvDType, {kvBatch, shape.kvHeads, kvRows, headDim});
  if (options.large && std::none_of(mod.captures().begin(), mod.captures().end(), Generator::isLarge))
    generator.lengthenKeys(operands.q, operands.k, options.scale.value_or(1 / std::sqrt(double(headDim))));
  if (options.target.vInK) ATTNC_TRY(takeColumns(operands.k, options.target.vInK, operands.v));
  if (!options.target.vInK) operands.v = generator.normal(kvDType, {kvBatch, shape.kvHeads, kvRows, headDim});
  for (auto [scales, of, length] : {std::tuple(&operands.qScales, &operands.q, shape.qLen),
                                    {&operands.kScales, &operands.k, shape.kvLen},
                                    {&operands.vScales, &operands.v, shape.kvLen}})
    if (of->dtype == DType::E4M3) *scales = generator.scales(scalesShape(options, *of, length));
  if (options.sequences.lengths()) operands.kvLengths = generator.positions(shape.kvLen);
  if (options.sequences.offsets() == QueryOffsets::Tensor) operands.qOffsets = generator.positions(shape.kvLen);
  if (isPaged) dealCache(options, operands);
  return {};
}

std::vector<int64_t> outShape(const HostOperands& operands) {
  std::vector<int64_t> shape = rowsOf(operands);
  shape.push_back(operands.v.shape[3]);
  return shape;
}

/// Draws both gradients, so that --verify also covers the path through lse.
void drawResultGradients(Generator& generator, HostOperands& operands) {
  operands.dOut = generator.normal(operands.q.dtype, outShape(operands));
  operands.dLse = generator.normal(DType::F32, rowsOf(operands));
}

/// Checks that a gradient has the shape of its result.
Status checkResultGradient(const std::string& name, const HostTensor& tensor, DType dtype,
                           const std::vector<int64_t>& shape) {
  if (tensor.dtype == dtype && tensor.shape == shape) return {};
  return Error::environment(fmt::format("{} is {} {}, expected {} {}", name, dtypeName(tensor.dtype),
                                        shapeText(tensor.shape), dtypeName(dtype), shapeText(shape)));
}

Status checkResultGradients(const HostOperands& operands) {
  ATTNC_TRY(checkResultGradient("dout", operands.dOut, operands.q.dtype, outShape(operands)));
  return operands.dLse ? checkResultGradient("dlse", *operands.dLse, DType::F32, rowsOf(operands)) : Status();
}

Status checkOperands(const Mod& mod, HostOperands& operands) {
  const bool isPaged = operands.pageTable.has_value();
  TensorView q = operands.q.view();
  if (operands.cuSeqlensQ && isPaged) q.shape[0] = operands.k.shape[0]; // gathered: rows of each sequence
  ATTNC_TRY_AS(problem, reference::problemOf(q, operands.k.view(), operands.v.view()));
  operands.problem = *problem;
  if (operands.cuSeqlensQ) {
    operands.problem.batch = operands.cuSeqlensQ->shape[0] - 1;
    operands.problem.qLen = longestOf(*operands.cuSeqlensQ);
    if (!isPaged) operands.problem.kvLen = longestOf(operands.cuSeqlensKv.value_or(*operands.cuSeqlensQ));
  }
  for (const auto& [name, tensor] : {std::pair("k", &operands.k), std::pair("v", &operands.v)})
    if (tensor->dtype != operands.q.dtype && !(operands.k.dtype == DType::E4M3 && operands.v.dtype == DType::E4M3))
      return Error::environment(fmt::format("{} is {}, q is {}; they must be the same", name, dtypeName(tensor->dtype),
                                            dtypeName(operands.q.dtype)));
  return checkCaptures(mod, operands.captures, operands.problem);
}

/// Returns the problem that captured tensors of a file imply by their named extents; without any, the fallback.
ProblemShape impliedShape(const Mod& mod, const NamedTensors& file, ProblemShape shape) {
  std::optional<int64_t> qLen, kvLen;
  for (const CaptureInfo& capture : mod.captures()) {
    auto found = file.find(capture.name);
    if (found == file.end()) continue;
    for (size_t axis = 0; axis < std::min(capture.extent.size(), found->second.shape.size()); ++axis) {
      const std::string& name = capture.extent[axis];
      const int64_t extent = found->second.shape[axis];
      if (name == "B") shape.batch = extent;
      if (name == "H") shape.qHeads = shape.kvHeads = extent;
      if (name == "Q_LEN") qLen = extent;
      if (name == "KV_LEN") kvLen = extent;
    }
  }
  if (qLen || kvLen) shape.qLen = qLen ? *qLen : *kvLen, shape.kvLen = kvLen ? *kvLen : *qLen;
  return shape;
}

/// Returns what the file could provide to a mod. Empty if the file cannot be read, or comes from stdin: the actual read
/// reports why.
std::vector<CaptureInfo> capturesInFile(const std::string& path) {
  std::vector<CaptureInfo> captures;
  if (path.empty() || path == "-") return captures;
  const auto isName = [](llvm::StringRef name) {
    return !name.empty() && !llvm::isDigit(name[0]) &&
           llvm::all_of(name, [](char c) { return llvm::isAlnum(c) || c == '_'; });
  };
  auto read = readSafetensors(path, [](const std::string&) { return Want::Nothing; });
  if (!read) return captures;
  constexpr size_t kMost = 64;
  for (const std::string& name : read->names) {
    if (!isName(name) || name == "q" || name == "k" || name == "v" || captures.size() >= kMost) continue;
    // Read one by one, so that a tensor that no mod can capture does not block the others.
    auto one =
        readSafetensors(path, [&](const std::string& other) { return other == name ? Want::Shape : Want::Nothing; });
    if (!one) continue;
    const HostTensor& tensor = one->tensors.at(name);
    CaptureInfo info{.name = name, .kind = CaptureInfo::Kind::Tensor, .dtype = tensor.dtype};
    for (size_t axis = 0; axis < tensor.shape.size(); ++axis)
      info.extent.push_back(tensor.shape[axis] == 1 ? "1" : fmt::format("{}_{}", name, axis));
    captures.push_back(std::move(info));
  }
  return captures;
}

Status fillOperands(const Mod& mod, const ProblemOptions& options, Elements elements, HostOperands& operands) {
  NamedTensors file;
  operands.vInK = options.target.vInK != 0;
  std::optional<Generator> generator;
  const Needed needed(mod, elements);
  if (options.random) {
    generator.emplace(options.seed, options.random->shape, kMaxDrawnToRun, options.large);
    ATTNC_TRY(drawOperands(mod, options, *generator, operands));
  } else if (auto status = readOperands(mod, options, needed, elements, file, operands); !status) {
    return status;
  }
  if (!generator) {
    ATTNC_TRY_AS(problem, sequencesIn(operands));
    if (*problem && (operands.pageTable || operands.newK || operands.newV)) gatherCache(**problem, operands);
  }
  ATTNC_TRY(collectCaptures(mod, options, file, generator ? &*generator : nullptr, needed, Drawn::All, operands));
  if (options.backward && generator) drawResultGradients(*generator, operands);
  ATTNC_TRY(checkOperands(mod, operands));
  if (!generator) Fp8Options{.outDType = options.target.fp8.outDType}.check(operands.q.dtype);
  const auto shapeOf = [&](const CaptureInfo& output) {
    return outputShape(output, operands.problem, operands.q.view(), operands.k.view());
  };
  if (!options.backward) {
    for (const CaptureInfo& each : mod.reductions())
      operands.reductions.set(each.name, HostTensor{DType::F32, shapeOf(each), {}}.view());
    return {};
  }
  ATTNC_TRY(checkResultGradients(operands));
  const std::vector<CaptureInfo> read = options.gradients.ofOutputs(mod);
  const bool isAny = llvm::any_of(read, [&](const CaptureInfo& one) { return generator || file.count(one.name); });
  for (const CaptureInfo& each : isAny ? mod.reductionGradients() : std::vector<CaptureInfo>()) {
    HostTensor& tensor = operands.tensors[each.name] = HostTensor::make(DType::F32, shapeOf(each));
    const bool isRead = llvm::any_of(read, [&](const CaptureInfo& one) { return one.name == each.name; });
    if (generator && isRead) tensor = generator->normal(DType::F32, tensor.shape);
    if (auto given = file.extract(each.name); !given.empty()) {
      ATTNC_TRY(checkResultGradient(each.name, given.mapped(), tensor.dtype, tensor.shape));
      tensor = std::move(given.mapped());
    }
    operands.captures.set(each.name, tensor.view());
  }
  ATTNC_TRY_AS(gradients, gradientsAsked(mod, options.gradients, operands));
  operands.gradients = *std::move(gradients);
  return {};
}

} // namespace

Operands viewsOf(const HostOperands& operands) {
  Operands views;
#define ATTNC_TENSOR(member, name) views.member = operands.member.view();
#define ATTNC_OPTIONAL(member, name, feature)                                                                          \
  if (operands.member) views.member = operands.member->view();
#include "attnc/operands.def"
  if (operands.cache) {
    views.k = operands.cache->k.view();
    views.v = operands.cache->v.view();
    if (operands.cache->kScales) views.kScales = operands.cache->kScales->view();
    if (operands.cache->vScales) views.vScales = operands.cache->vScales->view();
  }
  if (operands.vInK) {
    views.v = firstColumns(views.k, views.v);
    if (views.newV) views.newV = firstColumns(*views.newK, *views.newV);
  }
  if (!operands.cuSeqlensQ) return views;
  views.maxQLen = operands.problem.qLen;
  views.maxKvLen = operands.problem.kvLen;
  return views;
}

std::string archThatTakes(const HostOperands& operands) {
  const DType ofQ = operands.q.dtype, ofK = operands.k.dtype;
  const bool isWide = std::max(operands.q.shape[3], operands.v.shape[3]) > 256;
  if (isWide || ofQ == DType::E4M3) return "sm_90a"; // has all families of these
  return ofK == DType::E4M3 ? "sm_89" : "sm_80";     // the first GPUs that convert e4m3
}

TensorView firstColumns(TensorView of, const TensorView& like) {
  of.shape[3] = like.shape[3];
  return of;
}

std::vector<int64_t> rowsOf(const HostOperands& operands) {
  return {operands.q.shape[0], operands.q.shape[1], operands.q.shape[2]};
}

void checkStdin(const ProblemOptions& options) {
  if (options.input == "-" && options.mod.path == "-")
    throw wrongUsage("--in", "stdin can be read once, and the mod comes from there",
                     "give the mod as a file, or as --expr");
}

Expected<Mod> loadMod(const ProblemOptions& options) {
  checkStdin(options);
  ModOptions mod = options.mod;
  mod.available = capturesInFile(options.input);
  return mod.loadTelling();
}

PrepareOptions prepareOptions(const ProblemOptions& options) {
  PrepareOptions prepare = options.kernel.toOptions();
  if (options.target.arch != "native") prepare.arch = options.target.arch;
  prepare.buildBlockMask = !options.noBlockMask;
  prepare.deterministic = options.gradients.deterministic;
  prepare.offsets = options.sequences.offsets();
  prepare.decode = options.kernelKind.decode();
  if (options.backward || options.kernelKind.kind == "backward") std::swap(prepare.tile, prepare.backwardTile);
  return prepare;
}

Expected<HostOperands> findOperands(const Mod& mod, const ProblemOptions& options, Elements elements) {
  HostOperands operands;
  auto status = fillOperands(mod, options, elements, operands);
  const bool mayBeTurned = !options.random && !operands.cuSeqlensQ && !operands.pageTable;
  if (!status) {
    Error error = std::move(status).error();
    if (error.remedy.empty() && mayBeTurned) error.remedy = operandRepair(operands);
    return error;
  }
  const std::string turned = mayBeTurned ? layoutRepair(operands, /*isSure=*/true) : "";
  if (!turned.empty()) std::fputs(("attnc: warning: " + turned + "\n").c_str(), stderr);
  return operands;
}

bool haveOutputGradients(const Mod& mod, const Captures& captures) {
  return llvm::any_of(mod.reductionGradients(),
                      [&](const CaptureInfo& gradient) { return captures.find(gradient.name) != nullptr; });
}

std::vector<int64_t> outputShape(const CaptureInfo& output, const ProblemShape& problem, const TensorView& q,
                                 const TensorView& k) {
  if (output.extent.back() == "Q_LEN") return {q.shape[0], q.shape[1], q.shape[2]};
  if (output.extent.back() == "KV_LEN") return {std::max(q.shape[0], k.shape[0]), q.shape[1], k.shape[2]};
  return {problem.batch, q.shape[1]};
}

Expected<Captures> gradientsAsked(const Mod& mod, const GradientOptions& asked, const HostOperands& operands) {
  ATTNC_TRY_AS(names, asked.wanted(mod, haveOutputGradients(mod, operands.captures)));
  Captures gradients;
  for (const std::string& name : *names) {
    auto tensor = operands.tensors.find(name);
    HostTensor like;
    if (tensor != operands.tensors.end()) like = {tensor->second.dtype, tensor->second.shape, {}};
    gradients.set(name, like.view());
  }
  return gradients;
}

Expected<HostOperands> findCaptures(const Mod& mod, const ProblemOptions& options, const CapturesAsked& asked) {
  HostOperands operands;
  NamedTensors file;
  const Needed needed(mod, asked.elements);
  if (!options.input.empty()) {
    std::map<std::string, Want> wants = capturesWanted(mod, needed);
    for (const char* name : {"q", "k"}) wants[name] = asked.withScores ? Want::Data : Want::Shape;
    ATTNC_TRY_AS(read, readSafetensors(options.input, wants));
    file = std::move(read->tensors);
    for (auto [name, target] : {std::pair("q", &operands.q), std::pair("k", &operands.k)})
      if (auto node = file.extract(name); !node.empty()) *target = std::move(node.mapped());
  }
  operands.problem = asked.shape ? *asked.shape : impliedShape(mod, file, asked.fallback);
  if (!asked.shape && !operands.q.shape.empty() && !operands.k.shape.empty()) {
    ATTNC_TRY_AS(problem, reference::problemOf(operands.q.view(), operands.k.view(), operands.k.view()));
    operands.problem = *problem;
  }
  Generator generator(options.seed, operands.problem, kMaxDrawnToExplain);
  const Drawn drawn = options.input.empty() ? Drawn::All : Drawn::Unneeded;
  ATTNC_TRY(collectCaptures(mod, options, file, &generator, needed, drawn, operands));
  ATTNC_TRY(checkCaptures(mod, operands.captures, operands.problem));
  return operands;
}

} // namespace attnc::cli
