// The compiler through the C interface, without a GPU: what is settled, text, machine code, the log.
#include "calls.h"
#include "support/readable.h"

#include <atomic>
#include <cstdlib>
#include <thread>
#include <vector>

using namespace ctest;

TEST_CASE("what would be chosen is told without a GPU", "[c]") {
  Case c;
  Owned<attnc_preparation> preparation;
  TAKE(c.settle(parse(kDocument).get(), &preparation));
  auto info = told<attnc_preparation_info>(attnc_preparation_get_info, preparation.get());
  auto plan = told<attnc_plan_info>(attnc_plan_get_info, attnc_preparation_get_plan(preparation.get(), 0));
  CHECK(std::string(plan.passed_over).empty());
  CHECK(plan.kv_loop == ATTNC_KV_LOOP_BLOCK_MASK);
  CHECK(info.builds_block_mask == 1);
  CHECK(info.block_mask.batch == 2);
  CHECK(info.block_mask.heads == 1);
  CHECK(info.is_training == 0);
  CHECK(info.problem.kv_heads == 2);
  CHECK(info.problem.kv_len == 3000);
  size_t lists = 0;
  TAKE(attnc_block_mask_storage_bytes(&info.block_mask, 0, &lists));
  CHECK(info.workspace_bytes == 256 + lists);
  CHECK_THAT(attnc_preparation_text(preparation.get()),
             Catch::Contains("forward: family sm90, sm_90a, bf16, head dim 64, of v 32; KV loop: lists of 128 x 128 "
                             "blocks, built in the workspace\n  tile: 128x128x8\n"));
  auto options = told<attnc_kernel_options>(optionsOf, preparation.get(), 0);
  CHECK(options.kind == ATTNC_KERNEL_FORWARD);
  CHECK(std::string(options.arch) == "sm_90a");
  CHECK(options.family == ATTNC_FAMILY_SM90);
  CHECK(options.head_dim_v == 32);
  CHECK(options.block_sparse == 1);
  CHECK(attnc_preparation_plan_count(preparation.get()) == 2); // and the kernel that builds the block mask
}

TEST_CASE("options reach what is settled", "[c]") {
  Case c;
  const attnc_pin pins[] = {{"KV_LEN", 3000}};
  c.options.pins = pins;
  c.options.pin_count = 1;
  c.options.no_block_mask = 1;
  c.options.family = ATTNC_FAMILY_SM80;
  c.options.offsets = ATTNC_OFFSETS_FROM_LENGTHS;
  c.outputs.row_max = &c.lse;
  const attnc_tensor lengths = tensor(ATTNC_DTYPE_I32, {2});
  c.operands.kv_lengths = &lengths;
  Owned<attnc_preparation> preparation;
  TAKE(c.settle(parse(kDocument).get(), &preparation));
  auto info = told<attnc_preparation_info>(attnc_preparation_get_info, preparation.get());
  CHECK(info.builds_block_mask == 0);
  auto options = told<attnc_kernel_options>(optionsOf, preparation.get(), 0);
  CHECK(options.family == ATTNC_FAMILY_SM80);
  REQUIRE(options.pin_count == 1);
  CHECK(std::string(options.pins[0].name) == "KV_LEN");
  CHECK(options.pins[0].value == 3000);
  CHECK(options.features == (ATTNC_FEATURE_LENGTHS | ATTNC_FEATURE_ROW_MAX));
  CHECK(options.offsets == ATTNC_OFFSETS_FROM_LENGTHS);
}

