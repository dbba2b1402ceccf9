// Mods through the C interface: text in, what is known of them out.
#include "calls.h"
#include "header.h"

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

using namespace ctest;

TEST_CASE("C compiles the headers and calls the functions", "[c]") { CHECK(attnc_test_from_c() == 1); }

TEST_CASE("the library says its version", "[c]") {
  CHECK(attnc_version() == ATTNC_VERSION_NUMBER);
  CHECK(std::string(attnc_version_text()) == ATTNC_VERSION);
}

TEST_CASE("a mod says what it has and captures", "[c]") {
  const Owned<attnc_mod> mod = parse("slopes: f32[H, 3]\nwindow: int\ncap: float\nis_on: bool\n"
                                     "def score_mod(score, b, h, q_idx, kv_idx):\n"
                                     "    return torch.where(is_on, score + slopes[h, 0] * window, cap)\n");
  auto info = told<attnc_mod_info>(attnc_mod_get_info, mod.get());
  CHECK(info.has_score_mod == 1);
  CHECK(info.has_mask_mod == 0);
  CHECK(std::string(info.name) == "<mod>");
  CHECK(std::strlen(info.hash) == 64);
  REQUIRE(info.capture_count == 4);

  auto captured = told<attnc_capture_info>(attnc_mod_get_capture, mod.get(), 0);
  CHECK(std::string(captured.name) == "slopes");
  CHECK(captured.kind == ATTNC_CAPTURE_TENSOR);
  CHECK(captured.dtype == ATTNC_DTYPE_F32);
  REQUIRE(captured.rank == 2);
  CHECK(std::string(captured.extent[0]) == "H");
  CHECK(std::string(captured.extent[1]) == "3");
  for (auto [index, name, kind] : {std::tuple(1, "is_on", ATTNC_CAPTURE_BOOL), // in the order of their use
                                   {2, "window", ATTNC_CAPTURE_INT},
                                   {3, "cap", ATTNC_CAPTURE_FLOAT}}) {
    TAKE(attnc_mod_get_capture(mod.get(), size_t(index), &captured));
    CHECK(std::string(captured.name) == name);
    CHECK(captured.kind == kind);
    CHECK(captured.dtype == ATTNC_DTYPE_DEFAULT);
    CHECK(captured.rank == 0);
  }
  REFUSED(ATTNC_ERROR_ARGUMENT, "index is 4, the mod has 4 captures", attnc_mod_get_capture(mod.get(), 4, &captured));
}

TEST_CASE("what is wrong with a mod's text has a line and a column", "[c]") {
  auto options = sized<attnc_parse_options>();
  options.name = "soft.py";
  attnc_mod* mod = nullptr;
  REQUIRE(attnc_mod_parse("def score_mod(score, b, h, q_idx, kv_idx):\n    return score * capp\n", ATTNC_WHOLE,
                          &options, &mod) == ATTNC_ERROR_MOD);
  CHECK(mod == nullptr);
  CHECK_THAT(attnc_last_error(), Catch::Contains("soft.py:2:20: error: "));
  REQUIRE(attnc_last_diagnostic_count() == 1);
  auto found = sized<attnc_diagnostic>();
  REQUIRE(attnc_last_diagnostic(0, &found) == ATTNC_OK);
  CHECK(std::string(found.id) == "undeclared-scalar");
  CHECK(std::string(found.file) == "soft.py");
  CHECK(found.line == 2);
  CHECK(found.column == 20);
  CHECK_THAT(found.message, Catch::Contains("capp"));
  CHECK(found.hint != nullptr);
  CHECK_THAT(found.rendered, Catch::Contains("return score * capp"));

  // A question that is wrong does not take the place of the answer.
  CHECK(attnc_last_diagnostic(1, &found) == ATTNC_ERROR_ARGUMENT);
  CHECK(attnc_last_diagnostic(0, nullptr) == ATTNC_ERROR_ARGUMENT);
  found.struct_size = 8;
  CHECK(attnc_last_diagnostic(0, &found) == ATTNC_ERROR_ARGUMENT);
  CHECK(attnc_last_diagnostic_count() == 1);

  // Nor does success; the next failure does.
  parse("score * 0.5");
  CHECK(attnc_last_diagnostic_count() == 1);
  REFUSED(ATTNC_ERROR_ARGUMENT, "mod is NULL", attnc_mod_get_info(nullptr, nullptr));
  CHECK(attnc_last_diagnostic_count() == 0);
  CHECK(std::string(attnc_last_remedy()).empty());
}

