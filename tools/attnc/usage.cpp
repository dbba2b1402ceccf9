#include "usage.h"

#include "commands.h"
#include "terminal.h"
#include "text.h"

#include "attnc/problem.h"
#include "attnc/toolchain.h"
#include "support/readable.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <llvm/ADT/STLExtras.h>
#include <llvm/ADT/StringExtras.h>
#include <llvm/ADT/StringRef.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <sys/stat.h>
#include <unistd.h>

namespace attnc::cli {
namespace {

/// Validators keep their choices in their name, which nothing else reads.
constexpr const char* kChoicesPrefix = "choices:";

std::string lowered(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = c == '_' ? '-' : char(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

/// Returns device and inode of a regular file; nullopt for other files, which writing does not overwrite.
std::optional<std::pair<dev_t, ino_t>> fileOf(const std::string& path, int standardStream) {
  struct stat status;
  int failed = path == "-" ? ::fstat(standardStream, &status) : ::stat(path.c_str(), &status);
  if (failed || !S_ISREG(status.st_mode)) return std::nullopt;
  return std::pair(status.st_dev, status.st_ino);
}

/// Returns the parts of numbers separated by commas or x.
std::vector<std::string> partsOf(std::string text) {
  std::replace(text.begin(), text.end(), 'x', ',');
  return CLI::detail::split(text, ',');
}

std::vector<std::string> optionNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames())
      if (option->get_lnames().empty()) names.push_back("-" + name);
  }
  return names;
}

std::vector<std::string> commandNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  return names;
}

/// The separator between a message and its hint.
constexpr const char* kHint = "\nhint: ";

/// A message about wrong usage, and how to repair it.
struct Complaint {
  std::string what, hint;
};

std::string orAll(std::string_view word, const std::vector<std::string>& candidates) {
  return didYouMean(word, candidates, fmt::format("there are {}", fmt::join(candidates, ", ")));
}

Complaint unknown(const CLI::App& app, const CLI::App* command, const std::string& word) {
  if (word.size() > 1 && word[0] == '-') {
    std::string name = word.substr(0, word.find('='));
    return {fmt::format("unknown option {}", inQuotes(name)), orAll(name, optionNames(command ? *command : app))};
  }
  const std::vector<std::string> commands = commandNames(command ? *command : app);
  if (!commands.empty()) return {fmt::format("unknown command {}", inQuotes(word)), orAll(word, commands)};
  const bool takesMod = command->get_option_no_throw("mod") != nullptr;
  return {fmt::format("unexpected argument {}{}", inQuotes(word),
                      takesMod ? fmt::format(": {} takes one mod", command->get_name()) : ""),
          word == "=" ? "leave out the spaces around the =, e.g. --set window=64"
                      : "an option's value stands behind its name; quote what has spaces"};
}

/// Returns "--shape B,H,HKV,Q_LEN,KV_LEN: the problem ..." for the first option that a message names; empty if it names
/// none.
std::string optionHint(const CLI::App& command, const std::string& message) {
  const CLI::Option* found = nullptr;
  std::string name;
  size_t first = std::string::npos;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& one : option->get_lnames()) {
      const size_t at = message.find("--" + one);
      const bool isLonger = at == first && one.size() > name.size();
      if (at == std::string::npos || (at > first || (at == first && !isLonger))) continue;
      found = option;
      name = one;
      first = at;
    }
    for (const std::string& one : option->get_snames())
      if (message.rfind("-" + one + ":", 0) == 0 && !option->get_lnames().empty()) {
        found = option;
        name = option->get_lnames().front();
        first = 0;
      }
  }
  if (!found) return "";
  std::string text = found->get_description();
  std::replace(text.begin(), text.end(), '\n', ' ');
  const std::string value = found->get_expected_max() > 0 ? " " + found->get_type_name() : "";
  return fmt::format("--{}{}: {}", name, value, text);
}

/// Returns an example of the command, from its own help.
std::string exampleHint(const CLI::App& command) {
  const std::string footer = command.get_footer();
  const size_t at = footer.find(command.get_parent() ? "attnc " + command.get_name() : "attnc ");
  return at == std::string::npos ? "" : "for example: " + footer.substr(at, footer.find_first_of("\n)", at) - at);
}

