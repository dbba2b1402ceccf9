// What is wrong with a call as it stands: NULL, sizes of structs, enumerators.
#include "calls.h"

#include <cstring>
#include <vector>

using namespace ctest;

namespace {

constexpr attnc_status kArgument = ATTNC_ERROR_ARGUMENT;

/// Size of a struct as it was first published; those that have grown since stand below.
template <class T> constexpr size_t kFirst = sizeof(T);
template <> constexpr size_t kFirst<attnc_mod_info> = 40;
template <> constexpr size_t kFirst<attnc_capture_info> = 80;
template <> constexpr size_t kFirst<attnc_operands> = 80;
template <> constexpr size_t kFirst<attnc_outputs> = 32;
template <> constexpr size_t kFirst<attnc_block_mask_view> = 128;
template <> constexpr size_t kFirst<attnc_compiler_options> = 48;
template <> constexpr size_t kFirst<attnc_shard_options> = 88;
template <> constexpr size_t kFirst<attnc_shard_plan_info> = 40;
template <> constexpr size_t kFirst<attnc_shard_work> = 56;
template <> constexpr size_t kFirst<attnc_backward_operands> = 48;
template <> constexpr size_t kFirst<attnc_backward_outputs> = 48;
template <> constexpr size_t kFirst<attnc_kernel_options> = 136;
template <> constexpr size_t kFirst<attnc_prepare_options> = 88;
template <> constexpr size_t kFirst<attnc_preparation_info> = 112;
template <> constexpr size_t kFirst<attnc_family_info> = 32;
template <> constexpr size_t kFirst<attnc_quantise_options> = 16;

/// The struct at the beginning of memory that is larger by this.
template <class T> struct Larger {
  std::vector<size_t> memory;
  T* get() { return reinterpret_cast<T*>(memory.data()); }
  explicit Larger(const T& value) : memory(sizeof(T) / 8 + 2) {
    std::memcpy(memory.data(), &value, sizeof(T));
    get()->struct_size = sizeof(T) + 16;
  }
};

/// `use` takes a struct as it is, as it was first, a larger one whose tail is zero, and none that is smaller or odd.
template <class T, class Use> void checkSizes(const T& given, Use use) {
  T value = given;
  TAKE(use(&value));
  value.struct_size = kFirst<T>;
  TAKE(use(&value));
  for (size_t size : {size_t(0), size_t(8), kFirst<T> - 8, sizeof(T) + 4, size_t(1) << 20, ~size_t(0)}) {
    INFO("struct_size " << size);
    value.struct_size = size;
    REFUSED(kArgument, "struct_size", use(&value));
  }
  value.struct_size = kFirst<T>;
  TAKE(use(&value));
  Larger<T> larger(given);
  TAKE(use(larger.get()));
  CHECK(larger.get()->struct_size == sizeof(T) + 16);
}

template <class T, class Use> void checkInput(const T& given, Use use) {
  checkSizes(given, use);
  Larger<T> larger(given);
  larger.memory.back() = 1;
  REFUSED(kArgument, "does not know", use(larger.get()));
}

template <class T, class Use> void checkOutput(Use use) {
  checkSizes(sized<T>(), use);
  Larger<T> larger(sized<T>());
  larger.memory.back() = 1;
  TAKE(use(larger.get()));
  CHECK(larger.memory.back() == 0); // what this version does not know it has not set
}

} // namespace

