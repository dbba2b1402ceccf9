// `attnc cache`: lists, verifies and removes what is kept on disk.
#include "commands/cache_state.h"
#include "commands/command.h"
#include "show/kernel_rows.h"
#include "terminal.h"
#include "text.h"

#include "attnc/toolchain.h"
#include "cache/inventory.h"
#include "cache/pack.h"
#include "cache/prune.h"
#include "jit/cache_options.h"
#include "support/readable.h"
#include "support/try.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <unistd.h>

namespace attnc::cli {
namespace {

struct CacheCommand {
  bool json = false, dryRun = false;
  std::string maxSize, unusedFor;
  std::vector<std::string> packs;
};

/// A result in both forms, text and JSON.
struct Told {
  std::string text;
  JsonReport json;
  int exitCode = kDone;
};

/// The environment, read as every process of this user reads it.
struct Environment {
  cache::Options options;
  std::vector<std::string> packs;

  static Expected<Environment> read() {
    const jit::Env env = jit::Env::read();
    const LogSink warn = [](LogLevel level, std::string_view line) {
      if (level == LogLevel::Warning) printMessage("attnc: warning: " + readable(line) + "\n");
    };
    Environment read{jit::cacheOptionsFrom(env, warn), jit::splitPaths(env.packs)};
    if (read.options.directory.empty())
      return Error::environment(
          "there is no cache: none of ATTNC_CACHE_DIR, XDG_CACHE_HOME and HOME names a directory");
    std::error_code error;
    const auto absolute = std::filesystem::absolute(read.options.directory, error);
    if (!error) read.options.directory = absolute.lexically_normal().string();
    return read;
  }

