// The C interface on a GPU: what it launches gives the bits that C++ gives.
#include "on_device.h"

#include "api/compiler_access.h"
#include "c/calls.h"
#include "helpers/plan_parts.h"
#include "helpers/temp_directory.h"
#include "support/element.h"

#include <cmath>
#include <deque>
#include <variant>

using namespace attnc;
using namespace attnc::gputest;
using ctest::made;
using ctest::Owned;
using ctest::sized;
using ctest::told;

namespace {

attnc_dtype dtypeC(DType dtype) {
  for (attnc_dtype candidate = ATTNC_DTYPE_BOOL; attnc_dtype_name(candidate); ++candidate)
    if (dtypeName(dtype) == attnc_dtype_name(candidate)) return candidate;
  FAIL("a dtype that C does not have");
  return 0;
}

/// Views and captures of C++ as C has them; addresses stay as they are while it lives.
struct InC {
  std::deque<attnc_tensor> tensors;
  std::deque<std::vector<attnc_capture>> lists;

  const attnc_tensor* operator()(const TensorView& view) {
    auto tensor = sized<attnc_tensor>();
    tensor.data = view.data;
    tensor.dtype = dtypeC(view.dtype);
    tensor.rank = view.rank;
    std::copy(view.shape.begin(), view.shape.end(), tensor.shape);
    std::copy(view.stride.begin(), view.stride.end(), tensor.stride);
    tensors.push_back(tensor);
    return &tensors.back();
  }
  const std::vector<attnc_capture>& operator()(const Captures& captures) {
    std::vector<attnc_capture> all;
    for (const auto& [name, item] : captures.all()) {
      auto capture = sized<attnc_capture>();
      capture.name = name.c_str();
      if (const auto* view = std::get_if<TensorView>(&item)) capture.tensor = (*this)(*view);
      if (const auto* value = std::get_if<int64_t>(&item)) {
        capture.kind = ATTNC_CAPTURE_INT;
        capture.integer = *value;
      }
      if (const auto* value = std::get_if<double>(&item)) {
        capture.kind = ATTNC_CAPTURE_FLOAT;
        capture.real = *value;
      }
      if (const auto* value = std::get_if<bool>(&item)) {
        capture.kind = ATTNC_CAPTURE_BOOL;
        capture.integer = *value;
      }
      all.push_back(capture);
    }
    return lists.emplace_back(std::move(all));
  }
};

/// A training step, with gradients of captures.
struct Step : OnDevice {
  Captures captureGradients;

  Step(const Mod& mod, const Problem& of) : OnDevice(mod, of, drawGradients(of, false)) {
    for (const CaptureInfo& info : mod.captures())
      if (info.kind == CaptureInfo::Kind::Tensor && info.dtype == DType::F32)
        captureGradients.set(info.name, placeResult(host.tensors.at(info.name)));
    gradients.captures = &captureGradients;
  }

  std::vector<std::vector<char>> bits() const {
    std::vector<std::vector<char>> all;
    for (size_t i : results) {
      all.emplace_back(buffers[i].bytes());
      take(buffers[i].download(all.back().data(), all.back().size()));
    }
    return all;
  }
};

/// The same as C takes it.
struct StepC {
  InC in;
  attnc_operands operands = sized<attnc_operands>();
  attnc_outputs outputs = sized<attnc_outputs>();
  attnc_backward_operands backward = sized<attnc_backward_operands>();
  attnc_backward_outputs gradients = sized<attnc_backward_outputs>();

  explicit StepC(const Step& step) {
    operands.q = in(step.inputs.q);
    operands.k = in(step.inputs.k);
    operands.v = in(step.inputs.v);
    const std::vector<attnc_capture>& captures = in(*step.inputs.captures);
    operands.captures = captures.data();
    operands.capture_count = captures.size();
    outputs.out = backward.out = in(step.inputs.out);
    outputs.lse = backward.lse = in(step.inputs.lse);
    backward.forward = &operands;
    backward.dout = in(step.inputs.dOut);
    gradients.dq = in(*step.gradients.dQ);
    gradients.dk = in(*step.gradients.dK);
    gradients.dv = in(*step.gradients.dV);
    const std::vector<attnc_capture>& wanted = in(step.captureGradients);
    gradients.captures = wanted.data();
    gradients.capture_count = wanted.size();
  }
  StepC(const StepC&) = delete;
};

Owned<attnc_compiler> compilerC(const attnc_compiler_options* options = nullptr) {
  return made<attnc_compiler>(attnc_compiler_create, options);
}

Owned<attnc_mod> modC(const Mod& mod) {
  return made<attnc_mod>(attnc_mod_parse_ir, mod.irText().c_str(), ATTNC_WHOLE, nullptr);
}

device::Buffer dirtyWorkspace(size_t bytes) { return filled(bytes, 0xa5); }

} // namespace

