#include "attnc/kernel.h"

#include <llvm/ADT/StringRef.h>

#include <algorithm>

namespace attnc {
namespace {

/// Appends `text` without `#pragma once` and without includes that were already pasted.
void paste(std::string& out, llvm::StringRef text, const KernelSource& source) {
  const auto isPasted = [&](llvm::StringRef line) {
    llvm::StringRef name = line.trim();
    if (!name.consume_front("#include \"")) return line.trim() == "#pragma once";
    name = name.take_until([](char c) { return c == '"'; });
    return std::any_of(source.headers.begin(), source.headers.end(),
                       [&](auto& header) { return header.first == name; });
  };
  while (!text.empty()) {
    auto [line, rest] = text.split('\n');
    text = rest;
    if (!isPasted(line)) out += line.str() + "\n";
  }
}

} // namespace

std::string KernelSource::flattened() const {
  std::string out;
  for (const auto& [name, body] : headers) {
    out += "// ===== " + name + "\n";
    paste(out, body, *this);
  }
  out += "// ===== " + templateName + "\n";
  paste(out, text, *this);
  return out;
}

} // namespace attnc
