#include "drawn_captures.h"

#include "support/element.h"

#include <algorithm>
#include <filesystem>

namespace attnc::test {
namespace {

int64_t extentOf(const std::string& name, const ProblemShape& problem) {
  if (name == "B") return problem.batch;
  if (name == "H") return problem.qHeads;
  if (name == "HKV") return problem.kvHeads;
  if (name == "Q_LEN") return problem.qLen;
  if (name == "KV_LEN") return problem.kvLen;
  return std::isdigit(static_cast<unsigned char>(name[0])) ? std::stoll(name) : 5;
}

} // namespace

DrawnCaptures::DrawnCaptures(const Mod& mod, const ProblemShape& problem, int most, uint32_t seed) {
  std::mt19937 random(seed);
  auto upTo = [&](int last) { return std::uniform_int_distribution<int>(0, last)(random); };
  for (const CaptureInfo& capture : mod.captures()) {
    switch (capture.kind) {
    case CaptureInfo::Kind::Int: captures.set(capture.name, upTo(most)); continue;
    case CaptureInfo::Kind::Float: captures.set(capture.name, upTo(8) / 8.0); continue;
    case CaptureInfo::Kind::Bool: captures.set(capture.name, upTo(1) == 1); continue;
    case CaptureInfo::Kind::Tensor: break;
    }
    TensorView view;
    view.dtype = capture.dtype;
    view.rank = int(capture.extent.size());
    for (int axis = 0; axis < view.rank; ++axis) view.shape[axis] = extentOf(capture.extent[size_t(axis)], problem);
    for (int64_t axis = view.rank - 1, step = 1; axis >= 0; step *= view.shape[size_t(axis--)])
      view.stride[size_t(axis)] = step;
    memory.emplace_back(size_t(view.elements() * dtypeBytes(capture.dtype)) + 1);
    view.data = memory.back().data();
    bool isFloat = capture.dtype == DType::F32 || capture.dtype == DType::F16 || capture.dtype == DType::BF16;
    int64_t row = view.rank > 0 ? std::max<int64_t>(1, view.shape[size_t(view.rank) - 1]) : 1;
    for (int64_t i = 0, id = 0; i < view.elements(); ++i) {
      id = i % row == 0 ? 0 : std::min<int64_t>(most, id + (upTo(int(row / 4)) == 0));
      writeElement(view.data, capture.dtype, i, isFloat ? upTo(64) / 32.0 - 1 : double(row > 1 ? id : upTo(most)));
    }
    captures.set(capture.name, view);
  }
}

std::vector<std::string> libraryMods() {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(ATTNC_SOURCE_DIR "/dsl/mods"))
    if (entry.path().extension() == ".py") paths.push_back(entry.path().string());
  std::sort(paths.begin(), paths.end());
  return paths;
}

} // namespace attnc::test
