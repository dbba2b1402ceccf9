// Helpers of the tests of the C interface.
#pragma once

#include "attnc/c.h"

#include <catch2/catch.hpp>

#include <initializer_list>
#include <memory>
#include <string>

// A call that must succeed.
#define TAKE(call)                                                                                                     \
  do {                                                                                                                 \
    const attnc_status status = (call);                                                                                \
    INFO(attnc_last_error());                                                                                          \
    REQUIRE(status == ATTNC_OK);                                                                                       \
  } while (false)

// A call that must fail with this status, and with this text in its message.
#define REFUSED(expected, part, call)                                                                                  \
  do {                                                                                                                 \
    CHECK((call) == (expected));                                                                                       \
    CHECK_THAT(attnc_last_error(), Catch::Contains(part));                                                             \
  } while (false)

namespace ctest {

struct Destroy {
  void operator()(attnc_mod* handle) const { attnc_mod_destroy(handle); }
  void operator()(attnc_compiler* handle) const { attnc_compiler_destroy(handle); }
  void operator()(attnc_compiled* handle) const { attnc_compiled_destroy(handle); }
  void operator()(attnc_pack* handle) const { attnc_pack_destroy(handle); }
  void operator()(attnc_plan* handle) const { attnc_plan_destroy(handle); }
  void operator()(attnc_source* handle) const { attnc_source_destroy(handle); }
  void operator()(attnc_block_mask* handle) const { attnc_block_mask_destroy(handle); }
  void operator()(attnc_preparation* handle) const { attnc_preparation_destroy(handle); }
  void operator()(attnc_prepared* handle) const { attnc_prepared_destroy(handle); }
  void operator()(attnc_shard_plan* handle) const { attnc_shard_plan_destroy(handle); }
  void operator()(attnc_tuning* handle) const { attnc_tuning_destroy(handle); }
  void operator()(attnc_quantiser* handle) const { attnc_quantiser_destroy(handle); }
  void operator()(attnc_sharded* handle) const { attnc_sharded_destroy(handle); }
};
template <class Handle> using Owned = std::unique_ptr<Handle, Destroy>;

/// Returns a struct of defaults.
template <class T> T sized() {
  T all = {};
  all.struct_size = sizeof(T);
  return all;
}

/// Returns the handle that a call makes, which must succeed.
template <class Handle, class Create, class... Arguments> Owned<Handle> made(Create create, Arguments... arguments) {
  Handle* handle = nullptr;
  TAKE(create(arguments..., &handle));
  return Owned<Handle>(handle);
}

/// Returns the struct that a call fills, which must succeed.
template <class T, class Get, class... Arguments> T told(Get get, Arguments... arguments) {
  T all = sized<T>();
  TAKE(get(arguments..., &all));
  return all;
}

inline attnc_tensor tensor(attnc_dtype dtype, std::initializer_list<int64_t> shape, void* data = nullptr) {
  attnc_tensor view = sized<attnc_tensor>();
  view.dtype = dtype;
  view.data = data;
  for (int64_t extent : shape) view.shape[view.rank++] = extent;
  TAKE(attnc_tensor_make_dense(&view));
  return view;
}

inline attnc_capture capture(const char* name, const attnc_tensor* value) {
  attnc_capture all = sized<attnc_capture>();
  all.name = name;
  all.tensor = value;
  return all;
}

inline attnc_capture scalar(const char* name, attnc_capture_kind kind, int64_t integer, double real = 0) {
  attnc_capture all = sized<attnc_capture>();
  all.name = name;
  all.kind = kind;
  all.integer = integer;
  all.real = real;
  return all;
}

/// Chooses a kernel, and passes its plan on.
template <class Next>
attnc_status planned(const attnc_compiler* compiler, const attnc_mod* mod, const attnc_kernel_options* options,
                     Next next) {
  attnc_plan* plan = nullptr;
  const attnc_status status = attnc_plan_create(compiler, mod, options, &plan);
  const Owned<attnc_plan> owned(plan);
  return status == ATTNC_OK ? next(plan) : status;
}
inline attnc_status sourceOf(const attnc_compiler* compiler, const attnc_mod* mod, const attnc_kernel_options* options,
                             attnc_source** source) {
  return planned(compiler, mod, options, [&](const attnc_plan* plan) { return attnc_source_create(plan, source); });
}
inline attnc_status compile(const attnc_compiler* compiler, const attnc_mod* mod, const attnc_kernel_options* options,
                            attnc_compiled** compiled) {
  return planned(compiler, mod, options,
                 [&](const attnc_plan* plan) { return attnc_compile(compiler, plan, compiled); });
}
inline attnc_status gainsFromBlockMask(const attnc_compiler* compiler, const attnc_mod* mod,
                                       const attnc_kernel_options* options, int32_t* gains) {
  return planned(compiler, mod, options, [&](const attnc_plan* plan) {
    auto info = sized<attnc_plan_info>();
    const attnc_status status = attnc_plan_get_info(plan, &info);
    *gains = info.gains_from_block_mask;
    return status;
  });
}
/// Fills the options of a kernel of a preparation; the last one is the backward kernel's.
inline attnc_status optionsOf(const attnc_preparation* preparation, size_t index, attnc_kernel_options* options) {
  return attnc_plan_get_options(attnc_preparation_get_plan(preparation, index), options);
}
inline attnc_status lastOptionsOf(const attnc_preparation* preparation, attnc_kernel_options* options) {
  return optionsOf(preparation, attnc_preparation_plan_count(preparation) - 1, options);
}

inline Owned<attnc_mod> parse(const char* text) { return made<attnc_mod>(attnc_mod_parse, text, ATTNC_WHOLE, nullptr); }

/// Returns a compiler that does not touch the disk.
inline Owned<attnc_compiler> compiler() {
  attnc_compiler_options options = sized<attnc_compiler_options>();
  options.cache_mode = ATTNC_CACHE_OFF;
  return made<attnc_compiler>(attnc_compiler_create, &options);
}

/// Operands of a forward and a backward pass, without memory.
struct Case {
  attnc_tensor q = tensor(ATTNC_DTYPE_BF16, {2, 8, 1000, 64}), k = tensor(ATTNC_DTYPE_BF16, {2, 2, 3000, 64}),
               v = tensor(ATTNC_DTYPE_BF16, {2, 2, 3000, 32}), out = tensor(ATTNC_DTYPE_BF16, {2, 8, 1000, 32}),
               lse = tensor(ATTNC_DTYPE_F32, {2, 8, 1000});
  attnc_operands operands = sized<attnc_operands>();
  attnc_outputs outputs = sized<attnc_outputs>();
  attnc_backward_operands backwardOperands = sized<attnc_backward_operands>();
  attnc_backward_outputs gradients = sized<attnc_backward_outputs>();
  attnc_prepare_options options = sized<attnc_prepare_options>();

  Case() {
    operands.q = &q;
    operands.k = &k;
    operands.v = &v;
    outputs.out = backwardOperands.out = backwardOperands.dout = &out;
    backwardOperands.forward = &operands;
    backwardOperands.lse = &lse;
    gradients.dq = &q;
    gradients.dk = &k;
    gradients.dv = &v;
    options.arch = "sm_90a";
  }
  Case(const Case&) = delete;

  attnc_status settle(const attnc_mod* mod, Owned<attnc_preparation>* to = nullptr) const {
    attnc_preparation* made = nullptr;
    const attnc_status status = attnc_settle(compiler().get(), mod, &operands, &outputs, &options, &made);
    Owned<attnc_preparation> held(made);
    if (to) *to = std::move(held);
    return status;
  }
};

inline const char* const kAlibi = "slopes: f32[H]\n"
                                  "def score_mod(score, b, h, q_idx, kv_idx):\n"
                                  "    return score + slopes[h] * (kv_idx - q_idx)\n";
inline const char* const kDocument = "ids: i32[B, KV_LEN]\n"
                                     "def mask_mod(b, h, q_idx, kv_idx):\n"
                                     "    return ids[b, q_idx] == ids[b, kv_idx]\n";

} // namespace ctest
