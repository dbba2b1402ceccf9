// Callers may have small stacks: what recurses runs on a stack of attnc's own.
#include "calls.h"

#include <functional>
#include <pthread.h>

using namespace ctest;

namespace {

#ifdef __SANITIZE_ADDRESS__
constexpr size_t kSmallStack = 256 << 10; // frames with red zones take several times as much
#else
constexpr size_t kSmallStack = 64 << 10;
#endif

/// Runs on a thread with so much stack.
void onStackOf(size_t bytes, const std::function<void()>& work) {
  pthread_attr_t attributes;
  REQUIRE(pthread_attr_init(&attributes) == 0);
  REQUIRE(pthread_attr_setstacksize(&attributes, bytes) == 0);
  pthread_t thread;
  const auto run = [](void* argument) -> void* {
    (*static_cast<const std::function<void()>*>(argument))();
    return nullptr;
  };
  REQUIRE(pthread_create(&thread, &attributes, run, const_cast<std::function<void()>*>(&work)) == 0);
  pthread_attr_destroy(&attributes);
  REQUIRE(pthread_join(thread, nullptr) == 0);
}

std::string repeat(const std::string& piece, int count) {
  std::string result;
  for (int i = 0; i < count; ++i) result += piece;
  return result;
}

/// Texts that reach the limits on nesting and evaluation, from within and from beyond.
std::vector<std::string> deepTexts() {
  std::vector<std::string> texts;
  for (int depth : {190, 250}) {
    texts.push_back(repeat("(", depth) + "q_idx >= kv_idx" + repeat(")", depth));
    texts.push_back(repeat("~", depth) + "(q_idx >= kv_idx)");
    texts.push_back("score + " + repeat("[", depth) + "1" + repeat("][0]", depth));
    texts.push_back("score + " + repeat("abs(", depth) + "1" + repeat(")", depth));
  }
  for (int depth : {44, 60}) {
    std::string classes = "class A:\n  def __init__(self, n):\n    self.x = [A(n - 1) for _ in range(1)] if n else 1\n";
    texts.push_back(classes + "a = A(" + std::to_string(depth) + ")\nscore + (1 if a else 2)");
    texts.push_back("f = lambda n: [f(n - 1) for _ in range(1)][0] + 1 if n else 0\nscore + f(" +
                    std::to_string(depth) + ")");
    std::string blocks = "def score_mod(score, b, h, q_idx, kv_idx):\n";
    for (int i = 1; i < depth; ++i) blocks += repeat(" ", i) + "if True:\n";
    texts.push_back(blocks + repeat(" ", depth) + "return score\n");
  }
  texts.push_back("x = ()\nfor i in range(150): x = (x,)\nscore + (1 if x == x else 2)");
  texts.push_back("score" + repeat(" + score * q_idx", 500));
  texts.push_back("def score_mod(score, b, h, q_idx, kv_idx):\n  for i in range(2000): score = score * score + i\n  "
                  "return score\n");
  return texts;
}

} // namespace

TEST_CASE("threads with small stacks read mods and write kernels", "[c]") {
  const Owned<attnc_compiler> compiler = ctest::compiler();
  int accepted = 0, refusedTexts = 0;
  for (const std::string& text : deepTexts()) {
    INFO(text.substr(0, 200));
    std::string error, again, gradients;
    onStackOf(kSmallStack, [&] {
      attnc_mod *mod = nullptr, *read = nullptr;
      if (attnc_mod_parse(text.data(), text.size(), nullptr, &mod) != ATTNC_OK) {
        error = attnc_last_error(); // of this thread
        return;
      }
      const char* ir = attnc_mod_ir(mod);
      if (!attnc_mod_ast(mod) || attnc_mod_parse_ir(ir, ATTNC_WHOLE, nullptr, &read) != ATTNC_OK)
        again = attnc_last_error();
      for (const char* arch : {"sm_80", "sm_90a"})
        for (const auto kind : {ATTNC_KERNEL_FORWARD, ATTNC_KERNEL_BACKWARD}) {
          auto options = sized<attnc_kernel_options>();
          options.arch = arch;
          options.kind = kind;
          options.head_dim = 64;
          attnc_source* source = nullptr;
          if (sourceOf(compiler.get(), read, &options, &source) != ATTNC_OK) gradients = attnc_last_error();
          attnc_source_destroy(source);
        }
      attnc_mod_destroy(read);
      attnc_mod_destroy(mod);
    });
    CHECK(again.empty());
    CHECK(gradients.empty());
    (error.empty() ? accepted : refusedTexts) += 1;
    if (!error.empty()) CHECK_THAT(error, Catch::Contains("<mod>:"));
  }
  CHECK(accepted >= 10);
  CHECK(refusedTexts > 5);
}

TEST_CASE("threads with small stacks prove, prepare, compile and build block masks", "[c]") {
  const Owned<attnc_compiler> compiler = ctest::compiler();
  const Owned<attnc_mod> mod =
      parse("def mask_mod(b, h, q_idx, kv_idx):\n  x = q_idx\n  for i in range(1000): x = x * 3 + i\n"
            "  return (x >= kv_idx) & (q_idx >= kv_idx)\n");
  const Case c;
  std::string error;
  auto claim = sized<attnc_claim>();
  claim.property = "kv_idx <= q_idx", claim.assume = "KV_LEN <= 7", claim.seconds = 0.1;
  attnc_status proved = ATTNC_OK, settled = ATTNC_OK, explained = ATTNC_OK, compiled = ATTNC_OK, prepared = ATTNC_OK;
  onStackOf(kSmallStack, [&] {
    const char* json = nullptr;
    proved = attnc_prove(mod.get(), &claim, &json);
    attnc_preparation* preparation = nullptr;
    settled = attnc_settle(compiler.get(), mod.get(), &c.operands, &c.outputs, &c.options, &preparation);
    explained = attnc_explain(compiler.get(), preparation, nullptr, 0, &json);
    attnc_preparation_destroy(preparation);
    attnc_prepared* made = nullptr;
    prepared = attnc_prepare(compiler.get(), mod.get(), &c.operands, &c.outputs, &c.options, &made);
    if (prepared != ATTNC_OK) error = attnc_last_error();
    attnc_prepared_destroy(made);
    auto options = sized<attnc_kernel_options>();
    options.arch = "sm_80";
    attnc_compiled* code = nullptr;
    compiled = compile(compiler.get(), mod.get(), &options, &code);
    attnc_compiled_destroy(code);
  });
  INFO(error);
  CHECK(proved == ATTNC_OK);
  CHECK(settled == ATTNC_OK);
  CHECK((prepared == ATTNC_OK || prepared == ATTNC_ERROR_ENVIRONMENT)); // without a GPU it ends behind the compilation
  CHECK((explained == ATTNC_OK || explained == ATTNC_ERROR_ENVIRONMENT));
  CHECK((compiled == ATTNC_OK || compiled == ATTNC_ERROR_ENVIRONMENT));
}