GPU_TEST_CASE("a training step through the C interface has the bits of C++", "[gpu][c]") {
  Gpu& gpu = *gputest::gpu();
  const Owned<attnc_compiler> compiler = compilerC();
  for (const char* name : {"noop", "causal", "alibi", "document"}) {
    INFO(name);
    const Mod mod = libraryMod(name);
    const Problem problem{{2, 4, 2, 300, 300}, 64, 64, DType::BF16};
    Step step(mod, problem);
    const StepC inC(step);
    CUstream_st* const stream = gpu.stream.get();

    const Prepared prepared =
        take(gpu.compiler.prepareTraining(mod, step.inputs, step.outputs, step.gradients, {.deterministic = true}));
    const device::Buffer workspace = dirtyWorkspace(prepared.workspaceBytes());
    step.poison();
    take(prepared.initialise(step.inputs, workspace.data(), stream));
    take(prepared.launch(step.inputs, step.outputs, workspace.data(), stream));
    take(prepared.launchBackward(step.inputs, step.gradients, workspace.data(), stream));
    take(gpu.stream.synchronize());
    const auto expected = step.bits();

    auto options = sized<attnc_prepare_options>();
    options.deterministic = 1;
    attnc_prepared* made = nullptr;
    const Owned<attnc_mod> mod2 = modC(mod);
    TAKE(attnc_prepare_training(compiler.get(), mod2.get(), &inC.backward, &inC.outputs, &inC.gradients, &options,
                                &made));
    const Owned<attnc_prepared> attention(made);
    size_t bytes = 0;
    TAKE(attnc_prepared_workspace_bytes(made, &bytes));
    CHECK(bytes == prepared.workspaceBytes());
    const device::Buffer workspaceC = dirtyWorkspace(bytes);
    step.poison();
    TAKE(attnc_prepared_initialise(made, &inC.operands, workspaceC.data(), stream));
    TAKE(attnc_prepared_launch(made, &inC.operands, &inC.outputs, workspaceC.data(), stream));
    TAKE(attnc_prepared_launch_backward(made, &inC.backward, &inC.gradients, workspaceC.data(), stream));
    take(gpu.stream.synchronize());
    CHECK((step.bits() == expected));

    auto info = sized<attnc_preparation_info>();
    TAKE(attnc_preparation_get_info(attnc_prepared_get_preparation(made), &info));
    CHECK(info.is_training == 1);
    CHECK(info.builds_block_mask == (prepared.blockMaskKernel() != nullptr));
    CHECK_THAT(attnc_preparation_text(attnc_prepared_get_preparation(made)), Catch::Contains(" registers, "));
    const attnc_preparation* of = attnc_prepared_get_preparation(made);
    const size_t plans = attnc_preparation_plan_count(of);
    CHECK(plans == 2 + size_t(info.builds_block_mask));
    attnc_compiled* compiled = nullptr;
    TAKE(attnc_compile(compiler.get(), attnc_preparation_get_plan(of, plans - 1), &compiled));
    CHECK(attnc_compiled_stage_count(compiled) == prepared.backwardKernel()->compiled().size());
    attnc_compiled_destroy(compiled);
    auto view = sized<attnc_block_mask_view>();
    if (bytes) {
      const attnc_status status = attnc_prepared_block_mask_in(made, workspaceC.data(), &view);
      CHECK(status == (info.builds_block_mask ? ATTNC_OK : ATTNC_ERROR_ENVIRONMENT));
    }

    // A launch that does not fit is refused, and nothing is enqueued.
    attnc_operands missing = inC.operands;
    const attnc_tensor empty = [&] {
      attnc_tensor tensor = *inC.operands.k;
      tensor.data = nullptr;
      return tensor;
    }();
    missing.k = &empty;
    REFUSED(ATTNC_ERROR_ENVIRONMENT, "k is null",
            attnc_prepared_launch(made, &missing, &inC.outputs, workspaceC.data(), stream));
    take(gpu.stream.synchronize());
    CHECK((step.bits() == expected));
  }
}

