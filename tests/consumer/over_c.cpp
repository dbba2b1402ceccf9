// Calls every function of attnc/c.hpp, with libattnc.so and nothing else of attnc. Needs neither a GPU nor NVRTC.
#include <attnc/c.hpp>

#include <cstdio>
#include <cstring>

namespace ac = attnc::c;

#define CHECK(condition)                                                                                               \
  do {                                                                                                                 \
    if (!(condition)) return std::fprintf(stderr, "line %d: %s\n", __LINE__, #condition), 1;                           \
  } while (false)

namespace {

constexpr const char* kBias = "slopes: f32[H]\nwindow: int\nfactor: float\nstrict: bool\n"
                              "def score_mod(s, b, h, q, k):\n    return s * slopes[h] * factor\n"
                              "def mask_mod(b, h, q, k):\n    return (k < window) & ~strict\n";

/// One query; the second of two keys is masked, so out is v of the first one.
struct Small {
  float q[2] = {1, 2}, k[4] = {3, 4, 5, 6}, v[4] = {7, 8, 9, 10}, out[2] = {}, lse = 0, dOut[2] = {1, 2}, dQ[2] = {},
        dK[4] = {}, dV[4] = {}, slope = 0.25f, dSlope = 0;
  ac::TensorView qView = ac::TensorView::contiguous(q, ATTNC_DTYPE_F32, {1, 1, 1, 2}),
                 kView = ac::TensorView::contiguous(k, ATTNC_DTYPE_F32, {1, 1, 2, 2}), vView = kView, outView = qView,
                 lseView = ac::TensorView::contiguous(&lse, ATTNC_DTYPE_F32, {1, 1, 1}), dOutView = qView,
                 dQView = qView, dKView = kView, dVView = kView;
  ac::Captures captures, wanted;
  ac::Operands operands;
  ac::Outputs outputs;
  ac::BackwardOperands backward;
  ac::BackwardOutputs gradients;

  Small() {
    vView.data = v, outView.data = out, dOutView.data = dOut, dQView.data = dQ, dKView.data = dK, dVView.data = dV;
    captures.set("slopes", ac::TensorView::contiguous(&slope, ATTNC_DTYPE_F32, {1}));
    captures.set("window", 9).set("window", 1).set("factor", 2.0).set("strict", false);
    wanted.set("slopes", ac::TensorView::contiguous(&dSlope, ATTNC_DTYPE_F32, {1}));
    operands.q = &qView, operands.k = &kView, operands.v = &vView, operands.scale = 1, operands.has_scale = 1;
    operands.set(captures);
    outputs.out = &outView, outputs.lse = &lseView;
    backward.forward = &operands, backward.out = &outView, backward.lse = backward.dlse = &lseView;
    backward.dout = &dOutView;
    gradients.dq = &dQView, gradients.dk = &dKView, gradients.dv = &dVView;
    gradients.set(wanted);
  }
};

int mods() {
  const auto mod = ac::Mod::parse(kBias).value();
  const ac::Mod copy = mod;
  CHECK(copy.info().capture_count == 4);
  CHECK(std::strcmp(copy.captures().at(0).name, "slopes") == 0);
  CHECK(copy.info().reduction_count == 0);
  CHECK(copy.reductions().empty());
  CHECK(mod.astText().find("score_mod") != std::string::npos);
  const auto again = ac::Mod::parseIr(mod.irText());
  CHECK(again && !std::strcmp(again->info().hash, mod.info().hash));
  CHECK(mod.pinned({{"window", 1}})->irText() != mod.irText());
  const auto mixed = ac::Mod::choice({&mod, &copy}, "which: i32[B]");
  CHECK(mixed && mixed->irText().find("which") != std::string::npos);
  CHECK(!ac::Mod::identity().info().has_mask_mod);
  CHECK(ac::Mod::parse("q_idx >= kv_idx & q_idx - kv_idx <= 128")->warnings().size() == 1);

  ac::ParseOptions options;
  options.name = "wrong.py";
  const auto wrong = ac::Mod::parse("score +", options);
  CHECK(!wrong && wrong.error().status == ATTNC_ERROR_MOD && !wrong.error().diagnostics.empty());
  CHECK(wrong.error().diagnostics[0].file == "wrong.py" && wrong.error().diagnostics[0].line == 1);
  const auto missing = ac::Mod::load("/nowhere/mod.py");
  CHECK(!missing && missing.error().status == ATTNC_ERROR_ENVIRONMENT && missing.error().diagnostics.empty());
#if defined(__cpp_exceptions)
  try {
    missing.value();
    return 1;
  } catch (const ac::Failure& failure) {
    CHECK(failure.error.status == ATTNC_ERROR_ENVIRONMENT);
    CHECK(!std::strncmp(failure.what(), failure.error.message.c_str(), failure.error.message.size()));
  }
#endif
  ac::Claim claim;
  claim.property = "kv_idx < q_idx";
  const auto proof = ac::Mod::parse("q_idx >= kv_idx")->prove(claim);
  CHECK(proof && proof->find("refuted") != std::string::npos);
  claim.property = "";
  CHECK(!mod.prove(claim));
  const char* json = nullptr;
  CHECK(!ac::Mod::infer(attnc_tensor{}, json)); // no tensor
  // Results keep alive what their pointers belong to.
  const ac::ModInfo info = ac::Mod::parse("score", options)->info();
  CHECK(std::strcmp(info.name, "wrong.py") == 0);
  // Neither is a tensor.
  const uint64_t nothing[32] = {};
  CHECK(!ac::TensorView::fromDlpack(nullptr, ATTNC_DEVICE_HOST));
  CHECK(!ac::TensorView::fromDlpackVersioned(nothing, ATTNC_DEVICE_HOST, true));
  return 0;
}

int reference() {
  Small small;
  const auto mod = ac::Mod::parse(kBias).value();
  ac::computeOnCpu(mod, small.operands, small.outputs).value();
  CHECK(small.out[0] == 7 && small.out[1] == 8 && small.lse == 5.5f);
  // The one weight is 1, so only the gradient of lse counts, which is 5.5 here.
  ac::computeBackwardOnCpu(mod, small.backward, small.gradients).value();
  CHECK(small.dV[0] == 1 && small.dV[1] == 2 && small.dV[2] == 0);
  CHECK(small.dQ[0] == 5.5f * 0.5f * 3);
  CHECK(small.dSlope == 5.5f * 2 * 11);
  // What was moved keeps its names and tensors.
  const ac::Captures moved = std::move(small.captures);
  small.operands.set(moved);
  small.out[0] = 0;
  CHECK(ac::computeOnCpu(mod, small.operands, small.outputs) && small.out[0] == 7);
  small.outView.shape[3] = 1;
  const auto refused = ac::computeOnCpu(mod, small.operands, small.outputs);
  CHECK(!refused && refused.error().message.find("out is [1, 1, 1, 1]") != std::string::npos);
  return 0;
}

int blockMasks() {
  const auto mod = ac::Mod::parse("q_idx >= kv_idx").value();
  const ac::BlockMaskShape shape = {1, 1, 512, 512, 128, 128};
  const auto mask = ac::BlockMask::build(mod, {}, {1, 1, 1, 512, 512}, shape).value();
  CHECK(mask.info().live_blocks == 10 && mask.info().full_blocks == 6);
  CHECK(mask.toString(0, 0, 8).size() > 16);
  const auto both = mask.withColumns().value();
  const auto copy = ac::BlockMask::fromLists(both.view()).value();
  CHECK(copy.view().columns.partial_count[0] == 1 && copy.view().columns.full_count[0] == 3);
  const size_t bytes = ac::BlockMask::storageBytes(shape, true).value();
  CHECK(bytes > ac::BlockMask::storageBytes(shape).value());
  std::vector<int32_t> storage(bytes / 4);
  const auto view = ac::BlockMask::viewInto(storage.data(), shape, true).value();
  CHECK(copy.write(true, storage.data(), bytes) && view.rows.full_count[3] == 3);
  CHECK(!mask.write(true, storage.data(), bytes));
  return 0;
}

int shards() {
  ac::ShardMask mask;
  const auto mod = ac::Mod::parse("q_idx >= kv_idx").value();
  mask.mod = mod.get();
  const auto plan = ac::ShardPlan::make({mask, mask}, {1, 2, 1, 1024, 1024}, 4).value();
  CHECK(plan.info().world == 4 && plan.info().mask_count == 2);
  CHECK(plan.tokens(3)->row_count > 0 && !plan.tokens(4));
  CHECK(plan.work(1, 3)->piece_count > 0 && !plan.work(2, 3));

  // One rank, on the CPU: nothing travels, and out is v of the first key.
  Small small;
  const auto first = ac::Mod::parse("kv_idx < 1").value();
  mask.mod = first.get();
  const auto alone = ac::ShardPlan::make({mask}, {1, 1, 1, 1, 2}, 1).value();
  small.operands.captures = nullptr, small.operands.capture_count = 0;
  const auto sharded = ac::ShardedAttention::prepare(nullptr, first, alone, 0, 0, small.operands, small.outputs);
  CHECK(sharded);
  std::vector<unsigned char> workspace(sharded->workspaceBytes() + 1);
  ac::ShardEngine engine;
  engine.exchange = [](void*, const attnc_shard_message*, size_t, const attnc_shard_message*, size_t, attnc_stream) {
    return 1;
  };
  CHECK(sharded->initialise(small.operands, workspace.data(), nullptr));
  CHECK(sharded->launch(small.operands, small.outputs, engine, workspace.data(), nullptr, nullptr));
  CHECK(small.out[0] == 7 && small.out[1] == 8);
  small.gradients.captures = nullptr, small.gradients.capture_count = 0;
  const auto training = ac::ShardedAttention::prepareTraining(nullptr, first, alone, 0, 0, small.backward,
                                                              small.outputs, small.gradients);
  CHECK(training && training->workspaceBytes() == 0 && training->keptBytes() == 0);
  CHECK(training->initialise(small.operands, nullptr, nullptr));
  CHECK(training->launchTraining(small.operands, small.outputs, engine, nullptr, nullptr, nullptr, nullptr));
  CHECK(training->launchBackward(small.backward, small.gradients, engine, nullptr, nullptr, nullptr, nullptr));
  CHECK(small.dV[0] == 1 && small.dV[1] == 2 && small.dV[2] == 0);
  return 0;
}

int quantise() {
  std::vector<float> x(2 * 4 * 8, 2), scales(2);
  std::vector<unsigned char> values(x.size());
  const auto in = ac::TensorView::contiguous(x.data(), ATTNC_DTYPE_F32, {1, 2, 4, 8}),
             out = ac::TensorView::contiguous(values.data(), ATTNC_DTYPE_E4M3, {1, 2, 4, 8}),
             factors = ac::TensorView::contiguous(scales.data(), ATTNC_DTYPE_F32, {1, 2});
  CHECK(ac::quantiseOnCpu(in, out, factors, {}));
  CHECK(scales[1] == 2.f / 448 && values.back() == 0x7e);
  CHECK(!ac::quantiseOnCpu(in, in, factors, {}));
  ac::QuantiseOptions options;
  options.reads_scales = 1;
  scales[1] = 2;
  CHECK(ac::quantiseOnCpu(in, out, factors, options));
  CHECK(scales[1] == 2 && values.back() == 0x38); // 1
  return 0;
}

/// Calls what needs a GPU. No context is current, so all of it is refused, and what follows a success is only linked.
int launches(const ac::Compiler& compiler, const ac::Mod& mod, Small& small) {
  const auto refused = [](const auto& result) { return !result; };
  CHECK(refused(compiler.tune(mod, small.operands, small.outputs)));
  if (const auto quantiser = ac::Quantiser::load(compiler, ATTNC_DTYPE_F32, 64))
    CHECK(refused(quantiser->launch(small.qView, small.qView, small.qView, {}, nullptr)));
  CHECK(refused(compiler.tuneTraining(mod, small.backward, small.outputs, small.gradients)));
  if (const auto attention = compiler.prepare(mod, small.operands, small.outputs)) {
    CHECK(!attention->preparation().text().empty());
    CHECK(attention->workspaceBytes() < size_t(1) << 20);
    CHECK(refused(attention->initialise(ac::Operands(), nullptr, nullptr)));
    CHECK(refused(attention->launch(ac::Operands(), small.outputs, nullptr, nullptr)));
    CHECK(refused(attention->launchBackward(small.backward, small.gradients, nullptr, nullptr)));
    CHECK(refused(attention->blockMaskIn(nullptr)));
  }
  CHECK(refused(compiler.prepareTraining(mod, {}, small.outputs, small.gradients)));
  if (const auto tuning = compiler.tune(mod, {}, {}))
    CHECK(tuning->tiles().empty() && tuning->preparation().kernels().empty());
  return 0;
}

int compilers() {
  ac::CompilerOptions options;
  options.cache_mode = ATTNC_CACHE_OFF;
  options.nvrtc_path = "/nowhere/libnvrtc.so";
  const auto compiler = ac::Compiler::create(options).value();
  const auto mod = ac::Mod::parse(kBias).value();
  Small small; // of no memory
  for (ac::TensorView* view : {&small.qView, &small.kView, &small.vView, &small.outView, &small.lseView})
    view->data = nullptr;
  small.qView.shape[3] = small.kView.shape[3] = small.vView.shape[3] = small.outView.shape[3] = 8;
  ac::PrepareOptions choices;
  choices.arch = "sm_80";
  const auto settled = compiler.settle(mod, small.operands, small.outputs, choices).value();
  CHECK(settled.info().problem.kv_len == 2);
  CHECK(settled.text().find("sm80") != std::string::npos && settled.kernels().size() == 1);
  const ac::Plan plan = settled.kernels().front();
  const auto kernel = plan.options();
  CHECK(kernel.family == ATTNC_FAMILY_SM80);
  CHECK(plan.info().gains_from_block_mask == 0 && compiler.plan(mod, kernel)->options().family == kernel.family);
  CHECK(std::strcmp(compiler.source(plan)->stages().at(0).template_name, "forward_sm80.cu") == 0);
  const auto training = compiler.settleTraining(mod, small.backward, small.outputs, small.gradients, choices);
  CHECK(!training || training->kernels().back().options().kind == ATTNC_KERNEL_BACKWARD);

  // There is no NVRTC where it was told to look.
  const auto failed = [](const auto& result) { return !result && result.error().status == ATTNC_ERROR_ENVIRONMENT; };
  const auto compiled = compiler.compile(plan);
  CHECK(failed(compiled));
  if (compiled) CHECK(compiled->stages().empty());
  CHECK(failed(compiler.pack({plan})) && failed(compiler.addPack("/nowhere/kernels.attnc")));
  CHECK(failed(compiler.explain(settled)));
  return launches(compiler, mod, small);
}

} // namespace

int main() {
  for (const auto test : {mods, reference, blockMasks, shards, quantise, compilers})
    if (test() != 0) return 1;
  std::printf("attnc %s: all is well\n", attnc_version_text());
  return 0;
}