TEST_CASE("a mod has its warnings", "[c]") {
  const Owned<attnc_mod> mod =
      parse("slopes: f32[H]\ndef mask_mod(b, h, q_idx, kv_idx):\n    return q_idx < 4 & kv_idx < 4\n");
  auto info = told<attnc_mod_info>(attnc_mod_get_info, mod.get());
  REQUIRE(info.warning_count == 2);
  auto found = told<attnc_diagnostic>(attnc_mod_get_warning, mod.get(), 0);
  CHECK(std::string(found.id) == "unused-capture");
  CHECK(found.line == 1);
  TAKE(attnc_mod_get_warning(mod.get(), 1, &found));
  CHECK(std::string(found.id) == "comparison-precedence");
  CHECK(found.line == 3);
  CHECK(found.column == 12);
  CHECK(std::string(found.hint) == "write `(q_idx < 4) & (kv_idx < 4)`");
  CHECK_THAT(found.rendered, Catch::Contains("3:12: warning: "));
  REFUSED(ATTNC_ERROR_ARGUMENT, "index is 2, there are 2", attnc_mod_get_warning(mod.get(), 2, &found));
  REFUSED(ATTNC_ERROR_ARGUMENT, "mod is NULL", attnc_mod_get_warning(nullptr, 0, &found));
  REFUSED(ATTNC_ERROR_ARGUMENT, "warning is NULL", attnc_mod_get_warning(mod.get(), 0, nullptr));
}

TEST_CASE("a text may be part of a longer one, and has constants to define", "[c]") {
  const char text[] = "WINDOW = 4\nmask_mod = lambda b, h, q_idx, kv_idx: q_idx - kv_idx < WINDOW\n)))";
  const attnc_define defines[] = {{"WINDOW", "7"}};
  auto options = sized<attnc_parse_options>();
  options.defines = defines;
  options.define_count = 1;
  attnc_mod* mod = nullptr;
  TAKE(attnc_mod_parse(text, sizeof text - 4, &options, &mod));
  const Owned<attnc_mod> held(mod);
  CHECK_THAT(attnc_mod_ir(mod), Catch::Contains("-6")); // q_idx - 6 <= kv_idx
  CHECK(attnc_mod_parse(text, ATTNC_WHOLE, &options, &mod) == ATTNC_ERROR_MOD);
}

TEST_CASE("IR text is read back", "[c]") {
  const Owned<attnc_mod> mod = parse(kAlibi);
  CHECK_THAT(attnc_mod_ast(mod.get()), Catch::Contains("score_mod"));
  CHECK(attnc_mod_ir(mod.get()) == attnc_mod_ir(mod.get())); // the same address
  attnc_mod* again = nullptr;
  TAKE(attnc_mod_parse_ir(attnc_mod_ir(mod.get()), ATTNC_WHOLE, nullptr, &again));
  const Owned<attnc_mod> held(again);
  auto first = sized<attnc_mod_info>(), second = first;
  TAKE(attnc_mod_get_info(mod.get(), &first));
  TAKE(attnc_mod_get_info(again, &second));
  CHECK(std::string(first.hash) == second.hash);
  CHECK(std::string(attnc_mod_ast(again)).empty());
  REFUSED(ATTNC_ERROR_MOD, "mine.ir", attnc_mod_parse_ir("nonsense", ATTNC_WHOLE, "mine.ir", &again));
}