/// Puts what CLI11 says of missing and of small values in words of the user.
void simplify(const CLI::App& command, Complaint& complaint) {
  const std::string option = complaint.what.substr(0, complaint.what.find(':'));
  if (complaint.what.find(" required ") != std::string::npos && complaint.what.ends_with(" missing")) {
    complaint.what = option + " has no value";
    complaint.hint = "write " + optionHint(command, option);
  }
  constexpr std::string_view kConvert = "Could not convert: ";
  if (complaint.what.starts_with(kConvert)) {
    const std::string given = complaint.what.substr(kConvert.size());
    const size_t equals = std::min(given.find(" = "), given.size());
    const std::string name = given.substr(0, equals), form = optionHint(command, name);
    const bool isFlag = form.starts_with(name + ":");
    complaint.what =
        isFlag ? name + " takes no value"
               : fmt::format("{}: {} is no number", name, inQuotes(given.substr(std::min(equals + 3, given.size()))));
    complaint.hint = isFlag ? "write " + name + " by itself" : "write " + form;
  }
  if (complaint.what.find(" not in range 0.") != std::string::npos) {
    complaint.what.resize(complaint.what.find(" not in range "));
    complaint.what += " is too small";
    complaint.hint = "write a whole number above 0, or leave " + option + " out";
  }
}

Complaint complaintOf(const CLI::App& app, const CLI::App* command, const CLI::ParseError& error) {
  const std::vector<std::string> remaining = app.remaining(/*recurse=*/true);
  if (!remaining.empty()) return unknown(app, command, remaining.front()); // the likely reason why something is missing
  if (const auto commands = commandNames(command ? *command : app); !commands.empty())
    return {"no command is given; there are " + CLI::detail::join(commands, ", "),
            exampleHint(command ? *command : app)};
  Complaint complaint{error.what(), ""};
  if (size_t at = complaint.what.find(kHint); at != std::string::npos) {
    complaint.hint = complaint.what.substr(at + std::string_view(kHint).size());
    complaint.what.resize(at);
  }
  if (size_t at = complaint.what.find(": At Most 1 required"); at != std::string::npos) {
    complaint.what = complaint.what.substr(0, at) + " is given more than once";
    complaint.hint = "leave one of them out";
  }
  simplify(*command, complaint);
  if (size_t at = complaint.what.find(" requires --"); at != std::string::npos) {
    const std::string form = optionHint(*command, complaint.what.substr(at + 10));
    complaint.hint = "add " + form.substr(0, form.find(':')) + ", or leave out " + complaint.what.substr(0, at);
  }
  if (complaint.what.find(" excludes --") != std::string::npos) complaint.hint = "leave one of them out";
  if (complaint.hint.empty()) complaint.hint = optionHint(*command, complaint.what);
  if (complaint.hint.empty()) complaint.hint = exampleHint(*command);
  return complaint;
}

/// Returns what to write instead of a word that is no architecture. `name` is in lower case, `digits` without "sm".
std::string archHint(const std::string& name, const std::string& digits) {
  constexpr std::pair<const char*, const char*> kGpus[] = {
      {"hopper", "sm_90a"}, {"h100", "sm_90a"},  {"h200", "sm_90a"}, {"gh200", "sm_90a"}, {"h20", "sm_90a"},
      {"h800", "sm_90a"},   {"ampere", "sm_80"}, {"a100", "sm_80"},  {"a800", "sm_80"},   {"a30", "sm_80"},
      {"a10", "sm_86"},     {"a10g", "sm_86"},   {"a40", "sm_86"},   {"a6000", "sm_86"},  {"3090", "sm_86"},
      {"ada", "sm_89"},     {"4090", "sm_89"},   {"l4", "sm_89"},    {"l40", "sm_89"},    {"l40s", "sm_89"}};
  for (auto [gpu, arch] : kGpus)
    if (name == gpu || name == std::string("rtx") + gpu || name == std::string("rtx-") + gpu)
      return fmt::format("that GPU is --arch {}", arch);
  int64_t number = 0;
  if (parseInteger(digits, number) && number >= 30 && number < 80)
    return "attnc needs a GPU of sm_80 (A100) or newer: --arch sm_80";
  return didYouMean("sm_" + digits, knownArchs(),
                    "write the compute capability, --arch sm_80 for 8.0; native is the GPU of this machine");
}