TEST_CASE("a tile of the backward kernel is asked for", "[c]") {
  Case c;
  c.options.backward_tile = "64x128x8";
  c.outputs.lse = &c.lse;
  const auto settled = [&] {
    return made<attnc_preparation>(attnc_settle_training, compiler().get(), parse("q_idx >= kv_idx").get(),
                                   &c.backwardOperands, &c.outputs, &c.gradients, &c.options);
  };
  const Owned<attnc_preparation> preparation = settled();
  auto info = told<attnc_plan_info>(
      attnc_plan_get_info,
      attnc_preparation_get_plan(preparation.get(), attnc_preparation_plan_count(preparation.get()) - 1));
  CHECK(std::string(info.tile) == "64x128x8");
  CHECK(std::string(info.tuned_by).empty());
  CHECK_THAT(attnc_preparation_text(preparation.get()), Catch::Contains("tile: 64x128x8\n"));
  auto options = told<attnc_kernel_options>(lastOptionsOf, preparation.get());
  CHECK(std::string(options.tile) == "64x128x8");
}

TEST_CASE("a tile is asked for, and boxes are not", "[c]") {
  Case c;
  c.options.tile = "192x96x12";
  Owned<attnc_preparation> preparation;
  TAKE(c.settle(parse("q_idx >= kv_idx").get(), &preparation));
  auto options = told<attnc_kernel_options>(optionsOf, preparation.get(), 0);
  CHECK(std::string(options.tile) == "192x96x12");
  CHECK(options.no_boxes == 0);
  CHECK_THAT(attnc_preparation_text(preparation.get()), Catch::Contains("tile: 192x96x12\n"));
  auto info = told<attnc_plan_info>(attnc_plan_get_info, attnc_preparation_get_plan(preparation.get(), 0));
  CHECK(std::string(info.tile) == "192x96x12");
  CHECK(std::string(info.tuned_by).empty());
  c.options.tile = "7x7";
  REFUSED(ATTNC_ERROR_ENVIRONMENT, "has no tile `7x7`", c.settle(parse("q_idx >= kv_idx").get()));

  const Owned<attnc_mod> image = parse("image = grid(20, 50)\n"
                                       "def mask_mod(b, h, q_idx, kv_idx):\n"
                                       "    q, k = image.coords(q_idx), image.coords(kv_idx)\n"
                                       "    return (abs(q[0] - k[0]) <= 2) & (abs(q[1] - k[1]) <= 2)\n");
  auto asked = sized<attnc_kernel_options>();
  asked.arch = "sm_90a";
  asked.head_dim = 64;
  const auto templateOf = [&] {
    const auto source = made<attnc_source>(sourceOf, compiler().get(), image.get(), &asked);
    auto stage = told<attnc_source_stage>(attnc_source_get_stage, source.get(), 0);
    return std::string(stage.template_name);
  };
  CHECK(templateOf() == "forward_grid_sm90.cu");
  asked.no_boxes = 1;
  CHECK(templateOf() == "forward_sm90.cu");
  asked.no_boxes = 2;
  attnc_source* refused = nullptr;
  REFUSED(ATTNC_ERROR_ARGUMENT, "no_boxes", sourceOf(compiler().get(), image.get(), &asked, &refused));
  asked.no_boxes = 0;
  asked.features = 1 << 2 | ATTNC_FEATURE_LENGTHS; // pages, which page_size asks for
  REFUSED(ATTNC_ERROR_ARGUMENT, "features has bits 0x4", sourceOf(compiler().get(), image.get(), &asked, &refused));
  asked.features = 0;
  asked.low_rank_error = 2;
  REFUSED(ATTNC_ERROR_ENVIRONMENT, "lowRankError is 2", sourceOf(compiler().get(), image.get(), &asked, &refused));
}

TEST_CASE("C programs say how far a low-rank term may be off", "[c]") {
  const Owned<attnc_mod> term = parse("u: f32[Q_LEN, 64]\nw: f32[KV_LEN, 64]\nscore + u[q_idx] @ w[kv_idx]");
  Case c;
  const auto error = [&](float allowed) {
    c.options.low_rank_error = allowed;
    Owned<attnc_preparation> preparation;
    TAKE(c.settle(term.get(), &preparation));
    auto options = told<attnc_kernel_options>(optionsOf, preparation.get(), 0);
    return options.low_rank_error;
  };
  CHECK(error(0) == 0);
  CHECK(error(0.01f) == 0.01f);
  c.options.check = 2;
  REFUSED(ATTNC_ERROR_ARGUMENT, "options.check is 2", c.settle(term.get()));
}

