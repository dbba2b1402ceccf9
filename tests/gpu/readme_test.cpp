// Runs the C++ example of the README, which the build extracts from it.
#include "gpu.h"

#include <functional>

bool alibi(const attnc::Compiler& compiler, attnc::TensorView q, attnc::TensorView k, attnc::TensorView v,
           attnc::TensorView out, float* slopes, const std::function<void*(size_t)>& allocate, attnc::Stream stream);

using namespace attnc;
using namespace attnc::gputest;

TEST_CASE("the README's C++ example computes ALiBi", "[gpu]") {
  ATTNC_NEED_GPU();
  Gpu& device = *gpu();
  const Mod mod = libraryMod("alibi");
  const Problem problem{{2, 4, 2, 100, 150}, 128, 128, DType::BF16};
  const HostOperands operands = draw(mod, problem);
  std::vector<device::Buffer> buffers;
  const auto place = [&](const cli::HostTensor& tensor) {
    buffers.push_back(take(device::Buffer::allocate(tensor.bytes.size())));
    take(buffers.back().upload(tensor.bytes.data(), tensor.bytes.size()));
    TensorView view = tensor.view();
    view.data = buffers.back().data();
    return view;
  };
  const TensorView q = place(operands.q), k = place(operands.k), v = place(operands.v);
  const TensorView slopes = place(operands.tensors.at("slopes"));
  TensorView out = place(cli::HostTensor::make(DType::BF16, {2, 4, 100, 128}));
  device::Buffer workspace;
  const auto allocate = [&](size_t bytes) {
    workspace = take(device::Buffer::allocate(bytes));
    return workspace.data();
  };
  REQUIRE(alibi(device.compiler, q, k, v, out, static_cast<float*>(slopes.data), allocate, device.stream.get()));
  take(device.stream.synchronize());

  cli::HostTensor host = cli::HostTensor::make(DType::BF16, {2, 4, 100, 128});
  take(buffers.back().download(host.bytes.data(), host.bytes.size()));
  Outcome actual{toDoubles(host), {}, {}};
  Outcome expected = runReference(mod, problem, operands);
  expected.lse.clear();
  checkClose(actual, expected, problem);
}
