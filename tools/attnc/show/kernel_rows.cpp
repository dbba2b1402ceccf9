#include "show/kernel_rows.h"

#include "terminal.h"
#include "text.h"

#include "cache/pack.h"
#include "support/try.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <llvm/ADT/SmallVector.h>
#include <llvm/ADT/StringRef.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <ctime>

namespace attnc::cli {
namespace {

constexpr size_t kShortKey = 12;

llvm::SmallVector<llvm::StringRef, 8> partsOf(llvm::StringRef text, char between) {
  llvm::SmallVector<llvm::StringRef, 8> parts;
  text.split(parts, between, /*MaxSplit=*/-1, /*KeepEmpty=*/false);
  return parts;
}

std::string timeText(int64_t seconds, bool utc) {
  const auto time = std::time_t(seconds);
  std::tm parts{};
  if (utc)
    ::gmtime_r(&time, &parts);
  else
    ::localtime_r(&time, &parts);
  return utc ? fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", parts) : fmt::format("{:%Y-%m-%d %H:%M}", parts);
}

std::string orDash(const std::string& text) { return text.empty() ? "-" : text; }

std::string headDims(const KernelRow& row) {
  return row.headDimV.empty() ? row.headDim : row.headDim + "/" + row.headDimV;
}

} // namespace

std::string KernelRow::shortText() const {
  std::string text = program;
  for (const std::string& part : {kind, arch, dtype, headDims(*this), mod, features})
    if (!part.empty()) text += " " + part;
  return text.empty() ? file : text;
}

KernelRow rowOf(std::string_view name) {
  KernelRow row;
  std::array<std::string*, 3> leading{&row.program, &row.entry, &row.arch};
  const std::pair<llvm::StringRef, std::string*> named[] = {
      {"key", &row.key},          {"kind", &row.kind},           {"family", &row.family}, {"dtype", &row.dtype},
      {"head-dim", &row.headDim}, {"head-dim-v", &row.headDimV}, {"mod", &row.mod},       {"with", &row.features}};
  size_t count = 0;
  for (llvm::StringRef word : partsOf({name.data(), name.size()}, ' ')) {
    const auto [label, value] = word.split('=');
    if (!word.contains('=') && count < leading.size()) *leading[count++] = word.str();
    for (const auto& [known, field] : named)
      if (word.contains('=') && label == known) *field = value.str();
  }
  return row;
}

Expected<std::vector<KernelRow>> packRows(const std::string& path) {
  ATTNC_TRY_AS(pack, cache::Pack::open(path));
  std::vector<KernelRow> rows;
  for (const auto& [content, packed] : (*pack)->rows()) {
    rows.push_back(rowOf(packed.name));
    rows.back().key = content.hex();
    rows.back().bytes = packed.bytes;
  }
  return rows;
}

std::string sizeText(uint64_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double size = double(bytes) / 1024;
  for (const char* unit : {"KiB", "MiB"}) {
    if (size < 1024) return fmt::format("{:.{}f} {}", size, size < 10 ? 1 : 0, unit);
    size /= 1024;
  }
  return fmt::format("{:.1f} GiB", size);
}

std::string tableText(const std::vector<KernelRow>& rows) {
  const bool isCache = std::any_of(rows.begin(), rows.end(), [](const KernelRow& row) { return row.lastUsed != 0; });
  std::vector<std::vector<std::string>> lines{
      {"key", "kind", "family", "arch", "dtype", "dim", "mod", "program", "size"}};
  if (isCache) lines[0].push_back("last used");
  lines[0].push_back("with");
  for (const KernelRow& row : rows) {
    std::vector<std::string> line;
    for (const std::string& text : {row.key.substr(0, kShortKey), row.kind, row.family, row.arch, row.dtype,
                                    headDims(row), row.mod, row.program, sizeText(row.bytes)})
      line.push_back(orDash(text));
    if (isCache) line.push_back(timeText(row.lastUsed, /*utc=*/false));
    line.push_back(row.program.empty() ? row.file : row.features);
    lines.push_back(std::move(line));
  }
  std::vector<size_t> widths(lines[0].size());
  for (const auto& line : lines)
    for (size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  // Fields that the terminal has no room for follow in a line of their own.
  constexpr size_t kIndent = 4;
  const size_t columns = isTerminal(Stream::Out) ? terminalColumns() : SIZE_MAX;
  std::vector<bool> breaks(widths.size());
  size_t used = 0;
  for (size_t i = 0; i < widths.size(); ++i) {
    breaks[i] = used > kIndent && used + widths[i] > columns;
    used = (breaks[i] ? kIndent : used) + widths[i] + 2;
  }
  std::string text;
  for (const auto& line : lines) {
    std::string padded;
    const auto end = [&] {
      const size_t last = padded.find_last_not_of(' ');
      if (last != std::string::npos) text += padded.substr(0, last + 1) + "\n";
    };
    for (size_t i = 0; i < line.size(); ++i) {
      if (breaks[i]) end(), padded = std::string(kIndent, ' ');
      padded += fmt::format("{:{}}  ", line[i], widths[i]);
    }
    end();
  }
  return text;
}

JsonReport jsonOf(const std::vector<KernelRow>& rows) {
  JsonReport all = JsonReport::array();
  for (const KernelRow& row : rows) {
    JsonReport line = JsonReport::object();
    const std::pair<const char*, const std::string*> texts[] = {
        {"key", &row.key},     {"kind", &row.kind},        {"family", &row.family},    {"arch", &row.arch},
        {"dtype", &row.dtype}, {"mod", &row.mod},          {"template", &row.program}, {"entry", &row.entry},
        {"file", &row.file},   {"compiler", &row.compiler}};
    for (const auto& [name, text] : texts)
      if (!text->empty()) line[name] = *text;
    const std::string& ofV = row.headDimV.empty() ? row.headDim : row.headDimV;
    for (const auto& [name, text] : {std::pair("headDim", &row.headDim), std::pair("headDimV", &ofV)})
      if (int64_t number = 0; parseInteger(*text, number)) line[name] = number;
    line["with"] = JsonReport::array();
    for (llvm::StringRef feature : partsOf(row.features, ',')) line["with"].push_back(feature.str());
    line["bytes"] = row.bytes;
    if (row.lastUsed) line["lastUsed"] = timeText(row.lastUsed, /*utc=*/true);
    all.push_back(std::move(line));
  }
  return all;
}

} // namespace attnc::cli