TEST_CASE("a cache in pages, new rows and scales reach what is settled", "[c]") {
  Case c;
  c.q = tensor(ATTNC_DTYPE_BF16, {2, 8, 1, 64});
  c.out = tensor(ATTNC_DTYPE_BF16, {2, 8, 1, 32});
  c.k = tensor(ATTNC_DTYPE_BF16, {90, 2, 16, 64});
  c.v = tensor(ATTNC_DTYPE_BF16, {90, 2, 16, 32});
  const attnc_tensor lengths = tensor(ATTNC_DTYPE_I32, {2}), table = tensor(ATTNC_DTYPE_I32, {2, 40}),
                     newK = tensor(ATTNC_DTYPE_BF16, {2, 2, 1, 64}), newV = tensor(ATTNC_DTYPE_BF16, {2, 2, 1, 32}),
                     scales = tensor(ATTNC_DTYPE_F32, {2});
  c.operands.kv_lengths = &lengths;
  c.operands.page_table = &table;
  const auto settled = [&] {
    Owned<attnc_preparation> preparation;
    TAKE(c.settle(parse("q_idx >= kv_idx").get(), &preparation));
    return preparation;
  };
  const auto optionsOf = [&](const Owned<attnc_preparation>& preparation) {
    auto options = told<attnc_kernel_options>(ctest::optionsOf, preparation.get(), 0);
    return options;
  };
  SECTION("pages and new rows") {
    c.operands.new_k = &newK;
    c.operands.new_v = &newV;
    const Owned<attnc_preparation> preparation = settled();
    const attnc_kernel_options options = optionsOf(preparation);
    CHECK(options.kind == ATTNC_KERNEL_DECODE);
    CHECK(options.packed_rows == 16);
    CHECK(options.page_size == 16);
    CHECK((options.features & ATTNC_FEATURE_APPENDS) != 0);
    auto info = told<attnc_preparation_info>(attnc_preparation_get_info, preparation.get());
    CHECK(info.problem.kv_len == 640);
    CHECK_THAT(info.why_kind, Catch::Contains("K and V are read once"));
    CHECK_THAT(attnc_preparation_text(preparation.get()), Catch::Contains("decode: family sm90"));
  }
  SECTION("fp8") {
    c.k.dtype = c.v.dtype = ATTNC_DTYPE_E4M3;
    c.operands.k_scales = c.operands.v_scales = &scales;
    CHECK(optionsOf(settled()).features == (ATTNC_FEATURE_FP8_KV | ATTNC_FEATURE_LENGTHS));
  }
  SECTION("no decode kernel") {
    c.options.decode = ATTNC_DECODE_NEVER;
    CHECK(optionsOf(settled()).kind == ATTNC_KERNEL_FORWARD);
  }
  SECTION("scales of what is not fp8") {
    c.operands.v_scales = &table;
    REFUSED(ATTNC_ERROR_ENVIRONMENT, "v_scales is given", c.settle(parse("score").get()));
  }
}

