#include "options.h"

#include "commands.h"
#include "text.h"

#include "ir/bindings.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace attnc::cli {
namespace {

const std::map<std::string, std::string> kFamilies = {
    {"auto", "auto"}, {"naive", "naive"}, {"sm80", "sm80"}, {"sm90", "sm90"}};

std::string checkHeadDim(const std::string& text) {
  int value = 0;
  if (CLI::detail::lexical_cast(text, value) && value >= 8 && value <= 256 && value % 8 == 0) return {};
  return "head dim " + text + " must be a multiple of 8 from 8 to 256";
}

} // namespace

void ModOptions::addTo(CLI::App& command) {
  command.add_option("mod", path, "The mod: a file with score_mod and/or mask_mod, or IR text (*.ir)")
      ->type_name("MOD");
  command.add_option("--expr", expression, "The mod as one expression, e.g. \"q_idx >= kv_idx\" or \"score * 0.5\"");
  command.add_option("-D,--define", defines, "Override a constant of the mod: NAME=VALUE, VALUE a Python literal")
      ->allow_extra_args(false)
      ->type_name("NAME=VALUE")
      ->check(checkAssignment);
}

Expected<Mod> ModOptions::load() const {
  if (path.empty() == expression.empty())
    throw CLI::ValidationError("MOD", "give a mod: either a file or --expr \"EXPRESSION\"");
  ParseOptions options;
  options.defines = assignments("-D", defines);
  if (!path.empty()) return Mod::load(path, options);
  options.name = "<expr>";
  return Mod::parse(expression, options);
}

void TargetOptions::addTo(CLI::App& command) {
  CLI::Option* option = command.add_option("--arch", arch, "GPU architecture: sm_80, sm_89, sm_90a, ...");
  if (!arch.empty()) option->capture_default_str();
  command.add_option("--dtype", dtype, "Of q, k, v and out: bf16, fp16, fp32")
      ->capture_default_str()
      ->transform(CLI::CheckedTransformer(dtypeSpellings()));
  command.add_option("--head-dim", headDim, "Of q and k: a multiple of 8 from 8 to 256")
      ->capture_default_str()
      ->check(checkHeadDim);
  command.add_option("--head-dim-v", headDimV, "Of v and out, where it differs")->check(checkHeadDim);
}

void TargetOptions::fill(KernelOptions& kernel) const {
  kernel.arch = arch;
  kernel.dtype = dtypeOf(dtype);
  kernel.headDim = headDim;
  kernel.headDimV = headDimV;
}

void KernelFlags::addTo(CLI::App& command) {
  command.add_option("--kernel-family", family, "Which template: auto, naive, sm80, sm90")
      ->capture_default_str()
      ->transform(CLI::IsMember(kFamilies));
  command.add_flag("--tf32", tf32, "fp32 operands: one TF32 product instead of three (1e-3 instead of 1e-6)");
  command.add_option("--pin", pins, "Fold a length into the kernel, e.g. KV_LEN=8192")
      ->allow_extra_args(false)
      ->type_name("NAME=N")
      ->check(checkAssignment);
  command.add_flag("--no-cache", noCache, "Compile anew: neither read nor write the cache on disk");
}

KernelOptions KernelFlags::toOptions() const {
  static const std::map<std::string, Family> byName = {
      {"auto", Family::Auto}, {"naive", Family::Naive}, {"sm80", Family::Sm80}, {"sm90", Family::Sm90}};
  KernelOptions options;
  options.family = byName.at(family);
  options.tf32 = tf32;
  for (const auto& [name, text] : assignments("--pin", pins)) {
    int64_t value = 0;
    if (!parseInteger(text, value))
      throw CLI::ValidationError("--pin", inQuotes(name + "=" + text) + ": the value is no integer");
    options.pins[name] = value;
  }
  return options;
}

CompilerOptions KernelFlags::toCompilerOptions() const {
  CompilerOptions options;
  if (noCache) options.cacheMode = CompilerOptions::CacheMode::Off;
  options.log = [](LogLevel level, std::string_view line) {
    if (level == LogLevel::Warning) std::fprintf(stderr, "attnc: warning: %.*s\n", int(line.size()), line.data());
  };
  return options;
}

const std::map<std::string, std::string>& dtypeSpellings() {
  static const std::map<std::string, std::string> spellings = {
      {"bf16", "bf16"}, {"fp16", "f16"}, {"f16", "f16"}, {"fp32", "f32"}, {"f32", "f32"}};
  return spellings;
}

DType dtypeOf(const std::string& spelling) {
  if (spelling == "bf16") return DType::BF16;
  return spelling == "f16" ? DType::F16 : DType::F32;
}

std::string checkAssignment(const std::string& text) {
  size_t equals = text.find('=');
  if (equals != std::string::npos && equals > 0 && equals + 1 < text.size()) return {};
  return inQuotes(text) + " is not of the form NAME=VALUE";
}

std::map<std::string, std::string> assignments(const char* option, const std::vector<std::string>& texts) {
  std::map<std::string, std::string> values;
  for (const std::string& text : texts) {
    size_t equals = text.find('=');
    std::string name = text.substr(0, equals), value = text.substr(equals + 1);
    auto [found, isNew] = values.emplace(name, value);
    if (!isNew)
      throw CLI::ValidationError(option, fmt::format("{} is given twice, as {} and as {}", inQuotes(name),
                                                     inQuotes(found->second), inQuotes(value)));
  }
  return values;
}

std::vector<int64_t> parseExtents(const char* option, const std::string& text, const std::string& names) {
  auto fail = [&](const std::string& reason) { return CLI::ValidationError(option, inQuotes(text) + ": " + reason); };
  std::vector<int64_t> numbers;
  for (const std::string& part : CLI::detail::split(text, ',')) {
    int64_t value = 0;
    if (!parseInteger(part, value) || value < 0 || value > ir::kMaxExtent)
      throw fail(fmt::format("{} is no number from 0 to {}", inQuotes(part), ir::kMaxExtent));
    numbers.push_back(value);
  }
  if (numbers.size() != CLI::detail::split(names, ',').size()) throw fail("needed are the numbers " + names);
  return numbers;
}

ProblemShape shapeOf(const char* option, const std::string& text, const std::vector<int64_t>& extents) {
  ProblemShape shape{extents[0], extents[1], extents[2], extents[3], extents[4]};
  if (shape.kvHeads < 1 || shape.qHeads % shape.kvHeads != 0)
    throw CLI::ValidationError(option, inQuotes(text) + ": H must be a multiple of HKV");
  return shape;
}

const char* familyName(Family family) {
  switch (family) {
  case Family::Auto: return "auto";
  case Family::Naive: return "naive";
  case Family::Sm80: return "sm80";
  case Family::Sm90: return "sm90";
  }
  return "?";
}

int report(const Error& error) {
  bool located = error.blame == Blame::Mod && !error.diagnostics.empty(); // then the message says file:line:col: error:
  std::string text = located ? error.message : "attnc: error: " + error.message;
  if (text.empty() || text.back() != '\n') text += '\n';
  if (!error.remedy.empty()) text += "hint: " + error.remedy + "\n";
  std::fputs(text.c_str(), stderr);
  switch (error.blame) {
  case Blame::Mod: return kModWrong;
  case Blame::Environment: return kEnvironmentWrong;
  case Blame::Internal: return kInternalError;
  }
  return kInternalError;
}

Status printResult(std::string_view text) {
  bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  if (written) return {};
  return Error::environment(std::string("cannot write to stdout: ") + std::strerror(errno));
}

} // namespace attnc::cli
