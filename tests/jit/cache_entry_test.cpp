#include "jit/fixtures.h"

#include <catch2/catch.hpp>

#include <cstring>

using namespace attnc::jit;
using namespace attnc::jit::test;

namespace {

CacheEntry sampleEntry() {
  CacheEntry entry;
  entry.key = cacheKey(sampleJob(), "compiler");
  entry.name = "sample.cu";
  entry.entry = "sample";
  entry.arch = "sm_90a";
  entry.compiler = "compiler";
  entry.result.cubin = {'\177', 'E', 'L', 'F', 0, 1, 2};
  entry.result.ptx = "ptx";
  entry.result.log = "log\nlog";
  entry.result.registers = 168;
  entry.result.spillBytes = 12;
  entry.result.staticSharedBytes = int64_t(1) << 40;
  entry.result.stackBytes = 512;
  entry.result.advisories = {"(C7519) one", ""};
  entry.result.ms = 312.5;
  return entry;
}

// Puts a right checksum behind changed bytes.
std::string sealed(std::string bytes) {
  bytes.resize(bytes.size() - 32);
  Digest checksum = sha256(bytes);
  return bytes + std::string(reinterpret_cast<const char*>(checksum.bytes.data()), 32);
}

} // namespace

TEST_CASE("an entry is read back as it was written", "[jit]") {
  CacheEntry entry = sampleEntry();
  auto back = decodeEntry(encodeEntry(entry));
  REQUIRE(back);
  CHECK(back->key == entry.key);
  CHECK(back->name == entry.name);
  CHECK(back->entry == entry.entry);
  CHECK(back->arch == entry.arch);
  CHECK(back->compiler == entry.compiler);
  CHECK(back->result.cubin == entry.result.cubin);
  CHECK(back->result.ptx == entry.result.ptx);
  CHECK(back->result.log == entry.result.log);
  CHECK(back->result.registers == entry.result.registers);
  CHECK(back->result.spillBytes == entry.result.spillBytes);
  CHECK(back->result.staticSharedBytes == entry.result.staticSharedBytes);
  CHECK(back->result.stackBytes == entry.result.stackBytes);
  CHECK(back->result.advisories == entry.result.advisories);
  CHECK(back->result.ms == entry.result.ms);
}

TEST_CASE("every flipped bit, truncation and addition makes an entry unreadable", "[jit]") {
  std::string bytes = encodeEntry(sampleEntry());
  REQUIRE(decodeEntry(bytes));
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::string changed = bytes;
    changed[bit / 8] = char(changed[bit / 8] ^ (1 << (bit % 8)));
    if (decodeEntry(changed)) FAIL("bit " << bit << " may flip");
  }
  for (size_t length = 0; length < bytes.size(); ++length)
    if (decodeEntry(std::string_view(bytes).substr(0, length))) FAIL("readable after " << length << " bytes");
  for (size_t extra = 1; extra < 64; ++extra)
    if (decodeEntry(bytes + std::string(extra, '\0'))) FAIL("readable with " << extra << " bytes more");
}

TEST_CASE("lengths that lie are refused even under a right checksum", "[jit]") {
  std::string bytes = encodeEntry(sampleEntry());
  // Each byte of the lengths before the header, and of the first text's length behind the key.
  for (size_t at : {8, 12, 13, 14, 15, 16, 17, 20, 23, 24 + 32, 24 + 32 + 1, 24 + 32 + 7})
    for (int value : {0, 1, 127, 128, 255}) {
      std::string changed = bytes;
      if (uint8_t(changed[at]) == value) continue;
      changed[at] = char(value);
      INFO("byte " << at << " is " << value);
      CHECK_FALSE(decodeEntry(sealed(changed)));
    }
}

TEST_CASE("the key changes with everything that decides the code", "[jit]") {
  CompileJob base = sampleJob();
  Digest key = cacheKey(base, "compiler");
  std::vector<Digest> keys = {key, cacheKey(base, "compiler 2"), cacheKey(base, "compiler", kKeySchema + 1)};
  auto with = [&](auto change) {
    CompileJob job = base;
    change(job);
    keys.push_back(cacheKey(job, "compiler"));
  };
  with([](CompileJob& job) { job.name += "x"; });
  with([](CompileJob& job) { job.source += " "; });
  with([](CompileJob& job) { job.arch = "sm_90"; });
  with([](CompileJob& job) { job.entry = "other"; });
  with([](CompileJob& job) { job.options = {}; });
  with([](CompileJob& job) { job.options = {"-lineinfo", "--maxrregcount=64"}; });
  with([](CompileJob& job) { job.options = {"--maxrregcount=64", "-lineinfo"}; });
  with([](CompileJob& job) { job.headers[0].second = "// A"; });
  with([](CompileJob& job) { job.headers[0].first = "A.cuh"; });
  with([](CompileJob& job) { std::swap(job.headers[0], job.headers[1]); });
  with([](CompileJob& job) { job.headers.pop_back(); });
  // A byte that moves from one text to its neighbour.
  with([](CompileJob& job) { job.headers = {{"a.cuh/", "/ a"}, {"b.cuh", "// b"}}; });
  for (size_t i = 0; i < keys.size(); ++i)
    for (size_t j = 0; j < i; ++j) {
      INFO(i << " and " << j);
      CHECK(keys[i] != keys[j]);
    }
  CHECK(cacheKey(sampleJob(), "compiler") == key);
}

TEST_CASE("a header counts in the key by what stands for it", "[jit]") {
  CompileJob a = sampleJob(), b = sampleJob();
  const std::string name = a.headers[0].first;
  b.headers[0].second += "// another name, the same code";
  CHECK(cacheKey(a, "compiler") != cacheKey(b, "compiler"));
  a.keyedAs[name] = b.keyedAs[name] = "the code";
  CHECK(cacheKey(a, "compiler") == cacheKey(b, "compiler"));
  b.keyedAs[name] = "other code";
  CHECK(cacheKey(a, "compiler") != cacheKey(b, "compiler"));
  b.keyedAs[name] = b.headers[0].second; // a stand-in is not the text itself
  b.headers[0].second = a.headers[0].second;
  CHECK(cacheKey(a, "compiler") != cacheKey(b, "compiler"));
}

TEST_CASE("the key of a job is the same in every process and version", "[jit]") {
  // Changes only together with kKeySchema.
  CHECK(cacheKey(sampleJob(), "compiler").hex() == "393cd5b47d61c67551d8c85e154ee151fad416f059dccdb7f08503adaf993d58");
}

TEST_CASE("SHA-256 is SHA-256", "[jit]") {
  CHECK(sha256("abc").hex() == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  FieldHasher hasher;
  hasher.field("abc");
  std::string framed("\3\0\0\0\0\0\0\0abc", 11);
  CHECK(hasher.finish() == sha256(framed));
}