TEST_CASE("a ragged batch reaches what is settled", "[c]") {
  Case c;
  c.q = tensor(ATTNC_DTYPE_BF16, {1, 8, 1000, 64});
  c.out = tensor(ATTNC_DTYPE_BF16, {1, 8, 1000, 32});
  c.k = tensor(ATTNC_DTYPE_BF16, {1, 2, 3000, 64});
  c.v = tensor(ATTNC_DTYPE_BF16, {1, 2, 3000, 32});
  const attnc_tensor starts = tensor(ATTNC_DTYPE_I32, {5});
  c.operands.cu_seqlens_q = &starts;
  c.operands.cu_seqlens_kv = &starts;
  c.operands.max_q_len = 400;
  c.operands.max_kv_len = 900;
  Owned<attnc_preparation> preparation;
  TAKE(c.settle(parse("q_idx >= kv_idx").get(), &preparation));
  auto info = told<attnc_preparation_info>(attnc_preparation_get_info, preparation.get());
  CHECK(info.problem.batch == 4);
  CHECK(info.problem.q_len == 400);
  CHECK(info.problem.kv_len == 900);
  auto options = told<attnc_kernel_options>(optionsOf, preparation.get(), 0);
  CHECK(options.features == ATTNC_FEATURE_RAGGED);
  CHECK(options.block_sparse == 0);
  auto lists = sized<attnc_block_mask_view>();
  lists.shape = {4, 8, 400, 900, 128, 64};
  c.operands.block_mask = &lists;
  TAKE(c.settle(parse("q_idx >= kv_idx").get(), &preparation));
  TAKE(optionsOf(preparation.get(), 0, &options));
  CHECK(options.features == ATTNC_FEATURE_RAGGED);
  CHECK(options.block_sparse == 1);
  CHECK(options.mask_kv_block == 64);
  lists.shape.q_len = 1000;
  REFUSED(ATTNC_ERROR_ENVIRONMENT, "block mask: its lengths are 1000 x 900", c.settle(parse("score").get()));
}

TEST_CASE("training settles both passes, and gradients of captures by name", "[c]") {
  Case c;
  float values[8] = {};
  const attnc_tensor slopes = tensor(ATTNC_DTYPE_F32, {8}, values);
  const attnc_capture captures[] = {capture("slopes", &slopes)};
  c.operands.captures = c.gradients.captures = captures;
  c.operands.capture_count = c.gradients.capture_count = 1;
  c.outputs.lse = &c.lse;
  c.options.deterministic = 1;
  const Owned<attnc_mod> mod = parse(kAlibi);
  const Owned<attnc_compiler> compiler = ctest::compiler();
  attnc_preparation* made = nullptr;
  TAKE(attnc_settle_training(compiler.get(), mod.get(), &c.backwardOperands, &c.outputs, &c.gradients, &c.options,
                             &made));
  const Owned<attnc_preparation> preparation(made);
  auto info = told<attnc_preparation_info>(attnc_preparation_get_info, made);
  CHECK(info.is_training == 1);
  CHECK_THAT(attnc_preparation_text(made), Catch::Contains("\nbackward: family "));
  auto options = told<attnc_kernel_options>(lastOptionsOf, made);
  CHECK(options.kind == ATTNC_KERNEL_BACKWARD);
  CHECK(options.features == ATTNC_FEATURE_DETERMINISTIC);
  REQUIRE(options.gradient_count == 1);
  CHECK(std::string(options.gradients[0]) == "slopes");
  // They are options as any function takes them.
  const auto source = ctest::made<attnc_source>(sourceOf, compiler.get(), mod.get(), &options);
  CHECK(attnc_source_stage_count(source.get()) > 1);

  c.gradients.dk = nullptr;
  REFUSED(ATTNC_ERROR_ENVIRONMENT, "dk is not given",
          attnc_settle_training(compiler.get(), mod.get(), &c.backwardOperands, &c.outputs, &c.gradients, &c.options,
                                &made));
}