TEST_CASE("files, the identity and pinned mods", "[c]") {
  const auto path = std::filesystem::temp_directory_path() / ("attnc_c_" + std::to_string(std::rand()) + ".py");
  std::ofstream(path) << "mask_mod = lambda b, h, q_idx, kv_idx: q_idx < KV_LEN\n";
  attnc_mod* mod = nullptr;
  TAKE(attnc_mod_load(path.c_str(), nullptr, &mod));
  std::filesystem::remove(path);
  const Owned<attnc_mod> held(mod);
  auto info = told<attnc_mod_info>(attnc_mod_get_info, mod);
  CHECK(info.name == path.string());
  attnc_mod* other = nullptr;
  REFUSED(ATTNC_ERROR_ENVIRONMENT, "/no/such.py", attnc_mod_load("/no/such.py", nullptr, &other));

  const attnc_pin pins[] = {{"KV_LEN", 12}};
  TAKE(attnc_mod_pinned(mod, pins, 1, &other));
  const Owned<attnc_mod> pinned(other);
  CHECK_THAT(attnc_mod_ir(other), Catch::Contains("le i32 %q_idx, 11"));
  const attnc_pin unknown[] = {{"length", 12}};
  REFUSED(ATTNC_ERROR_ENVIRONMENT, "length", attnc_mod_pinned(mod, unknown, 1, &other));

  const attnc_mod* both[] = {mod, pinned.get()};
  TAKE(attnc_mod_choice(both, 2, "which: i32[B]", &other));
  const Owned<attnc_mod> choice(other);
  const auto which = told<attnc_capture_info>(attnc_mod_get_capture, other, size_t(0));
  CHECK(std::string(which.name) == "which");
  CHECK(which.choices == 2);
  REFUSED(ATTNC_ERROR_MOD, "one int for each sequence", attnc_mod_choice(both, 2, "which: int", &other));
  REFUSED(ATTNC_ERROR_ENVIRONMENT, "no mods", attnc_mod_choice(nullptr, 0, "which: i32[B]", &other));

  TAKE(attnc_mod_identity(&other));
  const Owned<attnc_mod> identity(other);
  TAKE(attnc_mod_get_info(other, &info));
  CHECK(info.has_score_mod + info.has_mask_mod + info.has_prob_mod == 0);
  const Owned<attnc_mod> halves = parse("def prob_mod(prob, b, h, q_idx, kv_idx): return prob / 2");
  TAKE(attnc_mod_get_info(halves.get(), &info));
  CHECK((info.has_score_mod + info.has_mask_mod == 0 && info.has_prob_mod == 1));
  CHECK(info.reduction_count == 0);
  const Owned<attnc_mod> sums = parse("def weight(prob, score, b, h, q_idx, kv_idx): return prob\n"
                                      "sums: f32[B, H, KV_LEN] = reduce_sum(weight)\n"
                                      "top: f32[B, H] = reduce_max(weight)\n");
  TAKE(attnc_mod_get_info(sums.get(), &info));
  REQUIRE(info.reduction_count == 2);
  const auto sum = told<attnc_capture_info>(attnc_mod_get_reduction, sums.get(), size_t(1));
  CHECK((sum.name == std::string("sums") && sum.dtype == ATTNC_DTYPE_F32 && sum.rank == 3 && sum.is_sum == 1));
  CHECK(sum.extent[2] == std::string("KV_LEN"));
  CHECK(told<attnc_capture_info>(attnc_mod_get_reduction, sums.get(), size_t(0)).is_sum == 0);
  auto past = sized<attnc_capture_info>();
  REFUSED(ATTNC_ERROR_ARGUMENT, "index is 2, the mod has 2 outputs", attnc_mod_get_reduction(sums.get(), 2, &past));
}
