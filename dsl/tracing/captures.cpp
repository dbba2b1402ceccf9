// In: annotations at module level. Out: the module's captures and extents, and the names that stand for them.
//
//   name: dtype[dims]        a tensor; dims are ints, constants of the mod, B H HKV Q_LEN KV_LEN, or free names
//   name: dtype              a tensor with no dims
//   name: int|float|bool     a run-time scalar
#include "dsl/objects/repairs.h"
#include "dsl/objects/tensors.h"
#include "dsl/tracing/tracer.h"
#include "dsl/tracing/usage.h"

namespace attnc::dsl {

using llvm::cast;
using llvm::dyn_cast;

namespace {

std::optional<DType> captureDType(NumberType type) {
  switch (type) {
  case NumberType::Bool: return DType::Bool;
  case NumberType::U8: return DType::U8;
  case NumberType::I8: return DType::I8;
  case NumberType::I16: return DType::I16;
  case NumberType::I32: return DType::I32;
  case NumberType::I64: return DType::I64;
  case NumberType::F16: return DType::F16;
  case NumberType::BF16: return DType::BF16;
  case NumberType::F32: return DType::F32;
  case NumberType::F64: return std::nullopt;
  }
  return std::nullopt;
}

/// Returns the element type that `f32`, `float32`, `attnc.f32` or `torch.float32` names.
std::optional<NumberType> annotatedDType(const Expr& expr) {
  if (const auto* name = dyn_cast<NameExpr>(&expr)) return findBareDType(name->name);
  const auto* member = dyn_cast<AttributeExpr>(&expr);
  const auto* base = member ? dyn_cast<NameExpr>(member->base) : nullptr;
  if (!base || (base->name != "torch" && base->name != "attnc")) return std::nullopt;
  return findDType(member->name, /*isTorch=*/base->name == "torch");
}

std::optional<ir::Type> scalarType(const Expr& expr) {
  const auto* name = dyn_cast<NameExpr>(&expr);
  if (!name) return std::nullopt;
  if (name->name == "int") return ir::Type::I32;
  if (name->name == "float") return ir::Type::F32;
  if (name->name == "bool") return ir::Type::Bool;
  return std::nullopt;
}

} // namespace

bool Tracer::declares(const Expr& annotation) {
  const auto* subscript = dyn_cast<SubscriptExpr>(&annotation);
  const Expr& base = subscript ? *subscript->base : annotation;
  return scalarType(base) || annotatedDType(base);
}

void Tracer::declare(llvm::StringRef name, const Expr& annotation) {
  Loc loc = at;
  auto bound = globals.names.find(name);
  const bool isBound = bound != globals.names.end() && !bound->second.is<const Deferred*>();
  // A declaration given with the text wins over one in the text.
  if (given.contains(name) && at.text == 0) return;
  if (isBound || declared.count(name)) diagnostics.fail(loc, diag::redeclared, std::string_view(name));
  if (!llvm::all_of(name, [](unsigned char c) { return c < 0x80; }))
    diagnostics.fail(loc, diag::captureName, std::string_view(name));
  for (unsigned i = 0; i < ir::kBuiltinDims; ++i)
    if (name == module.dims[i]) diagnostics.fail(loc, diag::captureIsDim, std::string_view(name));
  if (module.tensors.size() + module.scalars.size() >= ir::kMaxCaptures) {
    diagnostics.report(loc, diag::tooManyCaptures, std::string_view(name), Count(ir::kMaxCaptures));
    throw Abort{true};
  }
  declarations.emplace_back(name, loc);
  at = annotation.loc;
  if (auto type = scalarType(annotation)) return declareScalar(name, *type);
  const auto* subscript = dyn_cast<SubscriptExpr>(&annotation);
  const Expr& base = subscript ? *subscript->base : annotation;
  std::optional<NumberType> type = annotatedDType(base);
  if (!type && subscript && scalarType(base)) fail(diag::scalarWithDims, std::string_view(cast<NameExpr>(base).name));
  std::optional<DType> dtype = type ? captureDType(*type) : std::nullopt;
  if (!dtype) failCaptureType(name, annotation);
  declareTensor(name, *dtype, subscript ? subscript->index : nullptr);
}

/// Reports an annotation that declares no capture, with the declaration that is meant.
void Tracer::failCaptureType(llvm::StringRef name, const Expr& annotation) {
  const auto* subscript = dyn_cast<SubscriptExpr>(&annotation);
  const Expr& base = subscript ? *subscript->base : annotation;
  const std::string written = shortTextOf(*this, base.loc, "this");
  if (const auto* call = dyn_cast<CallExpr>(&annotation); call && annotatedDType(*call->callee)) {
    std::string dims;
    for (const Expr* dim : call->arguments) dims += (dims.empty() ? "" : ", ") + shortTextOf(*this, dim->loc, "N");
    fail(diag::captureCall, std::string_view(name), shortTextOf(*this, call->callee->loc, "f32"), dims);
  }
  const std::string dims = subscript ? "[" + shortTextOf(*this, subscript->index->loc, "N") + "]" : "";
  const llvm::StringRef dtype = llvm::StringRef(written).rsplit('.').second;
  for (auto [spelling, own, torchs] : {std::tuple("f64 float64 double", "f32", "float32"),
                                       {"u16 uint16 u32 uint32", "i32", "int32"},
                                       {"u64 uint64", "i64", "int64"},
                                       {"f8 fp8 float8 e4m3 e5m2 float8_e4m3fn float8_e5m2", "bf16", "bfloat16"}}) {
    llvm::SmallVector<llvm::StringRef, 8> spellings;
    llvm::StringRef(spelling).split(spellings, ' ');
    if (llvm::is_contained(spellings, dtype.empty() ? llvm::StringRef(written) : dtype))
      fail(diag::captureDType, std::string_view(name), written, own + dims, torchs);
  }
  std::string meant = text && at.text == 0 ? declarationOf(name, usageOf(*text, name)) : "";
  if (meant.find('[') == std::string::npos) meant = name.str() + ": f32[H]";
  fail(diag::captureType, std::string_view(name), written, meant);
}

ir::Kept Tracer::keptBy(const DeclaredOutput& output) {
  const auto* subscript = llvm::dyn_cast_or_null<SubscriptExpr>(output.annotation);
  std::string axes;
  if (subscript && annotatedDType(*subscript->base) == NumberType::F32)
    if (const auto* several = dyn_cast<SequenceExpr>(subscript->index))
      for (const Expr* item : several->items) {
        const std::string text = shortTextOf(*this, item->loc, "?");
        axes += text.substr(text.starts_with("attnc.") ? 6 : 0) + " ";
      }
  for (const ir::Kept kept : {ir::Kept::Keys, ir::Kept::Queries, ir::Kept::Heads}) {
    const std::string axis(ir::axisOf(kept));
    if (axes == "B H " + (axis.empty() ? "" : axis + " ")) return kept;
  }
  diagnostics.fail(output.loc, diag::outputAxes, std::string_view(output.name),
                   output.annotation ? "`" + shortTextOf(*this, output.annotation->loc, "...") + "`"
                                     : std::string("without a type"));
}

void Tracer::declareScalar(llvm::StringRef name, ir::Type type) {
  module.scalars.push_back({name.str(), type});
  const ir::Value value = module.scalar(unsigned(module.scalars.size() - 1));
  globals.names[name] = declared[name] = Object(value, Ints::Python);
}

/// Declares the tensor of this name among those given with the text, if there is one.
bool Tracer::declareAvailable(llvm::StringRef name) {
  auto found = available.find(std::string_view(name));
  if (found == available.end() || declared.count(name)) return false;
  const CaptureInfo& info = found->second;
  if (module.tensors.size() + module.scalars.size() >= ir::kMaxCaptures) return false;
  llvm::StringRef kept = found->first; // outlives the text that requests it
  if (info.kind != CaptureInfo::Kind::Tensor) {
    declareScalar(kept, info.kind == CaptureInfo::Kind::Int     ? ir::Type::I32
                        : info.kind == CaptureInfo::Kind::Float ? ir::Type::F32
                                                                : ir::Type::Bool);
    return true;
  }
  ir::TensorCapture tensor;
  tensor.name = kept.str();
  tensor.dtype = info.dtype;
  for (const std::string& extent : info.extent) tensor.shape.push_back(namedOrConstant(extent));
  module.tensors.push_back(std::move(tensor));
  globals.names[kept] = declared[kept] = wholeTensor(*this, unsigned(module.tensors.size() - 1));
  return true;
}

ir::Extent Tracer::namedOrConstant(const std::string& extent) {
  int64_t size = 0;
  if (!llvm::StringRef(extent).getAsInteger(10, size)) return {false, size};
  for (size_t i = 0; i < module.dims.size(); ++i)
    if (module.dims[i] == extent) return {true, int64_t(i)};
  module.dims.push_back(extent);
  return {true, int64_t(module.dims.size() - 1)};
}

/// Returns the capture that a parameter stands for: the one of its name, or the one that its annotation declares.
std::optional<Object> Tracer::parameterCapture(const Parameter& parameter) {
  if (auto capture = captureOf(parameter.name)) return capture;
  if (isTryingOut || !parameter.annotation || !declares(*parameter.annotation)) return std::nullopt;
  Loc loc = at;
  at = parameter.loc;
  declare(parameter.name, *parameter.annotation);
  at = loc;
  return declared.find(parameter.name)->second;
}

void Tracer::declareTensor(llvm::StringRef name, DType dtype, const Expr* dims) {
  ir::TensorCapture tensor;
  tensor.name = name.str();
  tensor.dtype = dtype;
  const auto* several = dims ? dyn_cast<SequenceExpr>(dims) : nullptr;
  bool isTuple = several && !several->isList;
  size_t rank = !dims ? 0 : isTuple ? several->items.size() : 1;
  if (rank > size_t(TensorView::kMaxRank))
    diagnostics.fail(dims->loc, diag::tooManyDims, std::string_view(name), Count(rank), Count(TensorView::kMaxRank));
  for (size_t i = 0; i < rank; ++i) tensor.shape.push_back(extent(isTuple ? *several->items[i] : *dims));
  module.tensors.push_back(std::move(tensor));
  globals.names[name] = declared[name] = wholeTensor(*this, unsigned(module.tensors.size() - 1));
}

/// dim = NAME | expression of constants
ir::Extent Tracer::extent(const Expr& dim) {
  if (const auto* name = dyn_cast<NameExpr>(&dim)) {
    auto bound = globals.names.find(name->name);
    bool isConstant = bound != globals.names.end() && !bound->second.isTraced();
    if (!isConstant) return namedExtent(name->name, dim.loc);
  }
  Object value = eval(dim);
  at = dim.loc;
  const ir::Value* traced = value.get<ir::Value>(); // `attnc.H`
  if (traced && module[*traced].op == ir::Op::Dim) return {true, module[*traced].attr};
  if (!value.is<int64_t>()) fail(diag::badDim, describe(value));
  int64_t size = value.as<int64_t>();
  if (size < 1 || size > INT32_MAX) fail(diag::dimOutOfRange, size);
  return {false, size};
}

namespace {

/// Returns a name without case and underscores, which are often misspelled.
std::string bare(llvm::StringRef name) {
  std::string result = name.lower();
  std::erase(result, '_');
  return result;
}

} // namespace

/// Warns if a free name of an extent is a name of the module in another spelling, or an index: `f32[h]`.
void Tracer::warnOfCase(llvm::StringRef name, Loc loc) {
  std::string meant;
  for (const std::string& known : module.dims)
    if (meant.empty() && bare(known) == bare(name)) meant = known;
  if (bare(name) == "qidx") meant = "Q_LEN";
  if (bare(name) == "kvidx") meant = "KV_LEN";
  if (!meant.empty()) diagnostics.warn(loc, diag::extentCase, std::string_view(name), meant);
}

ir::Extent Tracer::namedExtent(llvm::StringRef name, Loc loc) {
  if (auto bound = globals.names.find(name); bound != globals.names.end()) {
    if (bound->second.is<const Deferred*>()) force(*bound->second.as<const Deferred*>());
    const ir::Value* value = bound->second.get<ir::Value>();
    if (value && module[*value].op == ir::Op::Dim) return {true, module[*value].attr};
    diagnostics.fail(loc, diag::badDim, describe(bound->second));
  }
  for (unsigned i = 0; i < ir::kBuiltinDims; ++i)
    if (name == module.dims[i]) return {true, i};
  warnOfCase(name, loc);
  module.dims.push_back(name.str());
  const ir::Value value = module.dim(unsigned(module.dims.size() - 1));
  globals.names[name] = declared[name] = Object(value, Ints::Python);
  return {true, int64_t(module.dims.size() - 1)};
}

} // namespace attnc::dsl