TEST_CASE("what does not fit is told as in C++", "[c]") {
  Case c;
  const auto refused = [&](const char* text, const char* part) {
    REFUSED(ATTNC_ERROR_ENVIRONMENT, part, c.settle(parse(text).get()));
  };
  SECTION("an arch that there is not") {
    c.options.arch = "sm_12";
    refused("score", "sm_12");
  }
  SECTION("no out") {
    c.outputs.out = nullptr;
    refused("score", "out is not given");
  }
  SECTION("a capture that is missing") {
    const attnc_capture other[] = {scalar("other", ATTNC_CAPTURE_INT, 4)};
    c.operands.captures = other;
    c.operands.capture_count = 1;
    refused(kAlibi, "slopes");
  }
  SECTION("a capture of another dtype") {
    const attnc_tensor slopes = tensor(ATTNC_DTYPE_F16, {8});
    const attnc_capture captures[] = {capture("slopes", &slopes)};
    c.operands.captures = captures;
    c.operands.capture_count = 1;
    refused(kAlibi, "slopes");
  }
  SECTION("lengths that are floats, NaN or not") {
    const attnc_tensor lengths = tensor(ATTNC_DTYPE_F32, {2});
    c.operands.kv_lengths = &lengths;
    refused("score", "kv_lengths is f32 [2], expected i32 [2]");
    c.operands.kv_lengths = nullptr;
    c.operands.q_offsets = &lengths;
    refused("score", "q_offsets is f32 [2], expected i32 [2]");
  }
  SECTION("strides that no family takes") {
    c.q.stride[3] = 2;
    refused("score", "q has last stride 2");
  }
  SECTION("a block mask of another problem") {
    auto mask = sized<attnc_block_mask_view>();
    mask.shape.q_len = 5;
    c.operands.block_mask = &mask;
    refused("q_idx >= kv_idx", "block mask");
  }
}

TEST_CASE("a mask decides whether a block mask pays", "[c]") {
  const Owned<attnc_compiler> compiler = ctest::compiler();
  const Owned<attnc_mod> mod = parse("q_idx % 3 == 0");
  auto options = sized<attnc_kernel_options>();
  options.arch = "sm_90a";
  options.head_dim = 64;
  options.head_dim_v = 32;
  int32_t wants = 7;
  TAKE(gainsFromBlockMask(compiler.get(), mod.get(), &options, &wants));
  CHECK(wants == 1);
  TAKE(gainsFromBlockMask(compiler.get(), parse("q_idx >= kv_idx").get(), &options, &wants));
  CHECK(wants == 0);
  options.dtype = 77;
  REFUSED(ATTNC_ERROR_ARGUMENT, "options.dtype is 77", gainsFromBlockMask(compiler.get(), mod.get(), &options, &wants));
  options.dtype = 0;
  options.kind = 77;
  REFUSED(ATTNC_ERROR_ARGUMENT, "options.kind is 77", gainsFromBlockMask(compiler.get(), mod.get(), &options, &wants));
}

TEST_CASE("text and machine code of a kernel", "[c]") {
  const Owned<attnc_compiler> compiler = ctest::compiler();
  const Owned<attnc_mod> mod = parse("q_idx >= kv_idx");
  auto options = sized<attnc_kernel_options>();
  options.arch = "sm_80";
  options.family = ATTNC_FAMILY_NAIVE;
  options.head_dim = 64;

  const auto source = made<attnc_source>(sourceOf, compiler.get(), mod.get(), &options);
  REQUIRE(attnc_source_stage_count(source.get()) == 1);
  auto written = told<attnc_source_stage>(attnc_source_get_stage, source.get(), 0);
  CHECK(written.family == ATTNC_FAMILY_NAIVE);
  CHECK(std::string(written.arch) == "sm_80");
  CHECK_THAT(written.text, Catch::Contains("#include"));
  CHECK_THAT(written.flattened, Catch::Contains(written.entry));
  CHECK(written.threads > 0);
  bool hasMod = false;
  for (size_t i = 0; i < written.header_count; ++i) hasMod |= std::string(written.header_names[i]) == "attnc_mod.cuh";
  CHECK(hasMod);
  CHECK((written.nvrtc_options == nullptr) == (written.nvrtc_option_count == 0));
  REFUSED(ATTNC_ERROR_ARGUMENT, "index is 1, there are 1", attnc_source_get_stage(source.get(), 1, &written));

  attnc_compiled* code = nullptr;
  TAKE(compile(compiler.get(), mod.get(), &options, &code));
  const Owned<attnc_compiled> compiled(code);
  REQUIRE(attnc_compiled_stage_count(code) == 1);
  auto stage = told<attnc_compiled_stage>(attnc_compiled_get_stage, code, 0);
  CHECK(std::string(stage.entry) == written.entry);
  CHECK(std::string(static_cast<const char*>(stage.cubin), 4) == "\x7f"
                                                                 "ELF");
  CHECK(stage.cubin_bytes > 1000);
  CHECK_THAT(stage.ptx, Catch::Contains(".target sm_80"));
  CHECK(stage.registers > 0);
  CHECK(stage.compile_ms > 0);
  REFUSED(ATTNC_ERROR_ARGUMENT, "index is 1, there are 1", attnc_compiled_get_stage(code, 1, &stage));

  options.head_dim = 7;
  REFUSED(ATTNC_ERROR_ENVIRONMENT, "head", compile(compiler.get(), mod.get(), &options, &code));
  options.head_dim = 64;
  const char* const names[] = {nullptr};
  options.gradients = names;
  options.gradient_count = 1;
  REFUSED(ATTNC_ERROR_ARGUMENT, "options.gradients[0] is NULL", compile(compiler.get(), mod.get(), &options, &code));
}