GPU_TEST_CASE("what is tuned through the C interface is what it prepares then", "[gpu][c]") {
  const test::TempDirectory home;
  const std::string directory = home / "cache";
  auto how = sized<attnc_compiler_options>();
  how.cache_directory = directory.c_str();
  const Owned<attnc_compiler> compiler = compilerC(&how);
  const Mod mod = libraryMod("alibi");
  const Problem problem{{2, 4, 2, 300, 300}, 64, 64, DType::BF16};
  const Step step(mod, problem);
  const StepC inC(step);
  const Owned<attnc_mod> mod2 = modC(mod);
  attnc_tuning* made = nullptr;
  TAKE(attnc_tune(compiler.get(), mod2.get(), &inC.operands, &inC.outputs, nullptr, gputest::gpu()->stream.get(),
                  &made));
  const Owned<attnc_tuning> forward(made);
  CHECK(attnc_tuning_tile_count(made, ATTNC_PASS_FORWARD) > 1);
  CHECK(attnc_tuning_tile_count(made, ATTNC_PASS_BACKWARD) == 0);
  TAKE(attnc_tune_training(compiler.get(), mod2.get(), &inC.backward, &inC.outputs, &inC.gradients, nullptr,
                           gputest::gpu()->stream.get(), &made));
  const Owned<attnc_tuning> tuning(made);
  const auto planInfo = [](const attnc_preparation* preparation, attnc_pass pass) {
    const size_t index = pass == ATTNC_PASS_FORWARD ? 0 : attnc_preparation_plan_count(preparation) - 1;
    return told<attnc_plan_info>(attnc_plan_get_info, attnc_preparation_get_plan(preparation, index));
  };
  for (attnc_pass pass : {ATTNC_PASS_FORWARD, ATTNC_PASS_BACKWARD}) {
    size_t winners = 0;
    for (size_t i = 0; i < attnc_tuning_tile_count(made, pass); ++i) {
      auto tile = sized<attnc_tuned_tile>();
      TAKE(attnc_tuning_get_tile(made, pass, i, &tile));
      INFO(tile.tile);
      CHECK(tile.ms > 0);
      CHECK(std::string(tile.passed_over).empty());
      if (!tile.is_winner) continue;
      CHECK(std::string(tile.tile) == planInfo(attnc_tuning_get_preparation(made), pass).tile);
      ++winners;
    }
    CHECK(winners == 1);
  }
  attnc_preparation* settled = nullptr;
  TAKE(attnc_settle_training(compiler.get(), mod2.get(), &inC.backward, &inC.outputs, &inC.gradients, nullptr,
                             &settled));
  for (attnc_pass pass : {ATTNC_PASS_FORWARD, ATTNC_PASS_BACKWARD}) {
    const attnc_plan_info tuned = planInfo(attnc_tuning_get_preparation(made), pass), taken = planInfo(settled, pass);
    CHECK(std::string(taken.tile) == tuned.tile);
    CHECK(std::string(taken.tuned_by) == tuned.tuned_by);
    if (pass == ATTNC_PASS_FORWARD) CHECK_FALSE(std::string(taken.tuned_by).empty());
  }
  attnc_preparation_destroy(settled);
}

GPU_TEST_CASE("C rounds to e4m3 on the GPU as on the CPU", "[gpu]") {
  Gpu& gpu = *gputest::gpu();
  if (gpu.context.info().arch == "sm_80" || gpu.context.info().arch == "sm_86") return;
  attnc_compiler* made = nullptr;
  TAKE(attnc_compiler_create(nullptr, &made));
  const Owned<attnc_compiler> compiler(made);
  attnc_quantiser* loaded = nullptr;
  TAKE(attnc_quantiser_create(compiler.get(), ATTNC_DTYPE_F32, 64, &loaded));
  const Owned<attnc_quantiser> quantiser(loaded);
  cli::HostTensor x = cli::HostTensor::make(DType::F32, {2, 3, 200, 64});
  for (int64_t i = 0; i < x.elements(); ++i) writeElement(x.bytes.data(), DType::F32, i, std::sin(0.7 * double(i)));
  cli::HostTensor values = cli::HostTensor::make(DType::E4M3, x.shape),
                  scales = cli::HostTensor::make(DType::F32, {2, 3, 2}), found = values, foundScales = scales;
  InC inC;
  TAKE(attnc_quantise_on_cpu(inC(x.view()), inC(values.view()), inC(scales.view()), nullptr));
  device::Buffer buffers[] = {take(device::Buffer::allocate(x.bytes.size())),
                              take(device::Buffer::allocate(values.bytes.size())),
                              take(device::Buffer::allocate(scales.bytes.size()))};
  take(buffers[0].upload(x.bytes.data(), x.bytes.size()));
  TensorView views[] = {x.view(), values.view(), scales.view()};
  for (int i = 0; i < 3; ++i) views[i].data = buffers[i].data();
  TAKE(attnc_quantiser_launch(quantiser.get(), inC(views[0]), inC(views[1]), inC(views[2]), nullptr, gpu.stream.get()));
  take(gpu.stream.synchronize());
  take(buffers[1].download(found.bytes.data(), found.bytes.size()));
  take(buffers[2].download(foundScales.bytes.data(), foundScales.bytes.size()));
  CHECK((found.bytes == values.bytes));
  CHECK((foundScales.bytes == scales.bytes));
  REFUSED(ATTNC_ERROR_ENVIRONMENT, "x is e4m3",
          attnc_quantiser_launch(quantiser.get(), inC(views[1]), inC(views[1]), inC(views[2]), nullptr, nullptr));
}
