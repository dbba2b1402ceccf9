// What a preparation compiles, when, and on how many threads, against a fake of CUDA (fake_cuda/).
#include "jobs/operands.h"

#include "attnc/compiler.h"
#include "helpers/library.h"
#include "helpers/take.h"

#include <catch2/catch.hpp>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <set>

using namespace attnc;
using Catch::Contains;

namespace {

/// The templates that a compiler compiled, by its log.
class Compilations {
public:
  /// `together`: how many compilations must have ended before one returns.
  explicit Compilations(size_t together = 0) : together(together) {}

  Compiler compiler() {
    return Compiler({.cacheMode = CompilerOptions::CacheMode::Off,
                     .log = [this](LogLevel, std::string_view line) { add(std::string(line)); }});
  }

  std::multiset<std::string> names() const {
    std::lock_guard lock(mutex);
    return found;
  }

private:
  void add(const std::string& line) {
    if (line.rfind("compiled ", 0) != 0) return;
    std::unique_lock lock(mutex);
    found.insert(line.substr(9, line.find(' ', 9) - 9));
    changed.notify_all();
    CHECK(changed.wait_for(lock, std::chrono::seconds(60), [&] { return found.size() >= together; }));
  }

  const size_t together;
  mutable std::mutex mutex;
  std::condition_variable changed;
  std::multiset<std::string> found;
};

const std::multiset<std::string> kForward = {"forward_sm80.cu", "block_mask.cu", "block_mask_columns.cu"};
const std::multiset<std::string> kBoth = {"forward_sm80.cu",   "block_mask.cu",    "block_mask_columns.cu",
                                          "backward_delta.cu", "backward_sm80.cu", "backward_finish_sm80.cu",
                                          "backward_large.cu"};

/// A training step over documents, whose mask has lists.
struct Documents {
  Mod mod = take(Mod::load(ATTNC_SOURCE_DIR "/dsl/mods/document.py"));
  test::Launch launch;

  Documents() {
    test::fillLaunch(launch, mod, {.kind = KernelKind::Backward, .arch = "sm_80", .headDim = 64, .headDimV = 64}, 4096);
  }
  Prepared prepared(const Compiler& compiler, bool later = false) const {
    return take(
        compiler.prepareTraining(mod, launch.operands, launch.outputs, launch.gradients, {.backwardLater = later}));
  }
  Status launchBackward(const Prepared& prepared, Stream stream = nullptr) const {
    void* const workspace = reinterpret_cast<void*>(1 << 20); // which nobody reads
    return prepared.launchBackward(launch.operands, launch.gradients, workspace, stream);
  }
};

} // namespace

TEST_CASE("all kernels of a preparation compile at once", "[prepare]") {
  const Documents documents;
  Compilations all(kBoth.size());
  const Prepared prepared = documents.prepared(all.compiler());
  CHECK(all.names() == kBoth);
  CHECK(prepared.backwardKernel());
}

TEST_CASE("a later backward kernel is compiled and loaded by its first launch, outside of graphs", "[prepare]") {
  const Documents documents;
  Compilations compilations(kForward.size());
  auto compiler = std::make_optional(compilations.compiler());
  const Prepared prepared = documents.prepared(*compiler, true);
  CHECK(compilations.names() == kForward);
  CHECK(!prepared.backwardKernel());
  const Stream captured = reinterpret_cast<Stream>(1);
  CHECK_THAT(refusalOf(documents.launchBackward(prepared, captured)).remedy, Contains("before it is captured"));
  CHECK(!prepared.backwardKernel());
  take(documents.launchBackward(prepared));
  CHECK(compilations.names() == kBoth);
  REQUIRE(prepared.backwardKernel());
  take(documents.launchBackward(prepared, captured));
  CHECK(prepared.workspaceBytes() == documents.prepared(*compiler).workspaceBytes());

  const Prepared second = documents.prepared(*compiler, true);
  CHECK(second.backwardKernel()); // it was loaded before
  take(documents.launchBackward(second, captured));

  compiler = compilations.compiler();
  const Prepared orphan = documents.prepared(*compiler, true);
  compiler.reset();
  CHECK_THAT(refusalOf(documents.launchBackward(orphan)).message, Contains("the compiler was destroyed"));
  take(documents.launchBackward(prepared));
}

TEST_CASE("what another thread compiled meanwhile is loaded by the first backward launch", "[prepare]") {
  const Documents documents;
  Compilations all;
  const Compiler compiler = all.compiler();
  const Prepared prepared = documents.prepared(compiler, true);
  take(compiler.compile(*prepared.preparation().backward));
  CHECK(all.names() == kBoth);
  take(documents.launchBackward(prepared));
  CHECK(all.names() == kBoth);
}

TEST_CASE("a launch that checks refuses counters that a stopped launch left", "[prepare]") {
  const Mod mod = take(Mod::parse("q_idx >= kv_idx"));
  test::Launch launch;
  test::fillLaunch(launch, mod, {.kind = KernelKind::Decode, .arch = "sm_80", .headDim = 64, .headDimV = 64});
  Compilations compilations;
  const Compiler compiler = compilations.compiler();
  void *const zeros = reinterpret_cast<void*>(1 << 20), *const ones = reinterpret_cast<void*>(1ull << 40);
  for (bool checks : {true, false}) {
    const Prepared prepared =
        take(compiler.prepare(mod, launch.operands, launch.outputs, {.decode = true, .check = checks}));
    REQUIRE(prepared.workspaceBytes() > 0);
    take(prepared.launch(launch.operands, launch.outputs, zeros, nullptr));
    const Status launched = prepared.launch(launch.operands, launch.outputs, ones, nullptr);
    CHECK(bool(launched) == !checks);
    if (checks) CHECK_THAT(launched.error().message, Contains("the counters of the workspace are not 0"));
  }
}
