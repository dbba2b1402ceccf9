#include "cache/tuned.h"

#include <llvm/Support/JSON.h>

namespace attnc::cache {

namespace {

constexpr int64_t kTunedFormat = 1;

/// Returns the names and values of a file's text members.
template <class Choice> auto textsOf(Choice& choice) {
  return std::vector{std::pair("device", &choice.key.device),
                     {"arch", &choice.key.arch},
                     {"mod", &choice.key.mod},
                     {"options", &choice.key.options},
                     {"shape", &choice.key.shape},
                     {"kernel", &choice.kernel},
                     {"tile", &choice.tile},
                     {"date", &choice.date},
                     {"maker", &choice.maker}};
}

} // namespace

Digest digestOf(const TunedKey& key) {
  FieldHasher hasher;
  hasher.field("tuned");
  for (const std::string* text : {&key.device, &key.arch, &key.mod, &key.options, &key.shape})
    hasher.field(std::string_view(*text));
  return hasher.finish();
}

std::string encodeTuned(const TunedChoice& choice) {
  llvm::json::Object file{{"format", kTunedFormat}};
  for (const auto& [name, text] : textsOf(choice)) file[name] = llvm::json::fixUTF8(*text);
  llvm::json::Array times;
  for (const auto& [tile, ms] : choice.times) times.push_back(llvm::json::Object{{"tile", tile}, {"ms", ms}});
  file["times"] = std::move(times);
  std::string text;
  llvm::raw_string_ostream stream(text);
  stream << llvm::formatv("{0:2}", llvm::json::Value(std::move(file))) << "\n";
  return stream.str();
}

std::optional<TunedChoice> decodeTuned(const std::string& text) {
  auto parsed = llvm::json::parse(text);
  if (!parsed) {
    llvm::consumeError(parsed.takeError());
    return std::nullopt;
  }
  const llvm::json::Object* file = parsed->getAsObject();
  if (!file || file->getInteger("format") != kTunedFormat) return std::nullopt;
  TunedChoice choice;
  for (const auto& [name, member] : textsOf(choice)) {
    const auto found = file->getString(name);
    if (!found) return std::nullopt;
    *member = found->str();
  }
  const llvm::json::Array* times = file->getArray("times");
  if (!times) return std::nullopt;
  for (const llvm::json::Value& value : *times) {
    const llvm::json::Object* time = value.getAsObject();
    if (!time || !time->getString("tile") || !time->getNumber("ms")) return std::nullopt;
    choice.times.emplace_back(time->getString("tile")->str(), *time->getNumber("ms"));
  }
  return choice;
}

} // namespace attnc::cache
