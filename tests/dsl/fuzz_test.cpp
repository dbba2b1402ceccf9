// No text may crash, hang or exhaust memory: mutated mods and token soup give a verified module or located diagnostics.
#include "dsl/limits.h"
#include "dsl/tracing.h"
#include "ir/verifier.h"

#include <catch2/catch.hpp>

#include <ctime>
#include <filesystem>

using namespace attnc;
using namespace attnc::testing;

namespace {

std::vector<std::string> corpus() {
  std::vector<std::string> texts;
  for (const char* folder : {"/dsl/mods", "/tests/dsl/features"})
    for (auto& entry : std::filesystem::directory_iterator(std::string(ATTNC_SOURCE_DIR) + folder))
      if (entry.path().extension() == ".py") texts.push_back(readFile(entry.path()));
  std::sort(texts.begin(), texts.end());
  return texts;
}

const char* const kTokens[] = {
    "score",
    "b",
    "h",
    "q_idx",
    "kv_idx",
    "torch",
    "torch.where",
    "math",
    "float",
    "range",
    "len",
    "max",
    "sum",
    "any",
    "def f(x):",
    "def mask_mod(b, h, q, k):",
    "return ",
    "lambda x: ",
    "if ",
    "else",
    "elif ",
    "for i in ",
    "while ",
    "not ",
    " and ",
    " or ",
    " in ",
    " is ",
    "import torch",
    "from math import ",
    "None",
    "True",
    "False",
    "inf",
    "x",
    "x",
    "y",
    "f",
    "(",
    ")",
    "[",
    "]",
    ",",
    ":",
    ".",
    "=",
    "+=",
    "**",
    "//",
    "%",
    "<<",
    ">>",
    "&",
    "|",
    "^",
    "~",
    "==",
    "<=",
    "<",
    "-",
    "+",
    "*",
    "@",
    "...",
    "\n",
    "\n ",
    "\n  ",
    "\n\t",
    ";",
    "\\\n",
    "#",
    "\"",
    "'''",
    "0",
    "1",
    "-1",
    "2.5",
    "1e308",
    "0xff",
    "9223372036854775807",
    "t: f32[H, 4]\n",
    "n: int\n",
    "t[h]",
    "w: bf16[Q_LEN, 3, 20]\n",
    "w[q_idx]",
    "(w * 2)",
    ".sum()",
    ".mean(0)",
    "t",
    "n",
    "H",
    ".sum(-1)",
    ".to(torch.int32)",
    ".shape",
    "[::2]",
    "*x",
    "x=",
    "pass",
    "and_masks",
    "partial",
    "yield ",
    "class A",
    "class A(f):\n  def __init__(self, x): self.x = x\n  def __call__(self, b, h, q, k): return q > self.x\n",
    "try:\n  ",
    "\nexcept f as x:\n  ",
    "\nfinally: ",
    "with x as y: ",
    "@f\n",
    "@property\n",
    "super().__init__()",
    "self.x",
    ".x = ",
    "A(3)",
    "{x: y, **x}",
    "{'a': 1}",
    "['a']",
    "(x := 1)",
    "global x\n",
    "nonlocal x\n",
    "del x\n",
    "async ",
    "await x",
    "match x:\n case 1: pass\n",
    "*, ",
    "**x",
    "f'{x}'",
    "import rare\n",
    "rare.x(1)",
    ".append(1)",
    ".zero_()",
    "x[0] = 1\n",
    "raise x\n",
    "\xc3\xa9",
    "\xff",
    "{",
    "}",
    "assert ",
    "assert KV_LEN > n, 'x'\n",
    "if H < n: raise f('x')\n",
    "assert t.shape == (H, 4)\n",
    "math.prod(",
    "raise ",
    "break",
    "continue",
    " if ",
    " else "};

class Fuzzer {
public:
  explicit Fuzzer(unsigned seed) : random(seed) {}

  size_t below(size_t bound) { return bound ? random() % bound : 0; }

  std::string mutate(std::string text, const std::vector<std::string>& texts) {
    for (size_t edits = 1 + below(4); edits > 0; --edits) {
      size_t at = below(text.size()), length = below(30);
      switch (below(8)) {
      case 0: text.erase(at, length); break;
      case 1: text.resize(at); break;
      case 2: text.insert(at, text.substr(below(text.size()), length)); break;
      case 3:
        if (!text.empty()) text[at] = char(random());
        break;
      case 4: {
        const std::string& other = texts[below(texts.size())];
        text = text.substr(0, at) + other.substr(below(other.size()));
        break;
      }
      default: text.insert(at, kTokens[below(std::size(kTokens))]); break;
      }
    }
    return text;
  }

  std::string soup() {
    std::string text;
    for (size_t count = below(60); count > 0; --count) {
      text += kTokens[below(std::size(kTokens))];
      if (below(3) == 0) text += ' ';
    }
    return text;
  }

private:
  std::mt19937 random;
};

/// Traces a text and checks what comes out; whether it was a mod.
bool survives(const std::string& text, const dsl::FrontendOptions& options = {}) {
  INFO(text);
  std::clock_t begin = std::clock(); // of this process: other processes do not count
  auto module = dsl::trace(text, options);
  double seconds = double(std::clock() - begin) / CLOCKS_PER_SEC;
  CHECK(seconds < 5); // an honest bound of a second, and room for a slow machine
  if (module) {
    auto wrong = ir::verify(*module);
    CHECK(wrong.value_or("") == "");
    CHECK(module->size() <= dsl::kMaxNodes + 16);
    return true;
  }
  CHECK(module.error().blame == Blame::Mod);
  CHECK_FALSE(module.error().diagnostics.empty());
  for (const Diagnostic& found : module.error().diagnostics) {
    CHECK(found.line >= 1);
    CHECK(found.column >= 1);
    CHECK_FALSE(found.rendered.empty());
  }
  return false;
}

} // namespace

TEST_CASE("mutated mods give a module or diagnostics", "[dsl][fuzz]") {
  std::vector<std::string> texts = corpus();
  Fuzzer fuzzer(1);
  size_t mods = 0;
  for (int i = 0; i < 3000; ++i) mods += survives(fuzzer.mutate(texts[fuzzer.below(texts.size())], texts));
  CHECK(mods > 100); // the mutations are not all of them fatal
  CHECK(mods < 2900);
}

TEST_CASE("every truncation of a mod gives a module or diagnostics", "[dsl][fuzz]") {
  for (const std::string& text : corpus())
    for (size_t size = 0; size < text.size(); size += 7) survives(text.substr(0, size));
}

TEST_CASE("token soup gives a module or diagnostics", "[dsl][fuzz]") {
  Fuzzer fuzzer(2);
  for (int i = 0; i < 3000; ++i) survives(fuzzer.soup());
}