TEST_CASE("settled choices are explained as JSON", "[c]") {
  Case c;
  const Owned<attnc_mod> mod = parse(kDocument);
  const Owned<attnc_compiler> compiler = ctest::compiler();
  Owned<attnc_preparation> preparation;
  TAKE(c.settle(mod.get(), &preparation));
  std::vector<int32_t> ids(2 * 3000);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = int32_t(i % 3000 / 1000);
  attnc_tensor tensor = ctest::tensor(ATTNC_DTYPE_I32, {2, 3000});
  tensor.data = ids.data();
  auto capture = sized<attnc_capture>();
  capture.name = "ids";
  capture.tensor = &tensor;
  capture.kind = ATTNC_CAPTURE_TENSOR;
  const char *json = nullptr, *again = nullptr;
  TAKE(attnc_explain(compiler.get(), preparation.get(), &capture, 1, &json));
  TAKE(attnc_explain(compiler.get(), preparation.get(), &capture, 1, &again));
  CHECK(json == again);
  // 8 x 24 blocks; all queries are of the document of the first 1000 keys.
  for (const char* part : {"\"family\": \"sm90\"", "\"kvLoop\": \"blockMask\"", "\"all\": 384", "\"isEstimate\": false",
                           "\"empty\": 256", "\"registers\": ", "\"captures\": [\n"})
    CHECK_THAT(json, Catch::Contains(part));
  REFUSED(ATTNC_ERROR_ENVIRONMENT, "ids", attnc_explain(compiler.get(), preparation.get(), nullptr, 0, &json));
}

