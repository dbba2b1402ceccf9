// Runs the examples of the README, which the build extracts from it.
#include "gpu.h"

#include "attnc/c.h"

#include <functional>

bool alibi(const attnc::Compiler& compiler, attnc::TensorView q, attnc::TensorView k, attnc::TensorView v,
           attnc::TensorView out, float* slopes, const std::function<void*(size_t)>& allocate, attnc::Stream stream);

bool train(const attnc::Compiler& compiler, const attnc::Mod& mod, const attnc::BackwardOperands& operands,
           const attnc::BackwardOutputs& gradients, const std::function<void*(size_t)>& allocate, attnc::Stream stream);

extern "C" attnc_status alibi_in_c(const attnc_compiler* compiler, const attnc_tensor* q, const attnc_tensor* k,
                                   const attnc_tensor* v, const attnc_tensor* out, float* slopes,
                                   void* (*allocate)(size_t bytes), attnc_stream stream);

using namespace attnc;
using namespace attnc::gputest;

namespace {

const Problem kProblem{{2, 4, 2, 100, 150}, 128, 128, DType::BF16};

/// Device memory of an example; a workspace is poisoned with NaN.
struct Memory {
  std::vector<device::Buffer> buffers;
  device::Buffer workspace;

  TensorView place(const cli::HostTensor& tensor) {
    buffers.push_back(take(device::Buffer::allocate(tensor.bytes.size())));
    take(buffers.back().upload(tensor.bytes.data(), tensor.bytes.size()));
    TensorView view = tensor.view();
    view.data = buffers.back().data();
    return view;
  }
  void* allocate(size_t bytes) {
    workspace = take(device::Buffer::allocate(bytes));
    if (bytes) take(workspace.fill(0xff));
    return workspace.data();
  }
  /// What was placed at this index, counted from 0.
  std::vector<double> read(size_t index, const cli::HostTensor& like) const {
    cli::HostTensor host = cli::HostTensor::make(like.dtype, like.shape);
    take(buffers[index].download(host.bytes.data(), host.bytes.size()));
    return toDoubles(host);
  }
};

} // namespace

TEST_CASE("the README's C++ example computes ALiBi", "[gpu]") {
  ATTNC_NEED_GPU();
  Gpu& device = *gpu();
  const Mod mod = libraryMod("alibi");
  const Problem& problem = kProblem;
  const HostOperands operands = draw(mod, problem);
  Memory memory;
  const auto place = [&](const cli::HostTensor& tensor) { return memory.place(tensor); };
  const auto allocate = [&](size_t bytes) { return memory.allocate(bytes); };
  const TensorView q = place(operands.q), k = place(operands.k), v = place(operands.v);
  const TensorView slopes = place(operands.tensors.at("slopes"));
  TensorView out = place(cli::HostTensor::make(DType::BF16, {2, 4, 100, 128}));
  REQUIRE(alibi(device.compiler, q, k, v, out, static_cast<float*>(slopes.data), allocate, device.stream.get()));
  take(device.stream.synchronize());

  Outcome actual{memory.read(4, operands.q), {}, {}};
  Outcome expected = runReference(mod, problem, operands);
  expected.lse.clear();
  checkClose(actual, expected, problem);
}

TEST_CASE("the README's C example computes ALiBi", "[gpu][c]") {
  ATTNC_NEED_GPU();
  Gpu& device = *gpu();
  const Mod mod = libraryMod("alibi");
  const HostOperands operands = draw(mod, kProblem);
  static Memory memory; // C has no closures
  memory = {};
  const auto place = [&](const cli::HostTensor& tensor) {
    const TensorView view = memory.place(tensor);
    attnc_tensor given = {};
    given.struct_size = sizeof given;
    given.data = view.data;
    given.dtype = ATTNC_DTYPE_BF16;
    given.rank = view.rank;
    std::copy(view.shape.begin(), view.shape.end(), given.shape);
    std::copy(view.stride.begin(), view.stride.end(), given.stride);
    return given;
  };
  const attnc_tensor q = place(operands.q), k = place(operands.k), v = place(operands.v);
  const attnc_tensor slopes = place(operands.tensors.at("slopes"));
  const attnc_tensor out = place(cli::HostTensor::make(DType::BF16, {2, 4, 100, 128}));
  attnc_compiler* compiler = nullptr;
  REQUIRE(attnc_compiler_create(nullptr, &compiler) == ATTNC_OK);
  REQUIRE(alibi_in_c(
              compiler, &q, &k, &v, &out, static_cast<float*>(slopes.data),
              [](size_t bytes) { return memory.allocate(bytes); }, device.stream.get()) == ATTNC_OK);
  take(device.stream.synchronize());
  attnc_compiler_destroy(compiler);

  Outcome actual{memory.read(4, operands.q), {}, {}};
  memory = {}; // while there is a context
  Outcome expected = runReference(mod, kProblem, operands);
  expected.lse.clear();
  checkClose(actual, expected, kProblem);
}

TEST_CASE("the README's training step computes gradients", "[gpu][backward]") {
  ATTNC_NEED_GPU();
  Gpu& device = *gpu();
  const Mod mod = libraryMod("alibi");
  const HostOperands operands = draw(mod, kProblem);
  const ResultGradients given = drawGradients(kProblem, true);
  const DeviceCaptures captures = uploadCaptures(operands.captures);
  Memory memory;
  BackwardOperands inputs;
  inputs.q = memory.place(operands.q);
  inputs.k = memory.place(operands.k);
  inputs.v = memory.place(operands.v);
  inputs.captures = &captures.captures;
  inputs.dOut = memory.place(given.dOut);
  inputs.dLse = memory.place(*given.dLse);
  inputs.out = memory.place(cli::HostTensor::make(DType::BF16, given.dOut.shape));
  inputs.lse = memory.place(cli::HostTensor::make(DType::F32, given.dLse->shape));
  const size_t first = memory.buffers.size();
  const BackwardOutputs gradients{
      .dQ = memory.place(operands.q), .dK = memory.place(operands.k), .dV = memory.place(operands.v)};
  const auto allocate = [&](size_t bytes) { return memory.allocate(bytes); };
  REQUIRE(train(device.compiler, mod, inputs, gradients, allocate, device.stream.get()));
  take(device.stream.synchronize());
  checkGradients(
      {memory.read(first, operands.q), memory.read(first + 1, operands.k), memory.read(first + 2, operands.v)},
      runReferenceBackward(mod, operands, given), kProblem);

  // The forward pass alone has no backward one, and a problem of another shape is refused.
  const Outputs outputs{.out = inputs.out, .lse = inputs.lse};
  const Prepared forward = take(device.compiler.prepare(mod, inputs, outputs));
  CHECK_FALSE(forward.backwardKernel());
  CHECK_FALSE(forward.launchBackward(inputs, gradients, memory.workspace.data(), device.stream.get()));
  const Prepared both = take(device.compiler.prepareTraining(mod, inputs, outputs, gradients));
  inputs.q.shape[2] = 99;
  CHECK_FALSE(both.launchBackward(inputs, gradients, memory.workspace.data(), device.stream.get()));
}
