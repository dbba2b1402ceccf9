// A stage of a kernel on the host: its generated text behind host_gpu.h, compiled and loaded.
#pragma once

#include "attnc/kernel.h"
#include "helpers/temp_directory.h"
#include "jit/tensor_map.h"
#include "templates/params_sm90.cuh"

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

namespace host {
extern unsigned resident; ///< how many CTAs run at a time
}

namespace attnc::test {

/// What a kernel's text is followed by.
inline std::string epilogue(const KernelSource& source, const std::string& params) {
  // The kernel's namespace is the text's last.
  const size_t last = source.text.rfind("} // namespace attnc::") + 22;
  const std::string space = source.text.substr(last, source.text.find('\n', last) - last);
  return fmt::format(
      "namespace attnc::{0} {{ alignas(1024) unsigned char dynamic_shared[host::kSharedBytes]; }}\n"
      "extern \"C\" __attribute__((visibility(\"default\")))\n"
      "const char* run(const void* params, const void* args, unsigned ctas, unsigned threads, unsigned seed) {{\n"
      "  using namespace attnc;\n"
      "  const auto kernel = [](const void* params, const void* args) {{\n"
      "    attnc::{0}::{1}(*({2}*)params, *(const ModArgs*)args);\n"
      "  }};\n"
      "  return host::run(ctas, threads, seed, attnc::{0}::dynamic_shared, kernel, params, args);\n"
      "}}\n",
      space, source.entry, params);
}

/// A stage of a kernel, compiled for the host.
class HostStage {
public:
  HostStage(KernelSource source, const std::string& params) {
    const auto replaceAll = [](std::string& text, const std::string& from, const std::string& to) {
      for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
        text.replace(at, from.size(), to);
    };
    for (auto& [name, text] : source.headers) {
      if (name.starts_with("ptx/")) text.clear();
      if (name.starts_with("params")) replaceAll(text, "#if defined(__CUDACC__) || defined(__CUDACC_RTC__)", "#if 1");
    }
    replaceAll(source.text, "extern __shared__", "extern");
    replaceAll(source.text, "__shared__", "static");
    const test::TempDirectory folder;
    const std::string file = folder.path() + "/stage.cpp", object = folder.path() + "/stage.so",
                      log = folder.path() + "/log";
    std::ofstream(file) << "#include \"" ATTNC_SOURCE_DIR "/tests/kernels/host_gpu.h\"\n"
                        << source.flattened() << epilogue(source, params);
    const char* compiler = std::getenv("CXX");
    // Hidden: this program exports functions, and those of the kernel with the same names have other bodies.
    const std::string command =
        fmt::format("{} -std=c++20 -O1 -fPIC -fvisibility=hidden -shared -w -o '{}' '{}' > '{}' 2>&1",
                    compiler ? compiler : "c++", object, file, log);
    if (std::system(command.c_str()) != 0) {
      std::stringstream said;
      said << std::ifstream(log).rdbuf();
      FAIL(said.str().substr(0, 4000));
    }
    void* const handle = dlopen(object.c_str(), RTLD_NOW | RTLD_LOCAL);
    REQUIRE(handle);
    run = reinterpret_cast<Run>(dlsym(handle, "run"));
  }
  HostStage(const HostStage&) = delete;
  using Run = const char* (*)(const void*, const void*, unsigned, unsigned, unsigned);
  Run run = nullptr;
};

/// Returns the tensor map, as host::Map of host_gpu.cpp reads it.
inline TensorMap mapOf(const jit::TensorMapRequest& request) {
  const auto& [data, dtype, rank, extent, stride, box, promotion] = request;
  const bool is5d = rank == 5;
  const struct {
    const void* data;
    std::array<int64_t, 5> extent;
    std::array<int64_t, 4> strideBytes;
    int box[3], elementBytes;
  } map{data,
        {int64_t(extent[0]), int64_t(extent[1]), int64_t(extent[2]), int64_t(extent[3]), is5d ? int64_t(extent[4]) : 1},
        {int64_t(stride[0]), int64_t(stride[1]), int64_t(stride[2]), is5d ? int64_t(stride[3]) : 0},
        {int(box[1]), int(box[2]), int(box[3])},
        int(dtypeBytes(dtype))};
  TensorMap words{};
  static_assert(sizeof map <= sizeof words);
  std::memcpy(&words, &map, sizeof map);
  return words;
}

/// Returns the stage of this text, compiled at the first call. It lives as long as the process.
inline HostStage& hostStage(const KernelSource& source, const std::string& params) {
  static auto& stages = *new std::map<std::string, HostStage>; // by entry and text
  const std::string text = source.entry + "\n" + source.flattened();
  if (const auto found = stages.find(text); found != stages.end()) return found->second;
  return stages.try_emplace(text, source, params).first->second;
}

} // namespace attnc::test
