// ALiBi with a causal mask, from C: on the GPU if there is one, else compiled for another machine.
//   attention_c [arch, default sm_90a]
#include "support.h"

enum { kBatch = 1, kHeads = 4, kLength = 256, kHeadDim = 64, kElements = kBatch * kHeads * kLength * kHeadDim };

static const char kMod[] = "slopes: f32[H]\n"
                           "def score_mod(score, b, h, q_idx, kv_idx):\n"
                           "    return score + slopes[h] * (kv_idx - q_idx)\n"
                           "def mask_mod(b, h, q_idx, kv_idx):\n"
                           "    return q_idx >= kv_idx\n";

/// Without a GPU: prints what would be chosen there, and its machine code.
static void compile_ahead(const attnc_compiler* compiler, const attnc_mod* mod, const attnc_operands* operands,
                          const attnc_outputs* outputs, const char* arch) {
  const attnc_prepare_options options = {.struct_size = sizeof options, .arch = arch};
  attnc_preparation* preparation;
  check(attnc_settle(compiler, mod, operands, outputs, &options, &preparation));
  printf("no GPU here, compiling for %s\n%s", arch, attnc_preparation_text(preparation));

  attnc_compiled* compiled;
  check(attnc_compile(compiler, attnc_preparation_get_plan(preparation, 0), &compiled));
  for (size_t i = 0; i < attnc_compiled_stage_count(compiled); ++i) {
    attnc_compiled_stage stage = {.struct_size = sizeof stage};
    check(attnc_compiled_get_stage(compiled, i, &stage));
    printf("%s: %zu bytes of cubin, %d registers, %d bytes of spills\n", stage.template_name, stage.cubin_bytes,
           stage.registers, stage.spill_bytes);
  }
  attnc_compiled_destroy(compiled);
  attnc_preparation_destroy(preparation);
}

static void launch(const device* gpu, const attnc_compiler* compiler, const attnc_mod* mod,
                   const attnc_operands* operands, const attnc_outputs* outputs) {
  attnc_prepared* attention;
  check(attnc_prepare(compiler, mod, operands, outputs, NULL, &attention));
  printf("%s", attnc_preparation_text(attnc_prepared_get_preparation(attention)));

  void* workspace = workspace_of(gpu, attention);
  check(attnc_prepared_initialise(attention, operands, workspace, NULL));
  check(attnc_prepared_launch(attention, operands, outputs, workspace, NULL)); // any number of times
  check_cuda(gpu->synchronize());
  if (workspace) check_cuda(gpu->release((uint64_t)workspace));
  attnc_prepared_destroy(attention);
}

int main(int argc, char** argv) {
  attnc_mod* mod;
  const attnc_parse_options named = {.struct_size = sizeof named, .name = "alibi"};
  check(attnc_mod_parse(kMod, ATTNC_WHOLE, &named, &mod));
  attnc_mod_info info = {.struct_size = sizeof info};
  check(attnc_mod_get_info(mod, &info));
  printf("attnc %s: %s captures %zu\n", attnc_version_text(), info.name, info.capture_count);

  attnc_compiler* compiler;
  check(attnc_compiler_create(NULL, &compiler));

  const int64_t shape[] = {kBatch, kHeads, kLength, kHeadDim}, heads = kHeads;
  attnc_tensor qkv = tensor(ATTNC_DTYPE_BF16, 4, shape), out = qkv, slopes = tensor(ATTNC_DTYPE_F32, 1, &heads);
  const attnc_capture capture = {.struct_size = sizeof capture, .name = "slopes", .tensor = &slopes};
  attnc_operands operands = {.struct_size = sizeof operands, .q = &qkv, .k = &qkv, .v = &qkv};
  const attnc_outputs outputs = {.struct_size = sizeof outputs, .out = &out};

  int result = 0;
  device gpu;
  if (device_open(&gpu)) {
    static uint16_t host[kElements], computed[kElements];
    for (int i = 0; i < kElements; ++i) host[i] = to_bf16((float)(i % 17) / 16 - 0.5f);
    const float slope[kHeads] = {0.25f, 0.0625f, 0.015625f, 0.00390625f};
    qkv.data = upload(&gpu, host, sizeof host);
    out.data = upload(&gpu, computed, sizeof computed);
    slopes.data = upload(&gpu, slope, sizeof slope);
    operands.captures = &capture;
    operands.capture_count = 1;
    launch(&gpu, compiler, mod, &operands, &outputs);
    check_cuda(gpu.download(computed, (uint64_t)out.data, sizeof computed));
    // The first query sees only the first key, so its output is the first row of v.
    for (int i = 0; i < kHeadDim; ++i) result |= computed[i] != host[i];
    printf("out[0, 0, 0]: %g, %g, %g, ...: %s\n", from_bf16(computed[0]), from_bf16(computed[1]),
           from_bf16(computed[2]), result ? "WRONG" : "as v[0, 0, 0]");
    void* const memory[] = {qkv.data, out.data, slopes.data};
    for (int i = 0; i < 3; ++i) check_cuda(gpu.release((uint64_t)memory[i]));
  } else {
    compile_ahead(compiler, mod, &operands, &outputs, argc > 1 ? argv[1] : "sm_90a");
  }
  attnc_compiler_destroy(compiler);
  attnc_mod_destroy(mod);
  return result;
}
