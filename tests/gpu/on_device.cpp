#include "on_device.h"

namespace attnc::gputest {

device::Buffer filled(size_t bytes, unsigned char byte) {
  device::Buffer buffer = take(device::Buffer::allocate(bytes));
  if (bytes) take(buffer.fill(byte));
  return buffer;
}

TensorView Placed::place(const cli::HostTensor& tensor) {
  buffers.push_back(take(device::Buffer::allocate(tensor.bytes.size())));
  take(buffers.back().upload(tensor.bytes.data(), tensor.bytes.size()));
  TensorView view = tensor.view();
  view.data = buffers.back().data();
  return view;
}

std::vector<double> Placed::read(size_t index, const cli::HostTensor& like) const {
  cli::HostTensor tensor = cli::HostTensor::make(like.dtype, like.shape);
  take(buffers[index].download(tensor.bytes.data(), tensor.bytes.size()));
  return toDoubles(tensor);
}

OnDevice::OnDevice(const Mod& mod, const Problem& of, std::optional<ResultGradients> drawn)
    : problem(of), host(draw(mod, of)), given(std::move(drawn)), captures(uploadCaptures(host.captures)) {
  const ProblemShape& s = of.shape;
  inputs.q = place(host.q);
  inputs.k = place(host.k);
  inputs.v = place(host.v);
  inputs.captures = &captures.captures;
  inputs.out = placeResult(cli::HostTensor::make(of.dtype, {s.batch, s.qHeads, s.qLen, of.headDimV}));
  inputs.lse = placeResult(cli::HostTensor::make(DType::F32, {s.batch, s.qHeads, s.qLen}));
  outputs = {.out = inputs.out, .lse = inputs.lse};
  if (given) {
    inputs.dOut = place(given->dOut);
    if (given->dLse) inputs.dLse = place(*given->dLse);
    gradients = {.dQ = placeResult(host.q), .dK = placeResult(host.k), .dV = placeResult(host.v)};
  }
  poison();
}

TensorView OnDevice::placeResult(const cli::HostTensor& like) {
  results.push_back(buffers.size());
  return place(like);
}

void OnDevice::poison() {
  for (size_t i : results) take(buffers[i].fill(0xff));
}

Outcome OnDevice::outcome() const {
  const ProblemShape& s = problem.shape;
  return {read(results[0], cli::HostTensor::make(problem.dtype, {s.batch, s.qHeads, s.qLen, problem.headDimV})),
          read(results[1], cli::HostTensor::make(DType::F32, {s.batch, s.qHeads, s.qLen})),
          {}};
}

void OnDevice::check(const Mod& mod) const { checkClose(outcome(), runReference(mod, problem, host), problem); }

void OnDevice::checkTraining(const Mod& mod) const {
  checkGradients({read(results[2], host.q), read(results[3], host.k), read(results[4], host.v)},
                 runReferenceBackward(mod, host, *given), problem);
}

} // namespace attnc::gputest
