// `attnc doctor`: what attnc finds on this machine, and what will be slow or not work.
#include "commands/cache_state.h"
#include "commands/command.h"
#include "commands/version.h"
#include "show/kernel_rows.h"
#include "terminal.h"

#include "attnc/toolchain.h"
#include "attnc/version.h"
#include "support/readable.h"
#include "support/try.h"
#include "tools/device/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

namespace attnc::cli {
namespace {

/// What was found about the machine, and about what follows.
struct Finding {
  const char* kind;         ///< "broken", "slow" or "note"
  std::string what, repair; ///< sentences; the second may be empty
};

struct Findings : std::vector<Finding> {
  void broken(std::string what, std::string repair = {}) { push_back({"broken", what, repair}); }
  void slow(std::string what, std::string repair = {}) { push_back({"slow", what, repair}); }
  void note(std::string what, std::string repair = {}) { push_back({"note", what, repair}); }
  bool areUsable() const {
    return std::none_of(begin(), end(), [](const Finding& one) { return one.kind == std::string("broken"); });
  }
};

struct Machine {
  std::vector<jit::DeviceInfo> gpus;
  std::string whyNoGpu;
  int driver = 0; ///< 13000 for CUDA 13.0; 0: unknown
  std::optional<NvrtcInfo> nvrtc;
  std::string whyNoNvrtc, nvrtcRepair;
  CacheState cache;
  DefaultPackInfo defaultPack;
};

Machine look() {
  Machine machine;
  const auto count = device::count();
  for (int ordinal = 0; count && ordinal < *count; ++ordinal) {
    if (auto context = device::Context::create(ordinal))
      machine.gpus.push_back(context->info());
    else
      machine.whyNoGpu = context.error().message;
  }
  if (!count) machine.whyNoGpu = count.error().message;
  if (machine.gpus.empty() && machine.whyNoGpu.empty()) machine.whyNoGpu = "the driver has no device";
  if (auto version = device::driverVersion()) machine.driver = *version;
  if (auto nvrtc = findNvrtc()) {
    machine.nvrtc = *std::move(nvrtc);
  } else {
    machine.whyNoNvrtc = nvrtc.error().message;
    machine.nvrtcRepair = nvrtc.error().remedy;
  }
  machine.cache = cacheState();
  machine.defaultPack = findDefaultPack();
  return machine;
}

/// Returns 13000 for the identity "13.0 | ..."; 0 if it has no version.
int versionOf(const std::string& identity) {
  int major = 0, minor = 0;
  return std::sscanf(identity.c_str(), "%d.%d", &major, &minor) == 2 ? 1000 * major + 10 * minor : 0;
}

std::string cudaText(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

const char* valueOf(const CacheState& state, const char* variable) {
  for (const auto& [name, value] : state.variables)
    if (name == variable) return value.c_str();
  return "";
}

void addGpuFindings(const Machine& machine, Findings& findings) {
  if (machine.gpus.empty())
    findings.note("there is no GPU: run computes with the fp64 reference on the CPU; bench and tune do not work",
                  "check, mask, probe, emit, explain and pack need none");
  for (const jit::DeviceInfo& gpu : machine.gpus) {
    if (gpu.major < 8)
      findings.broken(fmt::format("{} has compute capability {}.{}: kernels need 8.0", gpu.name, gpu.major, gpu.minor));
    else if (gpu.major != 9)
      findings.slow(fmt::format(
          "{} takes kernels of family sm80: those of families sm90 and grid for Hopper need compute capability 9.0",
          gpu.arch));
    if (machine.nvrtc && gpu.major >= 8 && !isKnownArch(gpu.arch))
      findings.broken(fmt::format("this NVRTC does not compile for {}", gpu.arch),
                      "install a later NVRTC 13, and name it with ATTNC_NVRTC");
  }
  const int nvrtc = machine.nvrtc ? versionOf(machine.nvrtc->identity) : 0;
  if (machine.driver && nvrtc && machine.driver / 1000 < nvrtc / 1000)
    findings.broken(fmt::format("the driver is of CUDA {}, and NVRTC of {}: kernels do not load",
                                cudaText(machine.driver), cudaText(nvrtc)),
                    "install a driver of CUDA 13");
}

void addCacheFindings(const CacheState& cache, Findings& findings) {
  const char* const kEach = "so each process compiles its kernels anew";
  if (cache.directory.empty())
    findings.slow(fmt::format("{}, {}", cache.problem, kEach), "set ATTNC_CACHE_DIR");
  else if (!cache.problem.empty())
    findings.slow(fmt::format("the cache {} is not used: {}, {}", cache.directory, cache.problem, kEach),
                  "chmod go-w it, or set ATTNC_CACHE_DIR");
  else if (cache.mode == "off")
    findings.slow(fmt::format("ATTNC_CACHE_MODE is off, {}", kEach), "unset it, or say rw");
  else if (cache.mode == "ro")
    findings.slow("ATTNC_CACHE_MODE is ro: kernels that the cache lacks are compiled by each process",
                  "unset it, or say rw");
  else if (!cache.isWritable)
    findings.slow(fmt::format("the cache {} cannot be written: kernels that it lacks are compiled by each process",
                              cache.directory),
                  "make it writable, or set ATTNC_CACHE_DIR");
  if (cache.maxBytes && double(cache.bytes) > 0.9 * double(cache.maxBytes))
    findings.slow("the cache is nearly full: the least recently used kernels are removed",
                  "set ATTNC_CACHE_MAX_BYTES higher");
  for (const CacheState::Pack& pack : cache.packs)
    if (!pack.error.empty()) findings.broken(pack.error, "mend ATTNC_PACK");
}

Findings findingsOf(const Machine& machine) {
  Findings findings;
  addGpuFindings(machine, findings);
  if (!machine.nvrtc)
    findings.broken(
        "nothing can be compiled: " + machine.whyNoNvrtc.substr(0, machine.whyNoNvrtc.find("; looked for")) +
            "; check, mask, probe and emit as cu work",
        machine.nvrtcRepair);
  else if (versionOf(machine.nvrtc->identity) > 13000)
    findings.slow(fmt::format("NVRTC {} spills registers in some backward kernels, where 13.0 does not",
                              cudaText(versionOf(machine.nvrtc->identity))),
                  "take NVRTC 13.0, and name it with ATTNC_NVRTC");
  addCacheFindings(machine.cache, findings);
  if (!machine.defaultPack.problem.empty())
    findings.slow(machine.defaultPack.problem + ": it is passed over, and its kernels are compiled",
                  "make it anew: cmake --build build --target attnc_kernels; or set ATTNC_DEFAULT_PACK");
  if (*valueOf(machine.cache, "ATTNC_NO_COMPILE"))
    findings.note("ATTNC_NO_COMPILE is set: a kernel that is in no pack and in no cache is an error");
  if (std::string(valueOf(machine.cache, "ATTNC_TUNED")) == "0")
    findings.slow("ATTNC_TUNED is 0: choices of `attnc tune` are not looked up", "unset it");
  if (*valueOf(machine.cache, "ATTNC_DUMP_DIR"))
    findings.note("ATTNC_DUMP_DIR is set: the sources and code of every kernel are written there");
  return findings;
}

std::string cacheText(const CacheState& cache) {
  if (cache.directory.empty()) return "none\n";
  std::string text = fmt::format("{}: {} {}, {} of at most {}; mode {}", cache.directory, cache.kernels,
                                 cache.kernels == 1 ? "kernel" : "kernels", sizeText(cache.bytes),
                                 sizeText(cache.maxBytes), cache.mode);
  if (!cache.exists) text += ", not made yet";
  text += cache.isWritable ? ", writable" : ", not writable";
  if (cache.exists) text += cache.problem.empty() ? ", private" : ", refused";
  return text + "\n";
}

std::string doctorText(const Machine& machine, const Findings& findings) {
  std::string text = "attnc       " ATTNC_VERSION "\n";
  for (const jit::DeviceInfo& gpu : machine.gpus)
    text += fmt::format("GPU         {}, compute capability {}.{} ({}), {}, {} SMs\n", gpu.name, gpu.major, gpu.minor,
                        gpu.arch, sizeText(uint64_t(gpu.memoryBytes)), gpu.multiprocessors);
  if (machine.gpus.empty()) text += "GPU         none: " + machine.whyNoGpu + "\n";
  if (machine.driver) text += fmt::format("driver      CUDA {}\n", cudaText(machine.driver));
  text += machine.nvrtc ? fmt::format("NVRTC       {}, {}\n", nvrtcBuild(machine.nvrtc->identity), machine.nvrtc->path)
                        : fmt::format("NVRTC       none: {}\n", machine.whyNoNvrtc);
  text += fmt::format("LLVM        {}\ncache       {}", llvmVersion(), cacheText(machine.cache));
  for (const std::string& other : machine.cache.readOnlyDirectories) text += "read only   " + other + "\n";
  for (const CacheState::Pack& pack : machine.cache.packs)
    text += fmt::format("pack        {}: {}\n", pack.file,
                        pack.error.empty() ? fmt::format("{} kernels", pack.kernels) : "cannot be read");
  const DefaultPackInfo& pack = machine.defaultPack;
  text += pack.path.empty()
              ? "default     none: no pack of the library's kernels\n"
              : fmt::format("default     {}: {}\n", pack.path,
                            pack.problem.empty() ? fmt::format("{} kernels", pack.kernels) : "passed over");
  std::string variables;
  for (const auto& [name, value] : machine.cache.variables)
    if (name != "HOME") variables += fmt::format("{:12}{}={}\n", variables.empty() ? "variables" : "", name, value);
  text += variables.empty() ? "variables   none that attnc reads are set\n" : variables;
  for (const Finding& finding : findings)
    text += fmt::format("{:12}{}{}\n", finding.kind, finding.what, finding.repair.empty() ? "" : "; " + finding.repair);
  return readableLines(text + (findings.areUsable() ? "result      usable\n" : "result      not usable, see above\n"));
}

std::string doctorJson(const Machine& machine, const Findings& findings) {
  const CacheState& cache = machine.cache;
  JsonReport json{{"ok", findings.areUsable()}, {"attnc", ATTNC_VERSION}, {"llvm", llvmVersion()}};
  json["gpus"] = JsonReport::array();
  for (const jit::DeviceInfo& gpu : machine.gpus)
    json["gpus"].push_back({{"name", gpu.name},
                            {"arch", gpu.arch},
                            {"computeCapability", fmt::format("{}.{}", gpu.major, gpu.minor)},
                            {"memoryBytes", gpu.memoryBytes},
                            {"multiprocessors", gpu.multiprocessors}});
  if (machine.driver) json["driver"] = {{"cuda", cudaText(machine.driver)}};
  if (machine.nvrtc) json["nvrtc"] = {{"version", nvrtcBuild(machine.nvrtc->identity)}, {"path", machine.nvrtc->path}};
  json["cache"] = {{"mode", cache.mode},           {"exists", cache.exists}, {"writable", cache.isWritable},
                   {"kernels", cache.kernels},     {"bytes", cache.bytes},   {"maxBytes", cache.maxBytes},
                   {"used", cache.problem.empty()}};
  if (!cache.directory.empty()) json["cache"]["directory"] = cache.directory;
  json["cache"]["readOnly"] = cache.readOnlyDirectories;
  json["packs"] = JsonReport::array();
  for (const CacheState::Pack& pack : cache.packs) {
    json["packs"].push_back({{"file", pack.file}, {"kernels", pack.kernels}});
    if (!pack.error.empty()) json["packs"].back()["error"] = pack.error;
  }
  if (!machine.defaultPack.path.empty()) {
    json["defaultPack"] = {{"file", machine.defaultPack.path}, {"kernels", machine.defaultPack.kernels}};
    if (!machine.defaultPack.problem.empty()) json["defaultPack"]["error"] = machine.defaultPack.problem;
  }
  json["variables"] = JsonReport::object();
  for (const auto& [name, value] : cache.variables)
    if (name != "HOME") json["variables"][name] = value;
  json["findings"] = JsonReport::array();
  for (const Finding& finding : findings) {
    json["findings"].push_back({{"kind", finding.kind}, {"what", finding.what}});
    if (!finding.repair.empty()) json["findings"].back()["repair"] = finding.repair;
  }
  return jsonText(json);
}

struct DoctorOptions {
  bool json = false;
};

Expected<int> runDoctor(const DoctorOptions& options) {
  const Machine machine = look();
  const Findings findings = findingsOf(machine);
  ATTNC_TRY(printResult(options.json ? doctorJson(machine, findings) : reportText(doctorText(machine, findings))));
  return findings.areUsable() ? kDone : kEnvironmentWrong;
}

} // namespace

void addDoctor(CLI::App& app, int& exitCode) {
  auto [command, options] = addCommand<DoctorOptions>(
      app, exitCode, "doctor", "Say what attnc finds here: GPU, NVRTC, cache; and what will be slow or not work",
      runDoctor);
  command.add_flag("--json", options.json, "One JSON object instead, for programs");
  command.footer(R"(Lines: broken, so something does not work (exit code 3); slow; note. Needs no GPU.

Examples:
  attnc doctor
  attnc doctor --json)");
}

} // namespace attnc::cli