TEST_CASE("a log callback is told what the compiler does", "[c]") {
  struct Told {
    std::atomic<int> lines{0}, warnings{0}, unreadable{0};
  } told;
  auto options = sized<attnc_compiler_options>();
  options.cache_directory = "/proc/no-such\x1b[2J\ndirectory";
  options.log = [](void* user, attnc_log_level level, const char* line) {
    auto& to = *static_cast<Told*>(user);
    ++to.lines;
    to.unreadable += attnc::readable(line) != line;
    to.warnings += level == ATTNC_LOG_WARNING;
  };
  options.log_user = &told;
  attnc_compiler* made = nullptr;
  TAKE(attnc_compiler_create(&options, &made));
  const Owned<attnc_compiler> compiler(made);
  auto kernel = sized<attnc_kernel_options>();
  kernel.arch = "sm_80";
  kernel.kind = ATTNC_KERNEL_BLOCK_MASK;
  attnc_compiled* code = nullptr;
  TAKE(compile(made, parse("q_idx >= kv_idx").get(), &kernel, &code));
  attnc_compiled_destroy(code);
  CHECK(told.lines > 0);
  CHECK(told.unreadable == 0);
  CHECK(told.warnings > 0); // that the directory is not used

  options.max_work = -1;
  REFUSED(ATTNC_ERROR_ARGUMENT, "options.max_work is -1", attnc_compiler_create(&options, &made));
  options.max_work = 5;
  const auto owned = ctest::made<attnc_compiler>(attnc_compiler_create, &options);
  REFUSED(ATTNC_ERROR_MOD, "the limit is 5",
          compile(owned.get(), parse("(q_idx * kv_idx % 7 + kv_idx * h % 11) % 3 == 0").get(), &kernel, &code));
  options.max_work = 0;
  options.cache_mode = 9;
  REFUSED(ATTNC_ERROR_ARGUMENT, "options.cache_mode is 9", attnc_compiler_create(&options, &made));
  options.cache_mode = ATTNC_CACHE_OFF;
  options.nvrtc_path = "/no/such/libnvrtc.so";
  TAKE(attnc_compiler_create(&options, &made));
  const Owned<attnc_compiler> without(made);
  REFUSED(ATTNC_ERROR_ENVIRONMENT, "/no/such/libnvrtc.so",
          compile(made, parse("q_idx >= kv_idx").get(), &kernel, &code));
}

TEST_CASE("to prepare takes a GPU, or says that there is none", "[c]") {
  Case c;
  c.options.arch = nullptr;
  const Owned<attnc_compiler> compiler = ctest::compiler();
  attnc_prepared* prepared = nullptr;
  // No context is current in this thread, be there a GPU or not.
  CHECK(attnc_prepare(compiler.get(), parse("score").get(), &c.operands, &c.outputs, nullptr, &prepared) ==
        ATTNC_ERROR_ENVIRONMENT);
  CHECK(attnc_prepare_training(compiler.get(), parse("score").get(), &c.backwardOperands, &c.outputs, &c.gradients,
                               nullptr, &prepared) == ATTNC_ERROR_ENVIRONMENT);
  CHECK(prepared == nullptr);
  CHECK(std::string(attnc_last_error()) != "");
}

TEST_CASE("handles serve several threads, and each has a last error of its own", "[c]") {
  const Owned<attnc_mod> mod = parse(kAlibi);
  const Owned<attnc_compiler> compiler = ctest::compiler();
  const Case c;
  Owned<attnc_preparation> preparation;
  TAKE(c.settle(mod.get(), &preparation));
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&, i] {
      const std::string name = "mod" + std::to_string(i);
      wrong += std::string(attnc_last_error()) != ""; // nothing of another thread's
      for (int round = 0; round < 50; ++round) {
        attnc_parse_options options = {};
        options.struct_size = sizeof options;
        options.name = name.c_str();
        attnc_mod* broken = nullptr;
        wrong += attnc_mod_parse("score +", ATTNC_WHOLE, &options, &broken) != ATTNC_ERROR_MOD;
        wrong += std::string(attnc_last_error()).rfind(name + ":", 0) != 0;
        attnc_preparation* made = nullptr;
        wrong += attnc_settle(compiler.get(), mod.get(), &c.operands, &c.outputs, &c.options, &made) != ATTNC_OK;
        wrong += attnc_preparation_text(made) == nullptr;
        attnc_preparation_destroy(made);
        wrong += std::string(attnc_mod_ir(mod.get())).empty();
        wrong += std::string(attnc_mod_ast(mod.get())).empty();
        wrong += std::string(attnc_preparation_text(preparation.get())).empty();
        attnc_kernel_options kernel = {};
        kernel.struct_size = sizeof kernel;
        wrong += optionsOf(preparation.get(), 0, &kernel) != ATTNC_OK;
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}
