#include "jit/kernel_bytes.h"

#include "jit/fixtures.h"

#include <catch2/catch.hpp>

using namespace attnc;
using namespace attnc::jit;
using namespace attnc::jit::test;

TEST_CASE("a result is read back as it was written", "[jit]") {
  const CompiledKernel result = sampleResult();
  auto back = take(decodeResult(encodeResult(result)));
  CHECK(back.cubin == result.cubin);
  CHECK(back.ptx == result.ptx);
  CHECK(back.log == result.log);
  CHECK(back.registers == result.registers);
  CHECK(back.spillBytes == result.spillBytes);
  CHECK(back.staticSharedBytes == result.staticSharedBytes);
  CHECK(back.stackBytes == result.stackBytes);
  CHECK(back.advisories == result.advisories);
  CHECK(back.compileMs == result.compileMs);
}

TEST_CASE("bytes that are too short, too long or lie about a length are no result", "[jit]") {
  const std::string bytes = encodeResult(sampleResult());
  for (size_t length = 0; length < bytes.size(); ++length)
    if (decodeResult(std::string_view(bytes).substr(0, length))) FAIL("readable after " << length << " bytes");
  CHECK_FALSE(decodeResult(bytes + '\0'));
  for (size_t at = 0; at < 8; ++at) { // of the cubin
    std::string changed = bytes;
    changed[at] = '\xff';
    CHECK_FALSE(decodeResult(changed));
  }
}

TEST_CASE("the content changes with everything that decides the code", "[jit]") {
  KernelSource base = sampleSource();
  cache::Digest content = contentOf(base);
  std::vector<cache::Digest> keys = {content, contentOf(base, kSourceSchema + 1)};
  auto with = [&](auto change) {
    KernelSource source = base;
    change(source);
    keys.push_back(contentOf(source));
  };
  with([](KernelSource& source) { source.templateName += "x"; });
  with([](KernelSource& source) { source.text += " "; });
  with([](KernelSource& source) { source.arch = "sm_90"; });
  with([](KernelSource& source) { source.entry = "other"; });
  with([](KernelSource& source) { source.options = {}; });
  with([](KernelSource& source) { source.options = {"-lineinfo", "--maxrregcount=64"}; });
  with([](KernelSource& source) { source.options = {"--maxrregcount=64", "-lineinfo"}; });
  with([](KernelSource& source) { source.headers[0].second = "// A"; });
  with([](KernelSource& source) { source.headers[0].first = "A.cuh"; });
  with([](KernelSource& source) { std::swap(source.headers[0], source.headers[1]); });
  with([](KernelSource& source) { source.headers.pop_back(); });
  // A byte that moves from one text to its neighbour.
  with([](KernelSource& source) { source.headers = {{"a.cuh/", "/ a"}, {"b.cuh", "// b"}}; });
  for (size_t i = 0; i < keys.size(); ++i)
    for (size_t j = 0; j < i; ++j) {
      INFO(i << " and " << j);
      CHECK(keys[i] != keys[j]);
    }
  CHECK(contentOf(sampleSource()) == content);
}

TEST_CASE("the header of a mod counts in the content by its key", "[jit]") {
  KernelSource a = sampleSource();
  a.headers[0].first = "attnc_mod.cuh";
  KernelSource b = a;
  b.headers[0].second += "// another name, the same code";
  CHECK(contentOf(a) != contentOf(b));
  a.modKey = b.modKey = "the code";
  CHECK(contentOf(a) == contentOf(b));
  b.modKey = "other code";
  CHECK(contentOf(a) != contentOf(b));
  b.modKey = b.headers[0].second; // a key is not the text itself
  b.headers[0].second = a.headers[0].second;
  CHECK(contentOf(a) != contentOf(b));
}

TEST_CASE("the content of a source is the same in every process and version", "[jit]") {
  // Changes only together with kSourceSchema.
  CHECK(contentOf(sampleSource()).hex() == "82c98e92bad1cd73b6f1f65e96c7db4e9375e7e2ec839a5924b20418ccd76c16");
}
