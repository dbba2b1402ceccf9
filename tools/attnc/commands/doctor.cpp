// `attnc doctor`: what attnc finds on this machine, and what will be slow or not work.
#include "commands.h"
#include "commands/cache_state.h"
#include "commands/version.h"
#include "problem/options.h"
#include "show/json_report.h"
#include "show/kernel_rows.h"
#include "terminal.h"

#include "attnc/toolchain.h"
#include "attnc/version.h"
#include "support/readable.h"
#include "tools/device/device.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace attnc::cli {
namespace {

/// What was found about the machine, and about what follows.
struct Finding {
  enum class Kind { Broken, Slow, Note };
  Kind kind;
  std::string what, repair; ///< sentences; the second may be empty
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

void addGpuFindings(const Machine& machine, std::vector<Finding>& findings) {
  if (machine.gpus.empty())
    findings.push_back({Finding::Kind::Note,
                        "there is no GPU: run computes with the fp64 reference on the CPU; bench and tune do not work",
                        "check, mask, probe, emit, explain and pack need none"});
  for (const jit::DeviceInfo& gpu : machine.gpus) {
    if (gpu.major < 8)
      findings.push_back(
          {Finding::Kind::Broken,
           fmt::format("{} has compute capability {}.{}: kernels need 8.0", gpu.name, gpu.major, gpu.minor), ""});
    else if (gpu.major != 9)
      findings.push_back({Finding::Kind::Slow,
                          fmt::format("{} takes kernels of family sm80: those of families sm90 and grid for Hopper "
                                      "need compute capability 9.0",
                                      gpu.arch),
                          ""});
    if (machine.nvrtc && gpu.major >= 8 && !isKnownArch(gpu.arch))
      findings.push_back({Finding::Kind::Broken, fmt::format("this NVRTC does not compile for {}", gpu.arch),
                          "install a later NVRTC 13, and name it with ATTNC_NVRTC"});
  }
  const int nvrtc = machine.nvrtc ? versionOf(machine.nvrtc->identity) : 0;
  if (machine.driver && nvrtc && machine.driver / 1000 < nvrtc / 1000)
    findings.push_back({Finding::Kind::Broken,
                        fmt::format("the driver is of CUDA {}, and NVRTC of {}: kernels do not load",
                                    cudaText(machine.driver), cudaText(nvrtc)),
                        "install a driver of CUDA 13"});
}

void addCacheFindings(const CacheState& cache, std::vector<Finding>& findings) {
  using Kind = Finding::Kind;
  const char* const kEach = "so each process compiles its kernels anew";
  if (cache.directory.empty())
    findings.push_back({Kind::Slow, fmt::format("{}, {}", cache.problem, kEach), "set ATTNC_CACHE_DIR"});
  else if (!cache.problem.empty())
    findings.push_back({Kind::Slow,
                        fmt::format("the cache {} is not used: {}, {}", cache.directory, cache.problem, kEach),
                        "chmod go-w it, or set ATTNC_CACHE_DIR"});
  else if (cache.mode == "off")
    findings.push_back({Kind::Slow, fmt::format("ATTNC_CACHE_MODE is off, {}", kEach), "unset it, or say rw"});
  else if (cache.mode == "ro")
    findings.push_back({Kind::Slow, "ATTNC_CACHE_MODE is ro: kernels that the cache lacks are compiled by each process",
                        "unset it, or say rw"});
  else if (!cache.isWritable)
    findings.push_back(
        {Kind::Slow,
         fmt::format("the cache {} cannot be written: kernels that it lacks are compiled by each process",
                     cache.directory),
         "make it writable, or set ATTNC_CACHE_DIR"});
  if (cache.maxBytes && double(cache.bytes) > 0.9 * double(cache.maxBytes))
    findings.push_back({Kind::Slow, "the cache is nearly full: the least recently used kernels are removed",
                        "set ATTNC_CACHE_MAX_BYTES higher"});
  for (const CacheState::Pack& pack : cache.packs)
    if (!pack.error.empty()) findings.push_back({Kind::Broken, pack.error, "mend ATTNC_PACK"});
}

std::vector<Finding> findingsOf(const Machine& machine) {
  using Kind = Finding::Kind;
  std::vector<Finding> findings;
  addGpuFindings(machine, findings);
  if (!machine.nvrtc)
    findings.push_back(
        {Kind::Broken,
         "nothing can be compiled: " + machine.whyNoNvrtc.substr(0, machine.whyNoNvrtc.find("; looked for")) +
             "; check, mask, probe and emit as cu work",
         machine.nvrtcRepair});
  else if (versionOf(machine.nvrtc->identity) > 13000)
    findings.push_back({Kind::Slow,
                        fmt::format("NVRTC {} spills registers in some backward kernels, where 13.0 does not",
                                    cudaText(versionOf(machine.nvrtc->identity))),
                        "take NVRTC 13.0, and name it with ATTNC_NVRTC"});
  addCacheFindings(machine.cache, findings);
  if (!machine.defaultPack.problem.empty())
    findings.push_back({Kind::Slow, machine.defaultPack.problem + ": it is passed over, and its kernels are compiled",
                        "make it anew: cmake --build build --target attnc_kernels; or set ATTNC_DEFAULT_PACK"});
  if (*valueOf(machine.cache, "ATTNC_NO_COMPILE"))
    findings.push_back(
        {Kind::Note, "ATTNC_NO_COMPILE is set: a kernel that is in no pack and in no cache is an error", ""});
  if (std::string(valueOf(machine.cache, "ATTNC_TUNED")) == "0")
    findings.push_back({Kind::Slow, "ATTNC_TUNED is 0: choices of `attnc tune` are not looked up", "unset it"});
  if (*valueOf(machine.cache, "ATTNC_DUMP_DIR"))
    findings.push_back(
        {Kind::Note, "ATTNC_DUMP_DIR is set: the sources and code of every kernel are written there", ""});
  return findings;
}

const char* wordOf(Finding::Kind kind) {
  switch (kind) {
  case Finding::Kind::Broken: return "broken";
  case Finding::Kind::Slow: return "slow";
  case Finding::Kind::Note: return "note";
  }
  return "?";
}

bool isUsable(const std::vector<Finding>& findings) {
  return std::none_of(findings.begin(), findings.end(),
                      [](const Finding& finding) { return finding.kind == Finding::Kind::Broken; });
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

std::string doctorText(const Machine& machine, const std::vector<Finding>& findings) {
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
    text += fmt::format("{:12}{}{}\n", wordOf(finding.kind), finding.what,
                        finding.repair.empty() ? "" : "; " + finding.repair);
  return readableLines(text + (isUsable(findings) ? "result      usable\n" : "result      not usable, see above\n"));
}

std::string doctorJson(const Machine& machine, const std::vector<Finding>& findings) {
  const CacheState& cache = machine.cache;
  JsonReport json{{"ok", isUsable(findings)}, {"attnc", ATTNC_VERSION}, {"llvm", llvmVersion()}};
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
    json["findings"].push_back({{"kind", wordOf(finding.kind)}, {"what", finding.what}});
    if (!finding.repair.empty()) json["findings"].back()["repair"] = finding.repair;
  }
  return jsonText(json);
}

int runDoctor(bool asJson) {
  const Machine machine = look();
  const std::vector<Finding> findings = findingsOf(machine);
  auto status = printResult(asJson ? doctorJson(machine, findings) : reportText(doctorText(machine, findings)));
  if (!status) return report(status.error());
  return isUsable(findings) ? kDone : kEnvironmentWrong;
}

} // namespace

void addDoctor(CLI::App& app, int& exitCode) {
  auto json = std::make_shared<bool>(false);
  CLI::App* command =
      app.add_subcommand("doctor", "Say what attnc finds here: GPU, NVRTC, cache; and what will be slow or not work");
  command->add_flag("--json", *json, "One JSON object instead, for programs");
  command->footer("Lines: broken, so something does not work (exit code 3); slow; note. Needs no GPU.\n\n"
                  "Examples:\n"
                  "  attnc doctor\n"
                  "  attnc doctor --json");
  command->callback([json, &exitCode] { exitCode = runDoctor(*json); });
}

} // namespace attnc::cli