/// Checks a head dim of at most `most`. `repair(value, multiple)` returns how to reach the next multiple of 8.
template <class Repair> std::string checkHeadDimUpTo(const std::string& text, int64_t most, Repair repair) {
  int64_t value = 0;
  if (parseInteger(text, value) && value >= 8 && value <= most && value % 8 == 0) return {};
  const std::string wrong = fmt::format("head dim {} must be a multiple of 8 from 8 to {}", inQuotes(text), most);
  if (value < 1 || value > most) return wrong + kHint + "write a number such as 64, 128 or 256";
  return wrong + kHint + repair(value, (value + 7) / 8 * 8);
}

/// Returns "numbers with commas between: --shape 2,8,2,1024,1024".
std::string exampleOf(const char* option, const std::string& names) {
  static const std::map<std::string, int> kExamples{{"B", 2},        {"H", 8},         {"HKV", 2},
                                                    {"Q_LEN", 1024}, {"KV_LEN", 1024}, {"D", 128},
                                                    {"Q", 128},      {"KV", 64},       {"N", 128}};
  std::vector<int> numbers;
  for (const std::string& name : CLI::detail::split(names, ','))
    numbers.push_back(kExamples.count(name) ? kExamples.at(name) : 0);
  return fmt::format("numbers with commas between: {} {}", option, fmt::join(numbers, ","));
}

} // namespace

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  const std::string wanted = lowered(word);
  unsigned best = std::max(1u, unsigned(wanted.size()) / 3) + 1; // a third of the word may be wrong
  std::string found;
  for (const std::string& candidate : candidates) {
    unsigned distance = llvm::StringRef(wanted).edit_distance(lowered(candidate), /*AllowReplacements=*/true, best);
    if (distance >= best) continue;
    best = distance;
    found = candidate;
  }
  return found;
}

std::string didYouMean(std::string_view word, const std::vector<std::string>& candidates,
                       const std::string& otherwise) {
  const std::string near = nearest(word, candidates);
  return near.empty() ? otherwise : fmt::format("did you mean {}?", near);
}

CLI::Validator oneOf(std::vector<Choice> choices, std::map<std::string, std::string> instead) {
  std::vector<std::string> names, spellings;
  for (const Choice& choice : choices) {
    names.push_back(choice.name);
    spellings.push_back(choice.name);
    spellings.insert(spellings.end(), choice.aliases.rbegin(), choice.aliases.rend());
  }
  const std::string all = kChoicesPrefix + CLI::detail::join(names, ",");
  auto choose = [=, choices = std::move(choices), instead = std::move(instead)](std::string& text) -> std::string {
    const auto isMeant = [&](const std::string& spelling) { return lowered(text) == lowered(spelling); };
    for (const Choice& choice : choices)
      if (isMeant(choice.name) || llvm::any_of(choice.aliases, isMeant)) return text = choice.name, "";
    const std::string wrong = fmt::format("{} is none of {}", inQuotes(text), fmt::join(names, ", "));
    const auto found = instead.find(lowered(text));
    const std::string hint = found != instead.end() ? found->second : didYouMean(text, spellings, "");
    return hint.empty() ? wrong : wrong + kHint + hint;
  };
  return CLI::Validator(choose, "", all);
}

std::map<std::string, std::string> dtypeHints() {
  std::map<std::string, std::string> hints;
  for (const char* name : {"fp64", "f64", "float64", "double"})
    hints[name] = "the widest is --dtype fp32: convert q, k and v; the reference on the CPU computes in fp64";
  for (const char* name : {"e5m2", "float8-e5m2", "int8"})
    hints[name] = "of 8 bits there is e4m3: of q, k and v, or with --fp8-kv of k and v of decode kernels";
  return hints;
}

std::vector<std::string> choicesOf(CLI::Option& option) {
  for (int index = 0;; ++index) {
    const CLI::Validator* validator = nullptr;
    try {
      validator = option.get_validator(index);
    } catch (const CLI::OptionNotFound&) {
      return {};
    }
    llvm::StringRef name = validator->get_name();
    if (name.consume_front(kChoicesPrefix)) return CLI::detail::split(name.str(), ',');
  }
}