// A struct only grows at its end; then kFirst above and src/c/structs.h have the size of its first version.
TEST_CASE("structs have the sizes that were published", "[c]") {
  CHECK(sizeof(attnc_diagnostic) == 56);
  CHECK(sizeof(attnc_tensor) == 120);
  CHECK(sizeof(attnc_capture) == 48);
  CHECK(sizeof(attnc_parse_options) == 32);
  CHECK(sizeof(attnc_mod_info) == 80);
  CHECK(sizeof(attnc_capture_info) == 88);
  CHECK(sizeof(attnc_operands) == 160);
  CHECK(sizeof(attnc_outputs) == 48);
  CHECK(sizeof(attnc_backward_operands) == 72);
  CHECK(sizeof(attnc_backward_outputs) == 64);
  CHECK(sizeof(attnc_block_mask_view) == 136);
  CHECK(sizeof(attnc_block_mask_info) == 32);
  CHECK(sizeof(attnc_compiler_options) == 72);
  CHECK(kFirst<attnc_compiler_options> == 48);
  CHECK(sizeof(attnc_kernel_options) == 136);
  CHECK(sizeof(attnc_plan_info) == 48);
  CHECK(sizeof(attnc_source_stage) == 128);
  CHECK(sizeof(attnc_compiled_stage) == 112);
  CHECK(sizeof(attnc_family_info) == 40);
  CHECK(sizeof(attnc_prepare_options) == 96);
  CHECK(sizeof(attnc_preparation_info) == 112);
  CHECK(sizeof(attnc_tuned_tile) == 40);
  CHECK(sizeof(attnc_quantise_options) == 56);
  CHECK(sizeof(attnc_shard_mask) == 40);
  CHECK(sizeof(attnc_shard_options) == 96);
  CHECK(sizeof(attnc_shard_plan_info) == 48);
  CHECK(sizeof(attnc_shard_engine) == 32);
  CHECK(sizeof(attnc_shard_tokens) == 40);
  CHECK(sizeof(attnc_shard_work) == 72);
  CHECK(kFirst<attnc_shard_work> == 56);
  // These structs never change.
  CHECK(sizeof(attnc_shard_piece) == 24);
  CHECK(sizeof(attnc_shard_message) == 24);
  CHECK(sizeof(attnc_pin) == 16);
  CHECK(sizeof(attnc_define) == 16);
  CHECK(sizeof(attnc_problem) == 40);
  CHECK(sizeof(attnc_block_mask_shape) == 40);
  CHECK(sizeof(attnc_block_lists) == 40);
}

