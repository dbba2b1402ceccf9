#include "jit/kernel_bytes.h"

#include "cache/fields.h"
#include "jit/nvrtc.h"

#include <bit>

namespace attnc::jit {

cache::Digest contentOf(const KernelSource& source, int schema) {
  cache::FieldHasher hasher;
  hasher.field(uint64_t(schema));
  hasher.field(source.arch);
  hasher.field(source.entry);
  hasher.field(source.templateName);
  std::vector<std::string> options = nvrtcOptions(source);
  hasher.field(options.size());
  for (const std::string& option : options) hasher.field(option);
  hasher.field(source.headers.size());
  for (const auto& [name, text] : source.headers) {
    const bool standsIn = name == "attnc_mod.cuh" && !source.modKey.empty();
    hasher.field(name);
    hasher.field(standsIn ? "stand-in" : "text");
    hasher.field(standsIn ? source.modKey : text);
  }
  hasher.field(source.text);
  return hasher.finish();
}

std::string encodeResult(const CompiledKernel& result) {
  std::string bytes;
  bytes.reserve(result.cubin.size() + result.ptx.size() + result.log.size() + 512);
  cache::putText(bytes, {result.cubin.data(), result.cubin.size()});
  cache::putText(bytes, result.ptx);
  cache::putText(bytes, result.log);
  cache::putNumber(bytes, uint64_t(result.registers));
  cache::putNumber(bytes, uint64_t(result.spillBytes));
  cache::putNumber(bytes, uint64_t(result.staticSharedBytes));
  cache::putNumber(bytes, uint64_t(result.stackBytes));
  cache::putNumber(bytes, std::bit_cast<uint64_t>(result.compileMs));
  cache::putNumber(bytes, uint64_t(result.order));
  cache::putNumber(bytes, result.advisories.size());
  for (const std::string& line : result.advisories) cache::putText(bytes, line);
  return bytes;
}

std::optional<CompiledKernel> decodeResult(std::string_view bytes) {
  cache::FieldReader fields(bytes);
  CompiledKernel result;
  std::string_view cubin = fields.raw(fields.number());
  result.cubin.assign(cubin.begin(), cubin.end());
  result.ptx = fields.text();
  result.log = fields.text();
  result.registers = int(fields.number());
  result.spillBytes = int(fields.number());
  result.staticSharedBytes = int64_t(fields.number());
  result.stackBytes = int64_t(fields.number());
  result.compileMs = std::bit_cast<double>(fields.number());
  result.order = int(fields.number());
  for (uint64_t left = fields.number(); left > 0 && fields.ok(); --left) result.advisories.push_back(fields.text());
  if (!fields.atEnd()) return std::nullopt;
  return result;
}

} // namespace attnc::jit