CLI::Validator architecture() {
  auto canonical = [](std::string& text) -> std::string {
    std::string name = lowered(text);
    if (name == "native") return text = name, "";
    llvm::StringRef rest = name;
    const bool isPortable = rest.consume_front("compute");
    if (!isPortable) rest.consume_front("sm");
    rest.consume_front("-");
    std::string digits = rest.str();
    digits.erase(std::remove(digits.begin(), digits.end(), '.'), digits.end());
    if (isPortable && digits == "90") return text = "compute_90", "";
    static bool isTold = false;
    if (digits == "90" && !std::exchange(isTold, true))
      printMessage("attnc: note: sm_90 means sm_90a; compute_90 is that GPU with the kernels that all GPUs have\n");
    if (digits == "90") digits = "90a";
    if (!isKnownArch("sm_" + digits))
      return fmt::format("{} is no architecture that attnc or NVRTC knows; known are native, {}{}{}", inQuotes(text),
                         fmt::join(knownArchs(), ", "), kHint, archHint(name, digits));
    text = "sm_" + digits;
    return "";
  };
  return CLI::Validator(canonical, "", fmt::format("{}native,{}", kChoicesPrefix, fmt::join(knownArchs(), ",")));
}

std::string checkHeadDim(const std::string& text) {
  return checkHeadDimUpTo(text, kMostHeadDim, [](int64_t value, int64_t multiple) {
    return fmt::format("pad q, k and v with zeros to {}, and keep the scale: `attnc run` has --scale {:.6g}", multiple,
                       1 / std::sqrt(double(value)));
  });
}

std::string checkHeadDimV(const std::string& text) {
  return checkHeadDimUpTo(text, kMostHeadDimV, [](int64_t value, int64_t multiple) {
    return fmt::format("pad v with zeros to {}, and read {} columns of out", multiple, value);
  });
}

std::string checkVInK(const std::string& text) {
  return checkHeadDimUpTo(text, kMostHeadDimV, [](int64_t value, int64_t multiple) {
    return fmt::format("take {} columns of k, and read {} of out: --v-in-k {}", multiple, value, multiple);
  });
}

std::string checkSeed(const std::string& text) {
  uint64_t value = 0;
  if (llvm::to_integer(text, value, /*Base=*/10)) return {};
  return inQuotes(text) + " is no whole number from 0 to 2^64 - 1" + kHint + "e.g. 42";
}

std::string checkScale(const std::string& text) {
  double value = 0;
  if (parseNumber(text, value) && std::isfinite(float(value))) return {};
  return inQuotes(text) + " is no finite number that fits into f32" + kHint + "e.g. 0.125";
}

std::string checkAssignment(const std::string& text) {
  size_t equals = text.find('=');
  if (equals != std::string::npos && equals > 0 && equals + 1 < text.size()) return {};
  return inQuotes(text) + " is not of the form NAME=VALUE" + kHint +
         "write the value behind the name, without spaces: window=64";
}

std::map<std::string, std::string> assignments(const char* option, const std::vector<std::string>& texts) {
  std::map<std::string, std::string> values;
  for (const std::string& text : texts) {
    size_t equals = text.find('=');
    std::string name = text.substr(0, equals), value = text.substr(equals + 1);
    auto [found, isNew] = values.emplace(name, value);
    if (!isNew)
      throw wrongUsage(
          option,
          fmt::format("{} is given twice, as {} and as {}", inQuotes(name), inQuotes(found->second), inQuotes(value)),
          "leave one of them out");
  }
  return values;
}

std::vector<int64_t> parseExtents(const char* option, const std::string& text, const std::string& names) {
  auto fail = [&](const std::string& reason) {
    return wrongUsage(option, inQuotes(text) + ": " + reason, exampleOf(option, names));
  };
  std::vector<int64_t> numbers;
  for (const std::string& part : partsOf(text)) {
    int64_t value = 0;
    if (!parseInteger(part, value) || value < 0 || value > kMaxExtent)
      throw fail(fmt::format("{} is no number from 0 to {}", inQuotes(part), kMaxExtent));
    numbers.push_back(value);
  }
  if (numbers.size() != CLI::detail::split(names, ',').size()) throw fail("needed are the numbers " + names);
  return numbers;
}

ShapeText parseShape(const char* option, const std::string& text, const ProblemShape& others) {
  constexpr const char* kNames[] = {
      "", "LEN", "Q_LEN,KV_LEN", "", "", "B,H,HKV,Q_LEN,KV_LEN", "B,H,HKV,Q_LEN,KV_LEN,D"};
  const size_t count = partsOf(text).size();
  if (count >= std::size(kNames) || !*kNames[count])
    throw wrongUsage(option,
                     inQuotes(text) + ": needed are the numbers B,H,HKV,Q_LEN,KV_LEN,D, of which D may be left out; "
                                      "or Q_LEN,KV_LEN; or one length",
                     fmt::format("e.g. {} 2,16,16,4096,4096", option));
  const std::vector<int64_t> numbers = parseExtents(option, text, kNames[count]);
  ShapeText result{others, std::nullopt};
  if (count <= 2) {
    result.shape.qLen = numbers.front();
    result.shape.kvLen = numbers.back();
    return result;
  }
  result.shape = shapeOf(option, text, numbers);
  if (count == 5) return result;
  if (std::string wrong = checkHeadDim(fmt::to_string(numbers[5])); !wrong.empty())
    throw CLI::ValidationError(option, inQuotes(text) + ": " + wrong);
  result.headDim = int(numbers[5]);
  return result;
}