TEST_CASE("structs that go in may be of another version", "[c]") {
  const Owned<attnc_mod> mod = parse(kAlibi), document = parse(kDocument);
  const Owned<attnc_compiler> compiler = ctest::compiler();
  attnc_mod* otherMod = nullptr;
  checkInput(sized<attnc_parse_options>(), [&](const attnc_parse_options* options) {
    const attnc_status status = attnc_mod_parse("score", ATTNC_WHOLE, options, &otherMod);
    if (status == ATTNC_OK) attnc_mod_destroy(otherMod);
    return status;
  });
  checkInput(sized<attnc_compiler_options>(), [](const attnc_compiler_options* options) {
    attnc_compiler* made = nullptr;
    const attnc_status status = attnc_compiler_create(options, &made);
    if (status == ATTNC_OK) attnc_compiler_destroy(made);
    return status;
  });
  auto kernel = sized<attnc_kernel_options>();
  kernel.arch = "sm_80";
  checkInput(kernel, [&](const attnc_kernel_options* options) {
    int32_t wants = 7;
    return gainsFromBlockMask(compiler.get(), mod.get(), options, &wants);
  });

  Case c;
  float values[8] = {};
  const attnc_tensor slopes = tensor(ATTNC_DTYPE_F32, {8}, values);
  const attnc_capture captured = capture("slopes", &slopes);
  checkInput(captured, [&](const attnc_capture* captures) {
    c.operands.captures = captures;
    c.operands.capture_count = 1;
    const attnc_status status = c.settle(mod.get());
    c.operands.captures = nullptr;
    c.operands.capture_count = 0;
    return status;
  });
  checkInput(c.k, [&](const attnc_tensor* k) {
    c.operands.k = k;
    const attnc_status status = c.settle(mod.get());
    c.operands.k = &c.k;
    return status;
  });
  const auto settle = [&](const attnc_operands* operands, const attnc_outputs* outputs,
                          const attnc_prepare_options* options) {
    attnc_preparation* made = nullptr;
    const attnc_status status = attnc_settle(compiler.get(), mod.get(), operands, outputs, options, &made);
    attnc_preparation_destroy(made);
    return status;
  };
  checkInput(c.operands, [&](const attnc_operands* all) { return settle(all, &c.outputs, &c.options); });
  checkInput(c.outputs, [&](const attnc_outputs* all) { return settle(&c.operands, all, &c.options); });
  checkInput(c.options, [&](const attnc_prepare_options* all) { return settle(&c.operands, &c.outputs, all); });
  const auto train = [&](const attnc_backward_operands* operands, const attnc_backward_outputs* gradients) {
    attnc_preparation* made = nullptr;
    const attnc_status status =
        attnc_settle_training(compiler.get(), mod.get(), operands, &c.outputs, gradients, &c.options, &made);
    attnc_preparation_destroy(made);
    return status;
  };
  checkInput(c.backwardOperands, [&](const attnc_backward_operands* all) { return train(all, &c.gradients); });
  checkInput(c.gradients, [&](const attnc_backward_outputs* all) { return train(&c.backwardOperands, all); });
  auto lists = sized<attnc_block_mask_view>();
  checkInput(lists, [&](const attnc_block_mask_view* view) {
    attnc_block_mask* mask = nullptr;
    const attnc_status status = attnc_block_mask_from_lists(view, &mask);
    attnc_block_mask_destroy(mask);
    return status;
  });
  const attnc_problem problem = {1, 1, 1, 64, 64};
  const Owned<attnc_mod> causal = parse("q_idx >= kv_idx");
  auto shards = sized<attnc_shard_mask>();
  shards.mod = causal.get();
  const auto plan = [&](const attnc_shard_mask* masks, const attnc_shard_options* options) {
    attnc_shard_plan* made = nullptr;
    const attnc_status status = attnc_shard_plan_create(masks, 1, &problem, 2, options, &made);
    attnc_shard_plan_destroy(made);
    return status;
  };
  checkInput(shards, [&](const attnc_shard_mask* mask) { return plan(mask, nullptr); });
  checkInput(sized<attnc_shard_options>(), [&](const attnc_shard_options* all) { return plan(&shards, all); });
  checkInput(sized<attnc_quantise_options>(), [&](const attnc_quantise_options* all) {
    const attnc_tensor none = tensor(ATTNC_DTYPE_F32, {0, 1, 1, 8}), out = tensor(ATTNC_DTYPE_E4M3, {0, 1, 1, 8}),
                       scales = tensor(ATTNC_DTYPE_F32, {0, 1});
    return attnc_quantise_on_cpu(&none, &out, &scales, all);
  });
}

TEST_CASE("structs that come out may be of another version", "[c]") {
  const Owned<attnc_mod> mod = parse(kAlibi);
  const Owned<attnc_compiler> compiler = ctest::compiler();
  checkOutput<attnc_mod_info>([&](attnc_mod_info* info) { return attnc_mod_get_info(mod.get(), info); });
  checkOutput<attnc_capture_info>([&](attnc_capture_info* info) { return attnc_mod_get_capture(mod.get(), 0, info); });
  checkOutput<attnc_family_info>([](attnc_family_info* info) { return attnc_get_family(ATTNC_PASS_FORWARD, 0, info); });
  const attnc_problem problem = {1, 1, 1, 256, 256};
  attnc_block_mask_shape shape = {};
  shape.q_len = shape.kv_len = 256;
  const auto mask =
      made<attnc_block_mask>(attnc_block_mask_build, parse("q_idx >= kv_idx").get(), nullptr, 0, &problem, &shape);
  checkOutput<attnc_block_mask_info>(
      [&](attnc_block_mask_info* info) { return attnc_block_mask_get_info(mask.get(), info); });
  checkOutput<attnc_block_mask_view>(
      [&](attnc_block_mask_view* view) { return attnc_block_mask_get_view(mask.get(), view); });
  const Case c;
  Owned<attnc_preparation> preparation;
  TAKE(c.settle(mod.get(), &preparation));
  checkOutput<attnc_preparation_info>(
      [&](attnc_preparation_info* info) { return attnc_preparation_get_info(preparation.get(), info); });
  auto options = sized<attnc_kernel_options>();
  checkOutput<attnc_kernel_options>([&](attnc_kernel_options* all) { return optionsOf(preparation.get(), 0, all); });
  TAKE(optionsOf(preparation.get(), 0, &options));
  const auto source = made<attnc_source>(sourceOf, compiler.get(), mod.get(), &options);
  checkOutput<attnc_source_stage>(
      [&](attnc_source_stage* stage) { return attnc_source_get_stage(source.get(), 0, stage); });
  auto shards = sized<attnc_shard_mask>();
  const Owned<attnc_mod> causal = parse("q_idx >= kv_idx");
  shards.mod = causal.get();
  const auto plan = made<attnc_shard_plan>(attnc_shard_plan_create, &shards, 1, &problem, 2, nullptr);
  checkOutput<attnc_shard_plan_info>(
      [&](attnc_shard_plan_info* info) { return attnc_shard_plan_get_info(plan.get(), info); });
  checkOutput<attnc_shard_tokens>(
      [&](attnc_shard_tokens* all) { return attnc_shard_plan_get_tokens(plan.get(), 0, all); });
  checkOutput<attnc_shard_work>(
      [&](attnc_shard_work* work) { return attnc_shard_plan_get_work(plan.get(), 0, 0, work); });
}

