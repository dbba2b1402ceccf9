#include "problem/options.h"

#include "add_option.h"
#include "commands.h"
#include "problem/mod_text.h"
#include "progress.h"
#include "terminal.h"
#include "text.h"

#include "support/readable.h"
#include "support/try.h"
#include "tools/device/device.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <llvm/ADT/STLExtras.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

namespace attnc::cli {
namespace {

/// Limit of a text on stdin. It keeps a wrong pipe from filling memory.
constexpr size_t kMaxTextBytes = 16 << 20;

Expected<std::string> readStdin() {
  std::string text(kMaxTextBytes + 1, 0);
  text.resize(std::fread(text.data(), 1, text.size(), stdin));
  if (std::ferror(stdin)) return Error::environment(std::string("cannot read stdin: ") + std::strerror(errno));
  if (text.size() <= kMaxTextBytes) return text;
  return Error::environment(fmt::format("stdin: more than {} bytes are no mod", kMaxTextBytes));
}

/// Whether a text is IR as `attnc emit` writes it. No mod begins like this.
bool isIrText(const std::string& text) { return text.rfind("source \"", 0) == 0; }

bool isIrPath(const std::string& path) { return std::filesystem::path(path).extension() == ".ir"; }

Expected<Mod> loadStdin(const ParseOptions& options) {
  ATTNC_TRY_AS(text, readStdin());
  if (!isIrText(*text)) return Mod::parse(*text, options);
  if (!options.defines.empty())
    throw wrongUsage("-D", "IR has no constants to define", "--pin and --set give numbers that the mod captures");
  return Mod::parseIr(*text, options.name);
}

/// Returns the extents and numbers of a mod.
std::vector<std::string> pinnable(const Mod& mod) {
  std::vector<std::string> names = {"B", "H", "HKV", "Q_LEN", "KV_LEN"};
  const auto add = [&](const std::string& name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  for (const CaptureInfo& capture : mod.captures()) {
    int64_t number = 0;
    for (const std::string& extent : capture.extent)
      if (!parseInteger(extent, number)) add(extent);
    if (capture.kind != CaptureInfo::Kind::Tensor) add(capture.name);
  }
  return names;
}

bool isTensor(const Mod& mod, const std::string& name) {
  const auto isIt = [&](const CaptureInfo& one) { return one.name == name && one.kind == CaptureInfo::Kind::Tensor; };
  return llvm::any_of(mod.captures(), isIt);
}

/// Returns how to repair an expression or a declaration of the command line.
std::string hintFor(const Diagnostic& diagnostic) {
  if (diagnostic.id.find("undefined") != 0 && diagnostic.id.find("undeclared") != 0)
    return diagnostic.hint.empty()
               ? "name a function of the file, or call the one that makes the mod: make_mask(offsets)"
               : diagnostic.hint;
  const size_t begin = diagnostic.message.find('`') + 1;
  const std::string name = diagnostic.message.substr(begin, diagnostic.message.find('`', begin) - begin);
  const bool isFunction = diagnostic.rendered.find("\n" + name + "\n") != std::string::npos || // the whole expression
                          diagnostic.rendered.find("\n" + name + "(") != std::string::npos;
  if (isFunction) return fmt::format("the file has no function {}; `attnc check FILE` says which it has", name);
  return fmt::format("declare what Python would have computed: --capture \"{0}: i32[KV_LEN]\", or \"{0}: int\"", name);
}

/// Returns a diagnostic as it is shown, without its hint and the end of the line.
std::string withoutHint(const Diagnostic& diagnostic) {
  std::string text = diagnostic.rendered.substr(0, diagnostic.rendered.find("\nnote: "));
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

/// Throws for errors of the command line, not of the mod: a define that the mod does not take, an invalid declaration,
/// an expression that picks no mod.
void throwDefineErrors(const Error& error) {
  for (const Diagnostic& diagnostic : error.diagnostics)
    if (diagnostic.file == "<--mod>" || diagnostic.file == "<--capture>")
      throw wrongUsage(diagnostic.file.substr(1, diagnostic.file.size() - 2), withoutHint(diagnostic),
                       hintFor(diagnostic));
  for (const Diagnostic& diagnostic : error.diagnostics)
    if (diagnostic.file.rfind("<-D ", 0) == 0)
      throw wrongUsage(diagnostic.file.substr(1, diagnostic.file.size() - 2), diagnostic.message, diagnostic.hint);
}

void addRow(CLI::App& command, bool& value, const char* flag, int, const char* text) {
  command.add_flag(flag, value, text);
}

void addRow(CLI::App& command, float& value, const char* flag, int limit, const char* text) {
  addOption(command, flag, value, "NUMBER", text)->check([limit](const std::string& given) {
    float number = 0;
    const bool isServed = CLI::detail::lexical_cast(given, number) && number >= 0 && float(limit) > number;
    return isServed ? std::string() : fmt::format("{} is not a number in [0, {})", given, limit);
  });
}

} // namespace

void ModOptions::addTo(CLI::App& command) {
  addOption(command, "mod", path, "MOD", "The mod: a file with score_mod and/or mask_mod, or IR text (*.ir); -: stdin");
  addChoicesTo(command);
}

void ModOptions::addChoicesTo(CLI::App& command) {
  command.add_option("--expr", expression, "The mod as one expression, e.g. \"q_idx >= kv_idx\" or \"score * 0.5\"");
  addRepeated(command, "--mod", mods, "EXPR",
              "Which function of the file is the mod: its name, or a call that makes it, e.g. \"make_mask(offsets)\"");
  addRepeated(command, "--capture", captures, "NAME:TYPE",
              "Declare what the file has not: \"offsets: i32[N]\", \"window: int\". It wins over assignments");
  addRepeated(command, "-D,--define", defines, "NAME=VALUE",
              "Override a constant of the mod: NAME=VALUE, VALUE a Python literal")
      ->check(checkAssignment);
  std::vector<Choice> warnings;
  for (const std::string& id : warningIds()) warnings.emplace_back(id);
  command.add_flag("--werror", werror, "A warning about the mod is an error, with exit code 1");
  addRepeated(command, "--no-warn", noWarn, "ID", "Leave out one kind of warning, e.g. unused-capture")
      ->transform(oneOf(std::move(warnings)));
}

std::vector<Diagnostic> ModOptions::warnings(const Mod& mod) const {
  std::vector<Diagnostic> left = mod.warnings();
  std::erase_if(left, [&](const Diagnostic& warning) { return llvm::is_contained(noWarn, warning.id); });
  return left;
}

Expected<Mod> ModOptions::load() const {
  if (path.empty() == expression.empty())
    throw wrongUsage("MOD", path.empty() ? "no mod is given" : "a file and --expr are given, and each is a mod",
                     path.empty() ? "give a mod: either a file or --expr \"q_idx >= kv_idx\""
                                  : "leave one of them out");
  ParseOptions options;
  options.defines = assignments("-D", defines);
  options.mods = mods;
  options.captures = captures;
  options.available = available;
  options.name = path == "-" ? "<stdin>" : "<expr>";
  if (isIrPath(path) && !defines.empty())
    throw wrongUsage("-D", "IR has no constants to define", "--pin and --set give numbers that the mod captures");
  if (isIrPath(path) && !(mods.empty() && captures.empty()))
    throw wrongUsage("--mod", "IR says itself what the mod is and captures", "leave --mod and --capture out");
  auto mod = path == "-"    ? loadStdin(options)
             : path.empty() ? Mod::parse(expression, options)
                            : Mod::load(path, options);
  if (!mod) throwDefineErrors(mod.error());
  if (!mod) {
    Error error = std::move(mod).error();
    if (error.blame == Blame::Environment && error.remedy.empty() && !path.empty() && path != "-")
      error.remedy = fileRepair(path);
    return error;
  }
  std::vector<Diagnostic> found = warnings(*mod);
  std::string text;
  for (const Diagnostic& warning : found) text += warning.rendered;
  if (werror && !found.empty()) {
    Error error = Error::mod(std::move(text), std::move(found));
    error.remedy = "--werror makes warnings errors; --no-warn " + error.diagnostics.front().id + " leaves one kind out";
    return error;
  }
  printMessage(text);
  return mod;
}

Expected<Mod> ModOptions::loadTelling() const {
  auto mod = load();
  if (!mod) return mod;
  for (const ModChoice& choice : mod->choices())
    if (!choice.others.empty()) printMessage("attnc: note: " + choiceText(choice) + "\n");
  return mod;
}

void TargetOptions::addTo(CLI::App& command) {
  addOption(command, "--arch", arch, "ARCH",
            "GPU architecture: sm_80, sm_89, sm_90a (sm_90 means it), ...; native: that of the GPU here; compute_90:\n"
            "sm_90 with the kernels that all GPUs have")
      ->capture_default_str()
      ->transform(architecture());
  addDType(command, dtype, "Of q, k, v and out: bf16, fp16, fp32; e4m3: of q, k and v");
  addHeadDim(command, headDim, "Of q and k");
  command.add_option("--head-dim-v", headDimV, "Of v and out, where it differs")->check(checkHeadDimV);
  addVInK(command, vInK)->excludes("--head-dim-v");
  fp8.addTo(command, /*draws=*/false);
}

void TargetOptions::check() const {
  if (vInK > headDim)
    throw wrongUsage("--v-in-k", fmt::format("k has {} columns, so v cannot be its first {}", headDim, vInK),
                     fmt::format("k has them with --head-dim {}", vInK));
  fp8.check(dtypeOf(dtype));
}

Expected<std::string> TargetOptions::archAsked() const {
  if (arch != "native") return arch;
  ATTNC_TRY_AS(context, device::Context::create());
  return context->info().arch;
}

void KernelFlags::addTo(CLI::App& command) {
  std::vector<Choice> families;
  std::vector<std::string> names;
  for (Family known : kAllFamilies) {
    const std::string name = names.emplace_back(familyName(known)), arch = "sm_" + name.substr(2);
    const bool isMachine = name.starts_with("sm");
    families.push_back({name, isMachine ? std::vector{arch, arch + "a", name + "a"} : std::vector<std::string>()});
  }
  addChoice(command, "--kernel-family", family, "FAMILY", std::move(families),
            fmt::format("Which template: {}", fmt::join(names, ", ")));
  addOption(command, "--tile", tile, "TILE",
            "Which tile of the family, e.g. 192x128x12, of the backward kernel where gradients are asked for;\n"
            "default: that of `attnc tune`, else the model's");
#define ATTNC_CHOICE(type, member, c_type, name, limit, flag, text) addRow(command, member, "--" flag, limit, text);
#include "attnc/choices.def"
  addRepeated(command, "--pin", pins, "NAME=N", "Fold a length or a number into the kernel, e.g. KV_LEN=8192")
      ->check(checkAssignment);
  addOption(command, "--max-work", maxWork, "N",
            "Instructions of the mod that are compiled at most; a longer one is refused. Default: ATTNC_MAX_WORK,\n"
            "else 16000, which take some seconds")
      ->check(CLI::PositiveNumber);
  command.add_flag("--no-cache", noCache, "Compile anew: neither read nor write the cache on disk");
}

PrepareOptions KernelFlags::toOptions() const {
  PrepareOptions options;
  for (Family known : kAllFamilies)
    if (family == familyName(known)) options.family = known;
  options.tile = tile;
  copyChoices(*this, options);
  for (const auto& [name, text] : assignments("--pin", pins)) {
    int64_t value = 0;
    if (!parseInteger(text, value))
      throw wrongUsage("--pin", inQuotes(name + "=" + text) + ": the value is no integer", "e.g. --pin KV_LEN=8192");
    options.pins[name] = value;
  }
  return options;
}

CompilerOptions KernelFlags::toCompilerOptions() const {
  CompilerOptions options;
  options.maxWork = maxWork;
  if (noCache) options.cacheMode = CompilerOptions::CacheMode::Off;
  options.log = [](LogLevel level, std::string_view line) {
    if (level != LogLevel::Warning) return;
    clearProgress();
    printMessage("attnc: warning: " + readable(line) + "\n");
  };
  return options;
}

Expected<Mod> pinned(const Mod& mod, const KernelFlags& kernel) {
  const std::map<std::string, int64_t> pins = kernel.toOptions().pins;
  if (pins.empty()) return mod;
  const std::vector<std::string> names = pinnable(mod);
  for (const auto& [name, value] : pins) {
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    throw wrongUsage(
        "--pin",
        fmt::format("the mod has no extent and no number {}; it has {}", inQuotes(name), fmt::join(names, ", ")),
        isTensor(mod, name)
            ? fmt::format("{} is a tensor, which each launch gives: leave the pin out", name)
            : didYouMean(name, names, fmt::format("if it is a constant of the text: -D {}={}", name, value)));
  }
  auto result = mod.pinned(pins);
  if (!result) throwUsage("--pin", result.error());
  return result;
}

CLI::Validator dtypes() {
  return oneOf({{"bf16", {"bfloat16"}},
                {"fp16", {"f16", "float16", "half"}},
                {"fp32", {"f32", "float32", "float"}},
                {"e4m3", {"fp8", "f8", "float8", "float8-e4m3fn"}}},
               dtypeHints());
}

CLI::Option* addDType(CLI::App& command, std::string& dtype, const char* help) {
  return addOption(command, "--dtype", dtype, "DTYPE", help)->capture_default_str()->transform(dtypes());
}

DType dtypeOf(const std::string& name) {
  if (name == "bf16") return DType::BF16;
  if (name == "e4m3") return DType::E4M3;
  return name == "fp16" ? DType::F16 : DType::F32;
}

void Fp8Options::addTo(CLI::App& command, bool draws) {
  command.add_flag("--fp8-kv", kv, "Decode: k and v are e4m3, with scales of KV heads, rows or pages");
  CLI::Option* ofRows = command.add_flag_callback(
      "--row-scales", [this] { scales = "rows"; }, "With e4m3: a scale for each row of q, k and v, not for each head");
  if (draws)
    addChoice(command, "--scales", scales, "OF",
              {{"heads", {"head"}}, {"blocks", {"block"}}, {"rows", {"row"}}, {"pages", {"page"}}},
              "With e4m3: what has a scale of its own: heads, blocks (of 128 rows), rows, pages (of k and v)")
        ->excludes(ofRows);
  addChoice(command, "--out-dtype", outDType, "DTYPE", {{"bf16", {"bfloat16"}}, {"fp16", {"f16", "float16", "half"}}},
            "Of out, if q is e4m3: bf16 (default), fp16");
}

void Fp8Options::check(DType ofQ) const {
  if (ofQ == DType::E4M3) return;
  if (scales != "heads" && !kv)
    throw wrongUsage(scales == "rows" ? "--row-scales" : "--scales",
                     fmt::format("q, k and v are {}, and only e4m3 has scales", dtypeName(ofQ)),
                     "add --dtype e4m3, or --fp8-kv for decode kernels");
  if (!outDType.empty())
    throw wrongUsage("--out-dtype", fmt::format("q is {}, and so is out", dtypeName(ofQ)),
                     "leave it out, or take --dtype e4m3");
}

DType Fp8Options::outOf(DType ofQ) const {
  return ofQ != DType::E4M3 ? ofQ : outDType == "fp16" ? DType::F16 : DType::BF16;
}

CLI::Option* addVInK(CLI::App& command, int& columns) {
  return command
      .add_option("--v-in-k", columns,
                  "v is a view of k's first N columns, as in latent attention (MLA): --head-dim 576 --v-in-k 512")
      ->check(checkVInK);
}

void addSets(CLI::App& command, std::vector<std::string>& sets) {
  addRepeated(command, "--set", sets, "NAME=VALUE", "Give a capture its value: NAME=VALUE, for scalars and 0-d tensors")
      ->check(checkAssignment);
}

void throwUsage(const char* option, const Error& error) {
  if (error.blame != Blame::Environment) return;
  throw wrongUsage(option, error.message, error.remedy);
}

int report(const Error& error) {
  bool located = error.blame == Blame::Mod && !error.diagnostics.empty(); // the message says file:line:col: error:
  std::string text = located ? error.message : "attnc: error: " + error.message;
  if (text.empty() || text.back() != '\n') text += '\n';
  if (!error.remedy.empty()) text += "hint: " + error.remedy + "\n";
  printMessage(readableLines(text));
  return error.blame == Blame::Mod ? kModWrong : error.blame == Blame::Environment ? kEnvironmentWrong : kInternalError;
}

Status printResult(std::string_view text) {
  bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  if (written) return {};
  return Error::environment(std::string("cannot write to stdout: ") + std::strerror(errno));
}

} // namespace attnc::cli