int headDimOf(const ShapeText& shape, const CLI::App& command, int headDim) {
  if (!shape.headDim) return headDim;
  const CLI::Option* option = command.get_option_no_throw("--head-dim");
  if (option && option->count() > 0 && headDim != *shape.headDim)
    throw wrongUsage("--head-dim", fmt::format("it is {}, and --shape says {}", headDim, *shape.headDim),
                     "leave one of them out");
  return *shape.headDim;
}

ProblemShape shapeOf(const char* option, const std::string& text, const std::vector<int64_t>& extents) {
  ProblemShape shape{extents[0], extents[1], extents[2], extents[3], extents[4]};
  if (shape.kvHeads > 0 && shape.qHeads % shape.kvHeads == 0) return shape;
  const int64_t kvHeads = std::max<int64_t>(1, shape.kvHeads), each = std::max<int64_t>(1, shape.qHeads / kvHeads);
  throw wrongUsage(
      option, inQuotes(text) + ": H must be a multiple of HKV",
      fmt::format("each KV head serves as many query heads: H {}, HKV {}, for instance", kvHeads * each, kvHeads));
}

void refuseOntoInput(const char* option, const std::string& output, const std::vector<std::string>& inputs) {
  auto target = fileOf(output, STDOUT_FILENO);
  if (!target) return;
  for (const std::string& input : inputs)
    if (!input.empty() && fileOf(input, STDIN_FILENO) == target)
      throw wrongUsage(option,
                       fmt::format("{} is the input {}, which would be lost", inQuotes(output), inQuotes(input)),
                       "give another file");
}

void refuseOntoTerminal(const char* option, const std::string& output) {
  if (output == "-" && isatty(STDOUT_FILENO))
    throw wrongUsage(option, "safetensors are binary, and stdout is a terminal",
                     fmt::format("give a file, {} result.safetensors, or redirect stdout", option));
}

void refuseUnlessSvg(const std::string& output) {
  if (output.empty() || output == "-" || std::string_view(output).ends_with(".svg")) return;
  throw wrongUsage("-o", inQuotes(output) + " does not end in .svg, the format of pictures",
                   "e.g. -o mask.svg; without -o the mask is drawn as text");
}

CLI::ValidationError wrongUsage(const std::string& option, const std::string& what, const std::string& hint) {
  return CLI::ValidationError(option, hint.empty() ? what : what + kHint + hint);
}

std::string fileRepair(const std::string& path) {
  std::error_code error;
  if (std::filesystem::exists(path, error)) return "";
  const std::filesystem::path wanted(path),
      folder = wanted.has_parent_path() ? wanted.parent_path() : std::filesystem::path(".");
  std::vector<std::string> names;
  constexpr size_t kMost = 10000;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end && names.size() < kMost;
       entry.increment(error))
    names.push_back(entry->path().filename().string());
  const std::string name = wanted.filename().string();
  std::string near = nearest(name, names);
  for (const std::string& one : names)
    if (std::filesystem::path(one).stem() == name) near = one;
  return near.empty() ? "" : fmt::format("did you mean {}?", inQuotes((folder / near).string()));
}

int reportUsage(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App* command = nullptr; // the innermost one found
  std::string words;
  for (std::vector<CLI::App*> chosen = app.get_subcommands(); !chosen.empty(); chosen = command->get_subcommands()) {
    command = chosen.front();
    words += command->get_name() + " ";
  }
  const Complaint complaint = complaintOf(app, command, error);
  const std::string hint = complaint.hint.empty() ? fmt::format("attnc {}--help", words) : complaint.hint;
  printMessage(fmt::format("attnc: error: {}\nhint: {}\n", readableLines(complaint.what), readableLines(hint)));
  return kUsageWrong;
}

} // namespace attnc::cli