TEST_CASE("NULL is refused by name, and destroyed without effect", "[c]") {
  const Owned<attnc_mod> owned = parse("q_idx >= kv_idx");
  const Owned<attnc_compiler> made = ctest::compiler();
  const attnc_mod* mod = owned.get();
  const attnc_compiler* compiler = made.get();
  const Case c;
  attnc_mod* newMod = nullptr;
  attnc_block_mask* mask = nullptr;
  attnc_preparation* preparation = nullptr;
  attnc_prepared* prepared = nullptr;
  attnc_compiled* compiled = nullptr;
  attnc_source* source = nullptr;
  auto options = sized<attnc_kernel_options>();
  options.arch = "sm_80";
  auto view = sized<attnc_block_mask_view>();
  const attnc_problem problem = {1, 1, 1, 128, 128};
  attnc_block_mask_shape shape = {};
  shape.q_len = shape.kv_len = 128;
  size_t bytes = 0;
  char text[8];
  auto t = sized<attnc_tensor>();

  REFUSED(kArgument, "tensor is NULL", attnc_tensor_make_dense(nullptr));
  REFUSED(kArgument, "dl_tensor is NULL", attnc_tensor_from_dlpack(nullptr, ATTNC_DEVICE_HOST, &t));
  REFUSED(kArgument, "managed is NULL", attnc_tensor_from_dlpack_versioned(nullptr, ATTNC_DEVICE_HOST, 0, &t));

  REFUSED(kArgument, "text is NULL", attnc_mod_parse(nullptr, ATTNC_WHOLE, nullptr, &newMod));
  REFUSED(kArgument, "mod is NULL", attnc_mod_parse("score", ATTNC_WHOLE, nullptr, nullptr));
  REFUSED(kArgument, "text is NULL", attnc_mod_parse_ir(nullptr, 0, nullptr, &newMod));
  REFUSED(kArgument, "mod is NULL", attnc_mod_parse_ir("", 0, nullptr, nullptr));
  REFUSED(kArgument, "path is NULL", attnc_mod_load(nullptr, nullptr, &newMod));
  REFUSED(kArgument, "mod is NULL", attnc_mod_load("x", nullptr, nullptr));
  REFUSED(kArgument, "mod is NULL", attnc_mod_identity(nullptr));
  REFUSED(kArgument, "mod is NULL", attnc_mod_pinned(nullptr, nullptr, 0, &newMod));
  REFUSED(kArgument, "pinned is NULL", attnc_mod_pinned(mod, nullptr, 0, nullptr));
  REFUSED(kArgument, "pins is NULL", attnc_mod_pinned(mod, nullptr, 1, &newMod));
  REFUSED(kArgument, "mods is NULL", attnc_mod_choice(nullptr, 1, "which: i32[B]", &newMod));
  REFUSED(kArgument, "which is NULL", attnc_mod_choice(nullptr, 0, nullptr, &newMod));
  REFUSED(kArgument, "info is NULL", attnc_mod_get_info(mod, nullptr));
  REFUSED(kArgument, "mod is NULL", attnc_mod_get_capture(nullptr, 0, nullptr));
  CHECK(attnc_mod_ast(nullptr) == nullptr);
  CHECK(attnc_mod_ir(nullptr) == nullptr);
  auto parseOptions = sized<attnc_parse_options>();
  parseOptions.define_count = 1;
  REFUSED(kArgument, "options.defines is NULL", attnc_mod_parse("score", ATTNC_WHOLE, &parseOptions, &newMod));

  REFUSED(kArgument, "mod is NULL", attnc_block_mask_build(nullptr, nullptr, 0, &problem, &shape, &mask));
  REFUSED(kArgument, "captures is NULL", attnc_block_mask_build(mod, nullptr, 1, &problem, &shape, &mask));
  REFUSED(kArgument, "problem is NULL", attnc_block_mask_build(mod, nullptr, 0, nullptr, &shape, &mask));
  REFUSED(kArgument, "shape is NULL", attnc_block_mask_build(mod, nullptr, 0, &problem, nullptr, &mask));
  REFUSED(kArgument, "mask is NULL", attnc_block_mask_build(mod, nullptr, 0, &problem, &shape, nullptr));
  REFUSED(kArgument, "lists is NULL", attnc_block_mask_from_lists(nullptr, &mask));
  REFUSED(kArgument, "mask is NULL", attnc_block_mask_from_lists(&view, nullptr));
  REFUSED(kArgument, "mask is NULL", attnc_block_mask_with_columns(nullptr, &mask));
  REFUSED(kArgument, "mask is NULL", attnc_block_mask_get_view(nullptr, &view));
  REFUSED(kArgument, "mask is NULL", attnc_block_mask_get_info(nullptr, nullptr));
  REFUSED(kArgument, "mask is NULL", attnc_block_mask_text(nullptr, 0, 0, 1, text, 8, &bytes));
  REFUSED(kArgument, "mask is NULL", attnc_block_mask_write(nullptr, 0, text, 8));
  REFUSED(kArgument, "shape is NULL", attnc_block_mask_storage_bytes(nullptr, 0, &bytes));
  REFUSED(kArgument, "bytes is NULL", attnc_block_mask_storage_bytes(&shape, 0, nullptr));
  REFUSED(kArgument, "storage is NULL", attnc_block_mask_view_into(nullptr, &shape, 0, &view));
  TAKE(attnc_block_mask_build(mod, nullptr, 0, &problem, &shape, &mask));
  const Owned<attnc_block_mask> held(mask);
  REFUSED(kArgument, "copy is NULL", attnc_block_mask_with_columns(mask, nullptr));
  REFUSED(kArgument, "view is NULL", attnc_block_mask_get_view(mask, nullptr));
  REFUSED(kArgument, "info is NULL", attnc_block_mask_get_info(mask, nullptr));
  REFUSED(kArgument, "length is NULL", attnc_block_mask_text(mask, 0, 0, 1, text, 8, nullptr));
  REFUSED(kArgument, "buffer is NULL", attnc_block_mask_text(mask, 0, 0, 1, nullptr, 8, &bytes));
  REFUSED(kArgument, "storage is NULL", attnc_block_mask_write(mask, 0, nullptr, 8));

  REFUSED(kArgument, "compiler is NULL", attnc_compiler_create(nullptr, nullptr));
  attnc_plan* plan = nullptr;
  REFUSED(kArgument, "compiler is NULL", attnc_plan_create(nullptr, mod, &options, &plan));
  REFUSED(kArgument, "mod is NULL", attnc_plan_create(compiler, nullptr, &options, &plan));
  REFUSED(kArgument, "options is NULL", attnc_plan_create(compiler, mod, nullptr, &plan));
  REFUSED(kArgument, "plan is NULL", attnc_plan_create(compiler, mod, &options, nullptr));
  REFUSED(kArgument, "plan is NULL", attnc_plan_get_options(nullptr, &options));
  REFUSED(kArgument, "plan is NULL", attnc_plan_get_info(nullptr, nullptr));
  TAKE(attnc_plan_create(compiler, mod, &options, &plan));
  const Owned<attnc_plan> heldPlan(plan);
  REFUSED(kArgument, "options is NULL", attnc_plan_get_options(plan, nullptr));
  REFUSED(kArgument, "info is NULL", attnc_plan_get_info(plan, nullptr));
  REFUSED(kArgument, "plan is NULL", attnc_source_create(nullptr, &source));
  REFUSED(kArgument, "source is NULL", attnc_source_create(plan, nullptr));
  REFUSED(kArgument, "source is NULL", attnc_source_get_stage(nullptr, 0, nullptr));
  CHECK(attnc_source_stage_count(nullptr) == 0);
  REFUSED(kArgument, "plan is NULL", attnc_compile(compiler, nullptr, &compiled));
  REFUSED(kArgument, "compiled is NULL", attnc_compile(compiler, plan, nullptr));
  REFUSED(kArgument, "compiled is NULL", attnc_compiled_get_stage(nullptr, 0, nullptr));
  CHECK(attnc_compiled_stage_count(nullptr) == 0);
  REFUSED(kArgument, "info is NULL", attnc_get_family(ATTNC_PASS_FORWARD, 0, nullptr));

  REFUSED(kArgument, "operands is NULL", attnc_settle(compiler, mod, nullptr, &c.outputs, nullptr, &preparation));
  REFUSED(kArgument, "outputs is NULL", attnc_settle(compiler, mod, &c.operands, nullptr, nullptr, &preparation));
  REFUSED(kArgument, "preparation is NULL", attnc_settle(compiler, mod, &c.operands, &c.outputs, nullptr, nullptr));
  REFUSED(kArgument, "operands is NULL",
          attnc_settle_training(compiler, mod, nullptr, &c.outputs, &c.gradients, nullptr, &preparation));
  REFUSED(kArgument, "outputs is NULL",
          attnc_settle_training(compiler, mod, &c.backwardOperands, &c.outputs, nullptr, nullptr, &preparation));
  REFUSED(kArgument, "preparation is NULL", attnc_preparation_get_info(nullptr, nullptr));
  CHECK(attnc_preparation_plan_count(nullptr) == 0);
  CHECK(attnc_preparation_get_plan(nullptr, 0) == nullptr);
  CHECK(attnc_preparation_text(nullptr) == nullptr);
  REFUSED(kArgument, "preparation is NULL", attnc_explain(compiler, nullptr, nullptr, 0, nullptr));
  REFUSED(kArgument, "mod is NULL", attnc_prepare(compiler, nullptr, &c.operands, &c.outputs, nullptr, &prepared));
  REFUSED(kArgument, "prepared is NULL", attnc_prepare(compiler, mod, &c.operands, &c.outputs, nullptr, nullptr));
  REFUSED(kArgument, "compiler is NULL",
          attnc_prepare_training(nullptr, mod, &c.backwardOperands, &c.outputs, &c.gradients, nullptr, &prepared));
  CHECK(attnc_prepared_get_preparation(nullptr) == nullptr);
  REFUSED(kArgument, "prepared is NULL", attnc_prepared_workspace_bytes(nullptr, &bytes));
  REFUSED(kArgument, "prepared is NULL", attnc_prepared_initialise(nullptr, &c.operands, nullptr, nullptr));
  REFUSED(kArgument, "prepared is NULL", attnc_prepared_launch(nullptr, &c.operands, &c.outputs, nullptr, nullptr));
  REFUSED(kArgument, "prepared is NULL",
          attnc_prepared_launch_backward(nullptr, &c.backwardOperands, &c.gradients, nullptr, nullptr));
  REFUSED(kArgument, "prepared is NULL", attnc_prepared_block_mask_in(nullptr, text, &view));

  attnc_mod_destroy(nullptr);
  attnc_block_mask_destroy(nullptr);
  attnc_compiler_destroy(nullptr);
  attnc_compiled_destroy(nullptr);
  attnc_source_destroy(nullptr);
  attnc_plan_destroy(nullptr);
  attnc_preparation_destroy(nullptr);
  attnc_prepared_destroy(nullptr);
  attnc_pack_destroy(nullptr);
  attnc_tuning_destroy(nullptr);
}

