#include "jit/packs.h"

#include "cache/fork_guard.h"
#include "jit/kernel_bytes.h"
#include "support/try.h"

#include <fmt/format.h>

#include <filesystem>

namespace attnc::jit {

namespace {

std::string absolutePack(const std::string& path) {
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  return error ? path : absolute.lexically_normal().string();
}

} // namespace

Expected<std::shared_ptr<const cache::Pack>> openMadeBy(const std::string& maker, const std::string& path) {
  auto pack = cache::Pack::open(path);
  if (!pack || (*pack)->maker() == maker) return pack;
  return Error::environment(fmt::format("the pack {} was made by {}, and this is {}", path, (*pack)->maker(), maker),
                            "make it anew with `attnc pack` of this version");
}

Packs::Packs(const std::vector<std::string>& paths, std::string (*maker)(), cache::Log log)
    : maker(maker), log(std::move(log)) {
  for (const std::string& path : paths) pending.push_back(absolutePack(path));
}

Packs::Packs(const DefaultPack& pack, std::string (*maker)(), cache::Log log)
    : maker(maker), log(std::move(log)), isDefault(true), isFound(pack.isFound) {
  if (!pack.path.empty()) pending.push_back(absolutePack(pack.path));
}

Expected<std::shared_ptr<const cache::Pack>> Packs::open(const std::string& path) const {
  auto pack = isDefault ? openDefaultPack({path, isFound}, maker()) : openMadeBy(maker(), path);
  if (pack) log.line(fmt::format("pack {}: {} kernels", path, (*pack)->rows().size()));
  return pack;
}

Status Packs::add(const std::string& path) {
  ATTNC_TRY_AS(pack, open(absolutePack(path)));
  auto lock = cache::lockForkSafe();
  packs.push_back(*std::move(pack));
  return {};
}

Expected<Packs::Opened> Packs::opened() {
  for (;;) {
    std::string path;
    {
      auto lock = cache::lockForkSafe();
      if (pending.empty()) return packs;
      path = pending.front();
    }
    auto pack = open(path);
    if (!pack && !isDefault) return std::move(pack).error();
    if (!pack) log.line(pack.error().message + ": it is passed over");
    auto lock = cache::lockForkSafe();
    if (pending.empty() || pending.front() != path) continue; // another thread was faster
    if (pack) packs.push_back(*std::move(pack));
    pending.erase(pending.begin());
  }
}

Expected<std::optional<CompiledKernel>> Packs::find(const cache::Digest& content) {
  ATTNC_TRY_AS(all, opened());
  for (const auto& pack : *all) {
    const auto row = pack->rows().find(content);
    if (row == pack->rows().end()) continue;
    const auto bytes = pack->read(row->second);
    auto result = bytes ? decodeResult(*bytes) : std::nullopt;
    if (result) return result;
    log.warn(fmt::format("the pack {} is damaged: {} cannot be used", pack->path(), row->second.name));
  }
  return std::optional<CompiledKernel>();
}

} // namespace attnc::jit
