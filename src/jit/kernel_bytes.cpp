#include "jit/kernel_bytes.h"

#include "cache/fields.h"
#include "jit/nvrtc.h"

#include <bit>

namespace attnc::jit {

cache::Digest contentOf(const CompileJob& job, int schema) {
  cache::FieldHasher hasher;
  hasher.field(uint64_t(schema));
  hasher.field(job.arch);
  hasher.field(job.entry);
  hasher.field(job.name);
  std::vector<std::string> options = nvrtcOptions(job);
  hasher.field(options.size());
  for (const std::string& option : options) hasher.field(option);
  hasher.field(job.headers.size());
  for (const auto& [name, text] : job.headers) {
    const auto standIn = job.keyedAs.find(name);
    hasher.field(name);
    hasher.field(standIn == job.keyedAs.end() ? "text" : "stand-in");
    hasher.field(standIn == job.keyedAs.end() ? text : standIn->second);
  }
  hasher.field(job.source);
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
  for (uint64_t left = fields.number(); left > 0 && fields.ok(); --left) result.advisories.push_back(fields.text());
  if (!fields.atEnd()) return std::nullopt;
  return result;
}

} // namespace attnc::jit