TEST_CASE("members that must be given are asked for by name", "[c]") {
  const Owned<attnc_mod> mod = parse("score");
  Case c;
  const auto refused = [&](const char* message) { REFUSED(kArgument, message, c.settle(mod.get())); };
  c.operands.q = nullptr;
  refused("q is NULL");
  c.operands.q = &c.q;
  c.q.rank = 7;
  refused("q has rank 7, expected 0 .. 6");
  c.q.rank = 4;
  c.q.dtype = ATTNC_DTYPE_DEFAULT;
  refused("q has dtype 0, which is none");
  c.q.dtype = ATTNC_DTYPE_BF16;
  c.q.shape[1] = -8;
  refused("q has extent -8 along axis 1");
  c.q.shape[1] = 8;
  c.operands.has_scale = 2;
  refused("operands.has_scale is 2, expected 0 or 1");
  c.operands.has_scale = 0;
  c.operands.capture_count = 1;
  refused("operands.captures is NULL");
  attnc_capture nameless = sized<attnc_capture>();
  c.operands.captures = &nameless;
  refused("operands.captures[0].name is NULL");
  nameless.name = "slopes";
  refused("slopes is NULL");
  nameless.kind = 9;
  refused("slopes has kind 9");
  nameless.kind = ATTNC_CAPTURE_BOOL;
  nameless.integer = 2;
  refused("slopes is 2, expected 0 or 1");
  attnc_capture two[] = {scalar("a", ATTNC_CAPTURE_INT, 1), scalar("b", ATTNC_CAPTURE_INT, 1)};
  two[1].struct_size += 8;
  c.operands.captures = two;
  c.operands.capture_count = 2;
  refused("operands.captures has a struct_size of 56 at 1, and of 48 at 0");
  c.operands.capture_count = 0;
  c.options.family = 17;
  refused("options.family is 17, which is no family");
  c.options.family = ATTNC_FAMILY_AUTO;
  c.options.offsets = 17;
  refused("options.offsets is 17");
  c.options.offsets = ATTNC_OFFSETS_DEFAULT;
  c.options.tf32 = -1;
  refused("options.tf32 is -1");
  c.options.tf32 = 0;
  c.options.backward_later = 2;
  refused("options.backward_later is 2");
  c.options.backward_later = 0;
  c.options.decode = 3;
  refused("options.decode is 3");
  c.options.decode = ATTNC_DECODE_DEFAULT;
  c.operands.max_q_len = 5;
  refused("cu_seqlens_q is NULL");
  c.operands.max_q_len = 0;
  c.options.pin_count = 1;
  refused("options.pins is NULL");
  const attnc_pin pins[] = {{"KV_LEN", 64}, {nullptr, 64}};
  c.options.pins = pins;
  c.options.pin_count = 2;
  refused("options.pins[1].name is NULL");
}

