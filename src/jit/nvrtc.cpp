#include "jit/nvrtc.h"

#include "cache/fork_guard.h"
#include "jit/arch.h"
#include "jit/nvrtc_library.h"
#include "jit/ptxas_log.h"
#include "support/try.h"

#include <fmt/format.h>
#include <llvm/ADT/StringExtras.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <mutex>

namespace attnc::jit {

namespace {

// Options, without their dashes, that read or write files, or change the log.
constexpr const char* kForbiddenOptions[] = {
    "I", "include", "pre-include", "use-pch", "create-pch", "pch", "time", "split-compile", "fdevice-time-trace", "@"};

constexpr char kReinstall[] = "reinstall NVRTC; libnvrtc-builtins.so must lie beside it";

// Whether NVRTC refuses to compile because of the value of NV_NVVM_VERSION.
bool refusesVersion(nvrtcResult status, const std::string& log) {
  return status == NVRTC_ERROR_INVALID_OPTION && log.find("NV_NVVM_VERSION") != std::string::npos;
}

bool namesStandard(const std::string& option) { return option.starts_with("--std") || option.starts_with("-std"); }

// One NVRTC program, destroyed with its scope. Not to be shared between threads.
class Program {
public:
  Program(const NvrtcApi& api, const KernelSource& source) : api(api) {
    std::vector<const char*> texts, names;
    for (const auto& [name, text] : source.headers) {
      names.push_back(name.c_str());
      texts.push_back(text.c_str());
    }
    status = api.nvrtcCreateProgram(&program, source.text.c_str(), source.templateName.c_str(), int(texts.size()),
                                    texts.data(), names.data());
  }
  ~Program() {
    if (program) api.nvrtcDestroyProgram(&program);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  nvrtcResult compile(const std::vector<std::string>& options) {
    if (status != NVRTC_SUCCESS) return status;
    std::vector<const char*> raw;
    for (const std::string& option : options) raw.push_back(option.c_str());
    return api.nvrtcCompileProgram(program, int(raw.size()), raw.data());
  }

  // `size` and `get` are a pair of NVRTC functions; texts include their terminating zero.
  template <class Size, class Get> std::string output(Size size, Get get) const {
    size_t bytes = 0;
    if (!program || size(program, &bytes) != NVRTC_SUCCESS) return {};
    std::string buffer(bytes, '\0');
    if (bytes == 0 || get(program, buffer.data()) != NVRTC_SUCCESS) return {};
    return buffer;
  }
  std::string text(const std::string& bytes) const { return bytes.substr(0, bytes.find('\0')); }

  std::string log() const { return text(output(api.nvrtcGetProgramLogSize, api.nvrtcGetProgramLog)); }
  std::string ptx() const { return text(output(api.nvrtcGetPTXSize, api.nvrtcGetPTX)); }
  std::string cubin() const { return output(api.nvrtcGetCUBINSize, api.nvrtcGetCUBIN); }

private:
  const NvrtcApi& api;
  nvrtcProgram program = nullptr;
  nvrtcResult status = NVRTC_SUCCESS;
};

// Returns the comment lines at the top of a PTX, joined into one line.
std::string banner(llvm::StringRef ptx) {
  std::string joined;
  for (llvm::StringRef line : llvm::split(ptx, '\n')) {
    if (line.empty()) continue;
    if (!std::string_view(line).starts_with("//")) break;
    line = line.ltrim("/ ");
    if (!line.empty()) joined += " | " + line.str();
  }
  return joined;
}

// Checks that the result is a kernel, so that nothing else is ever stored or loaded.
Status checkCubin(const std::string& cubin, const KernelSource& source) {
  if (cubin.size() < 64 || std::memcmp(cubin.data(), "\177ELF", 4) != 0)
    return Error::internal(fmt::format("NVRTC made no cubin of {}", source.templateName));
  std::string section = ".text." + source.entry + '\0';
  if (cubin.find(section) == std::string::npos)
    return Error::internal(fmt::format("the cubin of {} has no kernel `{}`", source.templateName, source.entry));
  return {};
}

} // namespace

std::vector<std::string> nvrtcOptions(const KernelSource& source) {
  // --no-source-include: otherwise NVRTC would search the working directory for a missing header.
  std::vector<std::string> options = {"--no-cache", "--no-source-include", "-default-device", "--ptxas-options=-v",
                                      "--gpu-architecture=" + source.arch};
  if (std::none_of(source.options.begin(), source.options.end(), namesStandard)) options.emplace_back("--std=c++20");
  options.insert(options.end(), source.options.begin(), source.options.end());
  return options;
}

Status checkOptions(const KernelSource& source) {
  for (const std::string& option : source.options)
    for (const char* forbidden : kForbiddenOptions)
      if (std::string_view(llvm::StringRef(option).ltrim('-')).starts_with(forbidden))
        return Error::internal(
            fmt::format("option `{}` of {} depends on files or has side effects", option, source.templateName));
  return {};
}

struct Nvrtc::Impl {
  explicit Impl(NvrtcLocator locator) : locator(std::move(locator)) {}

  NvrtcLocator locator;
  std::atomic<const NvrtcApi*> opened = nullptr; ///< &api once it is complete; read without the mutex
  std::mutex mutex; ///< guards the three members below; only taken in a CompileScope, so no child inherits it locked
  std::optional<NvrtcApi> api;
  std::optional<std::string> identity;
  std::vector<int> archs;