  cache::Directory user(cache::Directory::Access access = cache::Directory::Access::ReadOnly) const {
    return {std::make_shared<FileOps>(), options.directory, access, cache::Directory::Layer::User, cache::Log()};
  }
};

cache::Directory readOnly(const std::string& path) {
  return {std::make_shared<FileOps>(), path, cache::Directory::Access::ReadOnly, cache::Directory::Layer::System,
          cache::Log()};
}

KernelRow rowOf(const cache::ListedEntry& entry) {
  KernelRow row = cli::rowOf(entry.head ? entry.head->name : "");
  row.file = entry.file;
  row.bytes = entry.bytes;
  row.lastUsed = entry.lastUsed;
  if (entry.head) row.compiler = entry.head->compiler;
  return row;
}

Expected<std::vector<KernelRow>> rowsOf(cache::Directory directory) {
  ATTNC_TRY_AS(entries, cache::Inventory(directory).list());
  std::vector<KernelRow> rows;
  for (const cache::ListedEntry& entry : *entries) rows.push_back(rowOf(entry));
  return rows;
}

Expected<std::vector<cache::ListedChoice>> choicesIn(cache::Directory directory) {
  return cache::Inventory(directory).tuned();
}

/// Returns a line for each measured choice of a tile.
std::string choicesText(const std::vector<cache::ListedChoice>& choices) {
  std::string text;
  for (const auto& [file, bytes, lastUsed, choice] : choices)
    text += choice ? fmt::format("{:12}{} for {}, {}: tile {}, {} ({})\n", "tuned", choice->kernel, choice->key.device,
                                 choice->key.shape, choice->tile, choice->date, file)
                   : fmt::format("{:12}{}: damaged\n", "tuned", file);
  return text;
}

JsonReport jsonOf(const std::vector<cache::ListedChoice>& choices) {
  JsonReport all = JsonReport::array();
  for (const auto& [file, bytes, lastUsed, choice] : choices) {
    JsonReport one{{"file", file}, {"bytes", bytes}, {"damaged", !choice}};
    if (choice) {
      one.update({{"device", choice->key.device},
                  {"arch", choice->key.arch},
                  {"mod", choice->key.mod},
                  {"shape", choice->key.shape},
                  {"kernel", choice->kernel},
                  {"tile", choice->tile},
                  {"date", choice->date},
                  {"maker", choice->maker}});
      one["times"] = JsonReport::array();
      for (const auto& [tile, ms] : choice->times) one["times"].push_back({{"tile", tile}, {"ms", ms}});
    }
    all.push_back(std::move(one));
  }
  return all;
}

uint64_t bytesOf(const std::vector<KernelRow>& rows) {
  uint64_t bytes = 0;
  for (const KernelRow& row : rows) bytes += row.bytes;
  return bytes;
}

std::string countText(int64_t count, const char* one, const char* many) {
  return fmt::format("{} {}", count, count == 1 ? one : many);
}

std::string sumText(int64_t count, uint64_t bytes) {
  return fmt::format("{}, {}", countText(count, "kernel", "kernels"), sizeText(bytes));
}

Expected<Told> path(const Environment& environment, const CacheCommand&) {
  return Told{environment.options.directory + "\n", {{"ok", true}, {"directory", environment.options.directory}}};
}

Expected<Told> list(const Environment& environment, const CacheCommand& command) {
  std::vector<KernelRow> rows;
  std::vector<cache::ListedChoice> choices;
  for (const std::string& path : command.packs) {
    ATTNC_TRY_AS(packed, packRows(path));
    rows.insert(rows.end(), packed->begin(), packed->end());
  }
  if (command.packs.empty()) {
    ATTNC_TRY_AS(found, rowsOf(environment.user()));
    ATTNC_TRY_AS(tuned, choicesIn(environment.user()));
    rows = *std::move(found);
    choices = *std::move(tuned);
  }
  JsonReport json{{"ok", true}, {"kernels", jsonOf(rows)}};
  if (command.packs.empty()) json["tuned"] = jsonOf(choices);
  return Told{(rows.empty() ? "" : tableText(rows)) + choicesText(choices), std::move(json)};
}

const char* modeText(cache::Mode mode) {
  return mode == cache::Mode::ReadWrite ? "rw" : mode == cache::Mode::ReadOnly ? "ro" : "off";
}

Expected<Told> statistics(const Environment& environment, const CacheCommand&) {
  cache::Directory directory = environment.user();
  ATTNC_TRY_AS(rows, rowsOf(environment.user()));
  const uint64_t bytes = bytesOf(*rows), most = environment.options.maxBytes;
  const int64_t compilers = cache::Inventory(directory).compilers();
  ATTNC_TRY_AS(choices, choicesIn(environment.user()));
  std::string text =
      fmt::format("directory   {}\nmode        {}\nkernels     {} of at most {}\ncompilers   {}\ntuned       {}\n",
                  environment.options.directory, modeText(environment.options.mode),
                  sumText(int64_t(rows->size()), bytes), sizeText(most), compilers, choices->size());
  JsonReport stat{{"ok", true},
                  {"directory", environment.options.directory},
                  {"mode", modeText(environment.options.mode)},
                  {"kernels", rows->size()},
                  {"bytes", bytes},
                  {"maxBytes", most},
                  {"compilers", compilers},
                  {"tuned", choices->size()},
                  {"byKind", JsonReport::array()},
                  {"readOnly", JsonReport::array()},
                  {"packs", JsonReport::array()}};
  std::map<std::pair<std::string, std::string>, std::pair<int64_t, uint64_t>> kinds;
  for (const KernelRow& row : *rows) {
    const bool isKnown = !row.kind.empty();
    auto& [count, size] = kinds[{isKnown ? row.arch : "", isKnown ? row.kind : "unknown"}];
    ++count;
    size += row.bytes;
  }
  for (const auto& [of, sum] : kinds) {
    const auto& [arch, kind] = of;
    text +=
        fmt::format("            {}{}{}: {}\n", arch, arch.empty() ? "" : " ", kind, sumText(sum.first, sum.second));
    JsonReport one{{"arch", arch}, {"kind", kind}, {"kernels", sum.first}, {"bytes", sum.second}};
    if (arch.empty()) one = {{"kernels", sum.first}, {"bytes", sum.second}};
    stat["byKind"].push_back(std::move(one));
  }
  for (const std::string& other : environment.options.readOnlyDirectories) {
    ATTNC_TRY_AS(found, rowsOf(readOnly(other)));
    text += fmt::format("read only   {}: {}\n", other, sumText(int64_t(found->size()), bytesOf(*found)));
    stat["readOnly"].push_back({{"directory", other}, {"kernels", found->size()}, {"bytes", bytesOf(*found)}});
  }
  for (const std::string& file : environment.packs) {
    ATTNC_TRY_AS(pack, cache::Pack::open(file));
    text += fmt::format("pack        {}: {}, of {}\n", file,
                        countText(int64_t((*pack)->rows().size()), "kernel", "kernels"), (*pack)->maker());
    stat["packs"].push_back({{"file", file}, {"kernels", (*pack)->rows().size()}, {"maker", (*pack)->maker()}});
  }
  return Told{std::move(text), std::move(stat)};
}

/// The damaged entries of one place.
struct Verified {
  std::string place;
  cache::Verification found;
};

Verified verifiedPack(const std::string& path) {
  Verified result{path, {}};
  auto pack = cache::Pack::open(path);
  if (!pack) {
    result.found.files = 1;
    result.found.damaged.push_back({path, pack.error().message});
    return result;
  }
  for (const auto& [content, row] : (*pack)->rows()) {
    ++result.found.files;
    if (!(*pack)->read(row)) result.found.damaged.push_back({row.name, "its checksum does not fit"});
  }
  return result;
}

Expected<Told> verify(const Environment& environment, const CacheCommand& command) {
  std::vector<Verified> places;
  for (const std::string& path : command.packs) places.push_back(verifiedPack(path));
  if (places.empty()) {
    const auto verifyIn = [&](cache::Directory directory) -> Status {
      ATTNC_TRY_AS(found, cache::Inventory(directory).verify());
      places.push_back({directory.path(), *std::move(found)});
      return {};
    };
    ATTNC_TRY(verifyIn(environment.user()));
    for (const std::string& other : environment.options.readOnlyDirectories) ATTNC_TRY(verifyIn(readOnly(other)));
    for (const std::string& path : environment.packs) places.push_back(verifiedPack(path));
    if (const std::string path = findDefaultPack().path; !path.empty()) places.push_back(verifiedPack(path));
  }
  Told told;
  JsonReport found = JsonReport::array();
  for (const auto& [place, verification] : places) {
    JsonReport damaged = JsonReport::array();
    for (const auto& [file, why] : verification.damaged) {
      told.text += fmt::format("{}: damaged: {}\n", file == place ? place : place + "/" + file, why);
      damaged.push_back({{"file", file}, {"why", why}});
      told.exitCode = kEnvironmentWrong;
    }
    const auto& [files, foreign, bad] = verification;
    told.text += fmt::format("{}: {} of {} files sound", place, files - foreign - int64_t(bad.size()), files);
    if (foreign) told.text += fmt::format(", {} of another version of attnc", foreign);
    told.text += "\n";
    found.push_back({{"place", place}, {"files", files}, {"foreign", foreign}, {"damaged", damaged}});
  }
  told.json = {{"ok", told.exitCode == kDone}, {"places", std::move(found)}};
  if (told.exitCode != kDone)
    told.text += "A damaged file of a cache is not used, and written anew when its kernel is next compiled.\n";
  return told;
}

/// Returns the seconds of "90s", "30m", "12h", "30d", "2w". Throws CLI::ValidationError.
int64_t secondsOf(const std::string& text) {
  int64_t number = 0;
  const std::map<char, int64_t> units{{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}, {'w', 7 * 86400}};
  const auto unit = text.empty() ? units.end() : units.find(text.back());
  const bool isNumber = unit != units.end() && parseInteger(text.substr(0, text.size() - 1), number);
  if (!isNumber || number < 0 || number > std::numeric_limits<int32_t>::max())
    throw wrongUsage("--older-than", inQuotes(text) + " is no time", "a number with s, m, h, d or w: 12h, 30d, 2w");
  return number * unit->second;
}

/// Removes entries by limits, and returns a report.
Expected<Told> remove(const Environment& environment, const CacheCommand& command, cache::PruneLimits limits) {
  if (environment.options.mode == cache::Mode::ReadOnly && !command.dryRun)
    return Error::environment("ATTNC_CACHE_MODE is ro: nothing may be written or removed", "unset it, or say rw");
  cache::Directory directory = environment.user(cache::Directory::Access::ReadWrite);
  ATTNC_TRY_AS(entries, cache::Inventory(directory).list());
  limits.waits = true;
  limits.dryRun = command.dryRun;
  const bool isThere = std::filesystem::exists(directory.path());
  const cache::PruneReport report = cache::Pruner(directory, limits.maxBytes).prune(limits);
  if (isThere && !report.ran && !entries->empty())
    return Error::environment(fmt::format("cannot remove from {}", directory.path()), "is it writable?");
  std::map<std::string, KernelRow> known;
  for (const cache::ListedEntry& entry : *entries) known.emplace(entry.file, rowOf(entry));
  std::vector<KernelRow> removed;
  for (const cache::FoundFile& file : report.removedFiles) {
    KernelRow row = known[cache::placeOf(file)]; // only the place is known of an entry added after the listing
    row.file = cache::placeOf(file);
    row.bytes = uint64_t(file.status.st_size);
    removed.push_back(std::move(row));
  }
  const char* verb = command.dryRun ? "would remove" : "removed";
  Told told;
  for (const KernelRow& row : removed)
    told.text += fmt::format("{} {} ({}, {})\n", verb, row.shortText(), sizeText(row.bytes), row.file);
  told.text += fmt::format("{}: {} {}", directory.path(), verb, sumText(report.removed, bytesOf(removed)));
  if (report.temporaries) told.text += ", " + countText(report.temporaries, "temporary file", "temporary files");
  if (report.compilers)
    told.text += ", " + countText(report.compilers, "identity of a compiler", "identities of compilers");
  if (report.tuned) told.text += ", " + countText(report.tuned, "tuned choice", "tuned choices");
  told.text += fmt::format("; {} {}\n", sumText(report.entries, uint64_t(report.bytes)),
                           command.dryRun ? "would remain" : "remain");
  told.json = {{"ok", true},
               {"directory", directory.path()},
               {"dryRun", command.dryRun},
               {"removed", jsonOf(removed)},
               {"removedBytes", bytesOf(removed)},
               {"temporaries", report.temporaries},
               {"compilers", report.compilers},
               {"tuned", report.tuned},
               {"kernels", report.entries},
               {"bytes", report.bytes}};
  return told;
}

Expected<Told> prune(const Environment& environment, const CacheCommand& command) {
  cache::PruneLimits limits{.maxBytes = std::numeric_limits<uint64_t>::max(), .downTo = 0, .unusedFor = {}};
  if (!command.unusedFor.empty()) limits.unusedFor = secondsOf(command.unusedFor);
  if (!command.maxSize.empty()) {
    const auto bytes = jit::parseBytes(command.maxSize);
    if (!bytes)
      throw wrongUsage("--max-size", inQuotes(command.maxSize) + " is no size", "a number with K, M or G: 500M, 2G");
    limits.maxBytes = *bytes;
  } else if (!limits.unusedFor) {
    limits.maxBytes = environment.options.maxBytes;
  }
  limits.downTo = limits.maxBytes;
  return remove(environment, command, limits);
}

Expected<Told> clear(const Environment& environment, const CacheCommand& command) {
  return remove(environment, command,
                {.maxBytes = 0, .downTo = 0, .unusedFor = {}, .forgetsCompilers = true, .forgetsTuned = true});
}

using Action = Expected<Told> (*)(const Environment&, const CacheCommand&);

Expected<int> runCache(Action action, const CacheCommand& command) {
  ATTNC_TRY_AS(environment, Environment::read());
  ATTNC_TRY_AS(told, action(*environment, command));
  ATTNC_TRY(printResult(command.json ? jsonText(told->json) : reportText(told->text)));
  return told->exitCode;
}

} // namespace

CacheState cacheState() {
  CacheState state;
  for (const jit::EnvRow& row : jit::envTable())
    if (const char* value = std::getenv(row.variable); value && *value)
      state.variables.emplace_back(row.variable, value);
  const jit::Env env = jit::Env::read();
  const auto environment = Environment::read();
  if (!environment) {
    state.problem = environment.error().message;
  } else {
    const cache::Options& options = environment->options;
    state.directory = options.directory;
    state.mode = modeText(options.mode);
    state.maxBytes = options.maxBytes;
    state.readOnlyDirectories = options.readOnlyDirectories;
    state.problem = cache::whyUnsafe(options.directory, cache::Trust::Self);
    if (!state.problem.empty()) state.problem = "it " + state.problem;
    std::string folder = options.directory; // the first one that is there says whether it can be written
    std::error_code ignored;
    state.exists = std::filesystem::exists(folder, ignored);
    while (!std::filesystem::exists(folder, ignored) && folder.size() > 1)
      folder = std::filesystem::path(folder).parent_path().string();
    state.isWritable = ::access(folder.c_str(), W_OK) == 0;
    if (auto rows = rowsOf(environment->user())) {
      state.kernels = int64_t(rows->size());
      state.bytes = bytesOf(*rows);
    }
  }
  for (const std::string& file : jit::splitPaths(env.packs)) {
    auto pack = cache::Pack::open(file);
    if (pack)
      state.packs.push_back({file, int64_t((*pack)->rows().size()), ""});
    else
      state.packs.push_back({file, 0, pack.error().message});
  }
  return state;
}

void addCache(CLI::App& app, int& exitCode) {
  auto options = std::make_shared<CacheCommand>();
  CLI::App* command = app.add_subcommand(
      "cache", "Show, verify, prune or clear what is kept on disk: kernels, and choices of `attnc tune`");
  command->require_subcommand(1);
  command->footer(R"(The directory is that of ATTNC_CACHE_DIR, else $XDG_CACHE_HOME/attnc, else ~/.cache/attnc.

Examples:
  attnc cache ls
  attnc cache prune --older-than 30d --dry-run)");
  const auto add = [&](const char* name, const char* help, Action action) {
    CLI::App* sub = command->add_subcommand(name, help);
    sub->add_flag("--json", options->json, "For programs");
    sub->callback([options, action, &exitCode] { exitCode = exitCodeOf(runCache(action, *options), options->json); });
    return sub;
  };
  const auto addPacks = [&](CLI::App* sub, const char* help) { addOption(*sub, "pack", options->packs, "PACK", help); };
  const auto addDryRun = [&](CLI::App* sub) {
    sub->add_flag("--dry-run", options->dryRun, "Say what would be removed, and remove nothing");
  };
  add("path", "Print the directory", path);
  CLI::App* ls = add("ls", "List the kernels and the choices of `attnc tune`, the least recently used first", list);
  addPacks(ls, "List these packs instead of the cache");
  ls->footer(
      "key: of what a kernel is compiled from, as errors tell it. mod: the hash that `attnc check` tells. A program\n"
      "that several kernels share is listed as the one that was compiled first. Uses are noted once an hour.");
  add("stat", "Say how many kernels there are and how much they take, here and in read-only directories and packs",
      statistics);
  CLI::App* verifying = add("verify", "Read every file, and say which are damaged; exit code 3 if some are", verify);
  addPacks(verifying, "Verify these packs instead of the cache and what else kernels come from");
  CLI::App* pruning =
      add("prune", "Remove the least recently used kernels, and what killed processes left behind", prune);
  addOption(*pruning, "--max-size", options->maxSize, "SIZE",
            "Down to this size: 500M, 2G; default without --older-than: ATTNC_CACHE_MAX_BYTES, else 1G");
  addOption(*pruning, "--older-than", options->unusedFor, "TIME",
            "Those not used for so long: 12h, 30d, 2w; noted hourly");
  addDryRun(pruning);
  addDryRun(add("clear", "Remove all kernels and choices. Processes that run go on, and compile again what they need",
                clear));
}

} // namespace attnc::cli
