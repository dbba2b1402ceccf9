#include "codegen/library_mods.h"
#include "ir/bind.h"

#include "codegen/host_mods.h"
#include "dsl/frontend.h"
#include "passes/pipeline.h"
#include "support/element.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <random>

namespace attnc::test {
namespace {

namespace fs = std::filesystem;

void fillRandomly(std::vector<char>& bytes, DType dtype, std::mt19937& random) {
  constexpr float kLarge[] = {0x1p12f, 0x1p28f, 0x1p50f}; // of which products are finite
  for (size_t at = 0; at < bytes.size(); at += size_t(dtypeBytes(dtype))) {
    int32_t small = int32_t(random() % 5);
    float real = float(int(random() % 2001) - 1000) / 256;
    if (random() % 16 == 0) real *= kLarge[random() % std::size(kLarge)];
    bool isFloat = ir::loadedType(dtype) == ir::Type::F32;
    uint16_t half = uint16_t(random() % 0x7c00);
    uint16_t bf16 = toBf16(real);
    std::memset(&bytes[at], 0, size_t(dtypeBytes(dtype)));
    if (!isFloat) bytes[at] = char(dtype == DType::Bool ? small & 1 : small);
    if (dtype == DType::F32) std::memcpy(&bytes[at], &real, 4);
    if (dtype == DType::F16) std::memcpy(&bytes[at], &half, 2);
    if (dtype == DType::BF16) std::memcpy(&bytes[at], &bf16, 2);
  }
}

/// Captures of the declared shapes; free extents are 11. Tensors are dense with their last axis first in memory, so
/// that strides count.
Captures makeCaptures(LibraryMod& mod, std::mt19937& random) {
  const int64_t dims[] = {mod.problem.batch, mod.problem.qHeads, mod.problem.kvHeads, mod.problem.qLen,
                          mod.problem.kvLen};
  Captures captures;
  for (const ir::TensorCapture& tensor : mod.module.tensors) {
    TensorView view{.dtype = tensor.dtype, .rank = int(tensor.shape.size())};
    int64_t step = 1;
    for (size_t axis = 0; axis < tensor.shape.size(); ++axis) {
      const ir::Extent& extent = tensor.shape[axis];
      view.shape[axis] = !extent.isNamed                            ? extent.value
                         : extent.value < int64_t(ir::kBuiltinDims) ? dims[extent.value]
                                                                    : 11;
      view.stride[axis] = step;
      step *= view.shape[axis];
    }
    mod.storage.push_back(std::make_shared<std::vector<char>>(size_t(step * dtypeBytes(tensor.dtype))));
    fillRandomly(*mod.storage.back(), tensor.dtype, random);
    view.data = mod.storage.back()->data();
    captures.set(tensor.name, view);
  }
  for (const ir::ScalarCapture& scalar : mod.module.scalars) {
    if (scalar.type == ir::Type::F32) captures.set(scalar.name, 2.5 + double(random() % 64) / 8);
    if (scalar.type == ir::Type::I32) captures.set(scalar.name, int64_t(random() % 40));
    if (scalar.type == ir::Type::Bool) captures.set(scalar.name, bool(random() & 1));
  }
  return captures;
}

} // namespace

std::vector<LibraryMod> libraryMods(const ProblemShape& problem) {
  std::vector<fs::path> paths;
  for (const fs::directory_entry& entry : fs::directory_iterator(ATTNC_SOURCE_DIR "/dsl/mods"))
    if (entry.path().extension() == ".py") paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  std::vector<LibraryMod> mods;
  std::mt19937 random(7);
  for (const fs::path& path : paths) {
    INFO(path);
    Expected<ir::Module> module = dsl::trace(readFile(path.string()), {.name = path.filename().string()});
    INFO((module ? std::string() : module.error().message));
    REQUIRE(module);
    Status simplified = passes::runPipeline(*module, {.verify = true});
    INFO((simplified ? std::string() : simplified.error().message));
    REQUIRE(simplified);
    LibraryMod mod{.name = path.stem().string(), .module = std::move(*module), .problem = problem};
    Captures captures = makeCaptures(mod, random);
    Expected<ir::Bindings> bindings = ir::bind(mod.module, captures, mod.problem);
    INFO((bindings ? std::string() : bindings.error().message));
    REQUIRE(bindings);
    mod.bindings = std::move(*bindings);
    mods.push_back(std::move(mod));
  }
  return mods;
}

} // namespace attnc::test