  Expected<const NvrtcApi*> open() {
    std::lock_guard lock(mutex);
    if (api) return opened.load();
    ATTNC_TRY_AS(library, locator.open());
    int count = 0;
    std::vector<int> found;
    if (library->nvrtcGetNumSupportedArchs(&count) == NVRTC_SUCCESS && count > 0) {
      found.resize(count);
      if (library->nvrtcGetSupportedArchs(found.data()) != NVRTC_SUCCESS) found.clear();
    }
    if (found.empty()) return Error::environment(library->path + " names no arch that it compiles for");
    archs = std::move(found);
    api = std::move(*library);
    opened = &*api;
    return opened.load();
  }

  Expected<std::string> askIdentity(const NvrtcApi& library) {
    std::lock_guard lock(mutex);
    if (identity) return *identity;
    int major = 0, minor = 0;
    library.nvrtcVersion(&major, &minor);
    Program program(library, KernelSource{.templateName = "identity.cu"});
    nvrtcResult status = program.compile({"--no-cache", fmt::format("--gpu-architecture=compute_{}", archs.front())});
    const std::string log = program.log(), version = locator.nvvmVersionOf(library.path);
    // If the version is refused there is no banner. That does no harm: nothing compiles then, so no key has this
    // identity.
    if (status != NVRTC_SUCCESS && !refusesVersion(status, log))
      return Error::environment(fmt::format("{} does not compile an empty program: {}\n{}", library.path,
                                            library.nvrtcGetErrorString(status), log),
                                kReinstall);
    identity = fmt::format("{}.{}{}", major, minor, banner(program.ptx()));
    if (!version.empty()) *identity += " | NV_NVVM_VERSION=" + version;
    return *identity;
  }

  // Checked here because a wrong arch is the user's mistake, and NVRTC's own message names only the option.
  Status checkArch(const std::string& arch) const {
    const std::optional<ArchName> name = parseArchName(arch);
    if (name && std::find(archs.begin(), archs.end(), name->number) != archs.end()) return {};
    return Error::environment(fmt::format("this NVRTC does not compile for `{}`", arch),
                              fmt::format("it knows sm_{}", fmt::join(archs, ", sm_")));
  }

  Error compileError(const NvrtcApi& library, const KernelSource& source, nvrtcResult status,
                     const std::string& log) const {
    std::string message = fmt::format("NVRTC fails on {} for {}: {}\n{}", source.templateName, source.arch,
                                      library.nvrtcGetErrorString(status), log);
    if (refusesVersion(status, log)) return Error::environment(message, "unset NV_NVVM_VERSION");
    switch (status) {
    case NVRTC_ERROR_OUT_OF_MEMORY: return Error::environment(message, "free some host memory");
    case NVRTC_ERROR_BUILTIN_OPERATION_FAILURE: return Error::environment(message, kReinstall);
    default: return Error::internal(message);
    }
  }
};

namespace {
Error forkedError() {
  return Error::environment("this process was forked while its parent compiled a kernel, and NVRTC would hang in it",
                            "compile before forking, or fork when no thread compiles");
}
} // namespace

Nvrtc::Nvrtc(const Env& env, std::string path) : impl(std::make_unique<Impl>(NvrtcLocator(std::move(path), env))) {}
Nvrtc::~Nvrtc() = default;

std::optional<std::string> Nvrtc::stamp() const {
  if (const NvrtcApi* api = impl->opened) return impl->locator.stampOf(api->path);
  return impl->locator.stamp();
}

Expected<std::string> Nvrtc::identity() {
  cache::CompileScope scope;
  if (!scope) return forkedError();
  ATTNC_TRY_AS(api, impl->open());
  return impl->askIdentity(**api);
}

Expected<std::string> Nvrtc::path() {
  cache::CompileScope scope;
  if (!scope) return forkedError();
  ATTNC_TRY_AS(api, impl->open());
  return (*api)->path;
}

Expected<std::vector<int>> Nvrtc::supportedArchs() {
  cache::CompileScope scope;
  if (!scope) return forkedError();
  ATTNC_TRY_AS(api, impl->open());
  return impl->archs;
}

Expected<CompiledKernel> Nvrtc::compile(const KernelSource& source) {
  cache::CompileScope scope;
  if (!scope) return forkedError();
  ATTNC_TRY(checkOptions(source));
  ATTNC_TRY_AS(opened, impl->open());
  const NvrtcApi& api = **opened;
  ATTNC_TRY(impl->checkArch(source.arch));

  auto begin = std::chrono::steady_clock::now();
  Program program(api, source);
  nvrtcResult status = program.compile(nvrtcOptions(source));
  CompiledKernel result;
  result.log = program.log();
  if (status != NVRTC_SUCCESS) return impl->compileError(api, source, status, result.log);
  std::string cubin = program.cubin();
  ATTNC_TRY(checkCubin(cubin, source));
  result.cubin.assign(cubin.begin(), cubin.end());
  result.ptx = program.ptx();
  readPtxasLog(result.log, result);
  result.compileMs = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  return result;
}

} // namespace attnc::jit
