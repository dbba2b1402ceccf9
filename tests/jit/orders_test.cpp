#include "jit/orders.h"

#include "helpers/temp_directory.h"
#include "jit/fixtures.h"
#include "jit/kernel_cache.h"
#include "support/try.h"

#include <catch2/catch.hpp>

#include <set>

using namespace attnc;
using namespace attnc::jit;
using namespace attnc::jit::test;
using Catch::Contains;

namespace {

/// Serialises products in some orders.
class Ptxas : public FakeKernelCompiler {
public:
  explicit Ptxas(std::set<int> serialised, const char* advisory = "ptxas info : (C7511) serialized")
      : serialised(std::move(serialised)), advisory(advisory) {}

  Expected<CompiledKernel> compile(const KernelSource& job) override {
    ATTNC_TRY_AS(result, FakeKernelCompiler::compile(job));
    const std::string last = job.options.empty() ? "" : job.options.back();
    const int order = last.rfind("-DATTNC_ORDER=", 0) == 0 ? std::stoi(last.substr(14)) : 0;
    result->order = 0;
    result->compileMs = 10;
    result->registers = order;
    result->advisories.clear();
    if (serialised.count(order)) result->advisories = {advisory};
    return result;
  }

private:
  const std::set<int> serialised;
  const char* const advisory;
};

KernelSource ordered() {
  KernelSource job = sampleSource();
  job.text = "#if ATTNC_ORDER == 1";
  return job;
}

} // namespace

TEST_CASE("a source whose products are serialised is compiled in another order", "[jit]") {
  const auto compiled = [](Ptxas& ptxas) { return take(compileInOrders(ptxas, ordered())); };
  Ptxas clean({}), first({0}), third({0, 1, 2}), all({0, 1, 2, 3}), others({0}, "(C7504) setmaxnreg ignored");
  CHECK(compiled(clean).order == 0);
  CHECK(clean.compiles == 1);

  CompiledKernel found = compiled(first);
  CHECK(found.order == 1);
  CHECK(found.registers == 1);
  CHECK(found.compileMs == 20);
  CHECK(found.advisories.empty());
  CHECK_THAT(found.log, Contains("attnc: order 1 of the statements; in order 0 ptxas said: ptxas info : (C7511)"));
  CHECK(compiled(third).order == 3);

  found = compiled(all);
  CHECK(all.compiles == kOrders);
  CHECK(found.order == 0);
  CHECK(found.registers == 0);
  CHECK(found.compileMs == 40);
  CHECK(found.advisories.size() == 1);
  CHECK_THAT(found.log, Contains("in all orders"));

  CHECK(compiled(others).advisories.size() == 1);
  CHECK(others.compiles == 1);
  Ptxas plain({0});
  CHECK(take(compileInOrders(plain, sampleSource())).order == 0); // a template of one order
  CHECK(plain.compiles == 1);
}

TEST_CASE("the order that was compiled is kept on disk, and the log tells of it", "[jit]") {
  const attnc::test::TempDirectory directory;
  cache::Options options{.directory = directory / "cache"};
  options.log = cache::Log(directory / "log");
  const auto ptxas = std::make_shared<Ptxas>(std::set{0});
  for (bool isFirst : {true, false}) {
    const CompiledKernel kernel = take(KernelCache(options, ptxas).getOrCompile(ordered()));
    CHECK(kernel.order == 1);
    CHECK(kernel.fromDisk == !isFirst);
  }
  CHECK(ptxas->compiles == 2);
  CHECK_THAT(attnc::test::readText(directory / "log"), Contains("bytes spilled, in order 1\n"));
}
