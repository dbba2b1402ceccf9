#include "dsl/tracing.h"

#include "ir/bind.h"
#include "ir/verifier.h"
#include "support/element.h"

#include <catch2/catch.hpp>

#include <fstream>
#include <sstream>

namespace attnc::testing {

ir::Module traced(const std::string& text, const std::map<std::string, std::string>& defines) {
  return tracedWith(text, {.name = "mod.py", .defines = defines});
}

ir::Module tracedWith(const std::string& text, const dsl::FrontendOptions& options) {
  auto module = dsl::trace(text, options);
  if (!module) FAIL(text << "\n" << module.error().message);
  auto wrong = ir::verify(*module);
  if (wrong) FAIL(text << "\n" << *wrong);
  return std::move(*module);
}

std::vector<std::string> problems(const std::string& text, const std::map<std::string, std::string>& defines) {
  return problemsWith(text, {.name = "mod.py", .defines = defines});
}

std::vector<std::string> problemsWith(const std::string& text, const dsl::FrontendOptions& options) {
  auto module = dsl::trace(text, options);
  std::vector<std::string> result;
  if (module) return result;
  CHECK(module.error().blame == Blame::Mod);
  for (const Diagnostic& found : module.error().diagnostics)
    result.push_back(found.id + " at " + std::to_string(found.line) + ":" + std::to_string(found.column));
  return result;
}

TensorView Running::makeTensor(const ir::TensorCapture& capture, std::mt19937& random) {
  TensorView view;
  view.dtype = capture.dtype;
  view.rank = int(capture.shape.size());
  int64_t count = 1;
  for (int axis = view.rank - 1; axis >= 0; --axis) {
    const ir::Extent& extent = capture.shape[size_t(axis)];
    view.shape[axis] = extent.isNamed ? dims.at(module.dims[size_t(extent.value)]) : extent.value;
    view.stride[axis] = count;
    count *= view.shape[axis];
  }
  memory.emplace_back(size_t(count * dtypeBytes(capture.dtype)));
  view.data = memory.back().data();
  bool isFloat = ir::loadedType(capture.dtype) == ir::Type::F32;
  const bool isLarge = capture.dtype == DType::F32 || capture.dtype == DType::BF16; // may be
  auto& values = elements[capture.name];
  for (int64_t i = 0; i < count; ++i) {
    double value = isFloat                        ? (int(random() % 129) - 64) / 32.0
                   : capture.dtype == DType::Bool ? random() % 2
                                                  : random() % 7;
    if (isLarge && random() % 16 == 0) value *= 0x1p28;
    values.push_back(value);
    writeElement(memory.back().data(), capture.dtype, i, value);
  }
  return view;
}

Running::Running(ir::Module traced, unsigned seed) : module(std::move(traced)) {
  std::mt19937 random(seed);
  ProblemShape problem{2, 4, 2, 24, 40};
  dims = {{"B", 2}, {"H", 4}, {"HKV", 2}, {"Q_LEN", 24}, {"KV_LEN", 40}};
  for (size_t i = ir::kBuiltinDims; i < module.dims.size(); ++i) dims[module.dims[i]] = 7;
  Captures captures;
  for (const ir::TensorCapture& capture : module.tensors) captures.set(capture.name, makeTensor(capture, random));
  for (const ir::ScalarCapture& capture : module.scalars) {
    switch (capture.type) {
    case ir::Type::Bool: captures.set(capture.name, true); break;
    case ir::Type::I32:
    case ir::Type::I64: captures.set(capture.name, 5); break;
    case ir::Type::F32: captures.set(capture.name, 1.5); break;
    }
    scalars[capture.name] = capture.type == ir::Type::Bool ? 1 : capture.type == ir::Type::F32 ? 1.5 : 5;
  }
  auto bindings = ir::bind(module, captures, problem);
  if (!bindings) FAIL(bindings.error().message);
  interpreter.emplace(module, *bindings);
  for (const ir::Reduction& each : ir::reductionsOf(module))
    reductions.emplace(each.name, ir::Evaluator(module, *bindings, *module.output(each.output())));
}

std::string readFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) FAIL("cannot read " << path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

} // namespace attnc::testing
