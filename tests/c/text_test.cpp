// Bytes of callers and texts in strings that come out.
#include "calls.h"
#include "support/readable.h"

using namespace ctest;

namespace {

const std::string kHostile = "x\x1b[2J\x07\n\xe2\x80\xa8\xe2\x80\xae\xc2\x9b\xff\xc0\x80\x7f";

void checkLastError() {
  const std::string message = attnc_last_error(), remedy = attnc_last_remedy();
  INFO(message);
  REQUIRE_FALSE(message.empty());
  CHECK(attnc::readableLines(message) == message);
  CHECK(attnc::readableLines(remedy) == remedy);
  for (size_t i = 0; i < attnc_last_diagnostic_count(); ++i) {
    auto found = told<attnc_diagnostic>(attnc_last_diagnostic, i);
    for (const std::string text : {found.file, found.message, found.hint}) CHECK(attnc::readable(text) == text);
    CHECK(attnc::readableLines(found.rendered) == found.rendered);
  }
}

} // namespace

TEST_CASE("errors are UTF-8 without control characters, whatever the caller gave", "[c]") {
  auto options = sized<attnc_parse_options>();
  options.name = kHostile.c_str();
  const attnc_define define = {kHostile.c_str(), kHostile.c_str()};
  attnc_mod* mod = nullptr;
  const std::string text = "score + unknown # " + kHostile;
  CHECK(attnc_mod_parse(text.data(), text.size(), &options, &mod) == ATTNC_ERROR_MOD);
  checkLastError();
  options.defines = &define;
  options.define_count = 1;
  CHECK(attnc_mod_parse("score", ATTNC_WHOLE, &options, &mod) == ATTNC_ERROR_MOD);
  checkLastError();
  CHECK(attnc_mod_load(("/nowhere/" + kHostile).c_str(), nullptr, &mod) == ATTNC_ERROR_ENVIRONMENT);
  checkLastError();
  CHECK(attnc_mod_parse_ir(kHostile.data(), kHostile.size(), kHostile.c_str(), &mod) == ATTNC_ERROR_MOD);
  checkLastError();
  CHECK(attnc_mod_parse_ir("output kv_begin(b, h, q_idx) -> 0", ATTNC_WHOLE, kHostile.c_str(), &mod) ==
        ATTNC_ERROR_MOD);
  checkLastError();
  TAKE(attnc_mod_parse_ir("source \"a\\x1b[2J\\x0a\"\noutput mask(b, h, q_idx, kv_idx) -> true", ATTNC_WHOLE, nullptr,
                          &mod));
  const Owned<attnc_mod> read(mod);
  auto info = told<attnc_mod_info>(attnc_mod_get_info, mod);
  CHECK(std::string(info.name) == "a\\x1b[2J\\x0a");
  const Owned<attnc_compiler> compiler = ctest::compiler();
  const Owned<attnc_mod> parsed = parse("n: int\nassert n > 0, 'x\\x1b[2J\\n'\nq_idx >= kv_idx + n");
  auto kernel = sized<attnc_kernel_options>();
  kernel.arch = kernel.tile = kHostile.c_str();
  attnc_source* source = nullptr;
  CHECK(sourceOf(compiler.get(), parsed.get(), &kernel, &source) != ATTNC_OK);
  checkLastError();
}

TEST_CASE("an IR text without anything is refused, and sizes below 0 are", "[c]") {
  attnc_mod* mod = nullptr;
  for (const std::string text : {"", " \n\t\n"})
    REFUSED(ATTNC_ERROR_MOD, "the text is empty", attnc_mod_parse_ir(text.data(), text.size(), nullptr, &mod));
  const Owned<attnc_compiler> compiler = ctest::compiler();
  const Owned<attnc_mod> parsed = parse("q_idx >= kv_idx");
  attnc_source* source = nullptr;
  for (int32_t attnc_kernel_options::*member :
       {&attnc_kernel_options::head_dim, &attnc_kernel_options::head_dim_v, &attnc_kernel_options::mask_q_block,
        &attnc_kernel_options::mask_kv_block, &attnc_kernel_options::packed_rows, &attnc_kernel_options::page_size}) {
    auto options = sized<attnc_kernel_options>();
    options.arch = "sm_80";
    options.*member = -8;
    REFUSED(ATTNC_ERROR_ARGUMENT, " is -8", sourceOf(compiler.get(), parsed.get(), &options, &source));
  }
}