TEST_CASE("a NULL inside an array is named by its element", "[c]") {
  attnc_mod* newMod = nullptr;
  auto parseOptions = sized<attnc_parse_options>();
  attnc_define defines[] = {{"A", "1"}, {nullptr, "1"}};
  parseOptions.defines = defines;
  parseOptions.define_count = 2;
  REFUSED(kArgument, "options.defines[1].name is NULL", attnc_mod_parse("score", ATTNC_WHOLE, &parseOptions, &newMod));
  defines[1] = {"B", nullptr};
  REFUSED(kArgument, "options.defines[1].value is NULL", attnc_mod_parse("score", ATTNC_WHOLE, &parseOptions, &newMod));
  const Owned<attnc_mod> mod = parse("score");
  const attnc_pin pin = {nullptr, 1};
  REFUSED(kArgument, "pins[0].name is NULL", attnc_mod_pinned(mod.get(), &pin, 1, &newMod));
  const char* const packs[] = {"a", nullptr};
  auto compilerOptions = sized<attnc_compiler_options>();
  compilerOptions.packs = packs;
  compilerOptions.pack_count = 2;
  attnc_compiler* made = nullptr;
  REFUSED(kArgument, "options.packs[1] is NULL", attnc_compiler_create(&compilerOptions, &made));
}
