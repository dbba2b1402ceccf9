#include "device_operands.h"

#include <tuple>

namespace attnc::cli {

Status DeviceOperands::place() {
  if (Status status = uploadCaptures(); !status) return status;
  return placeOperands();
}

Status DeviceOperands::uploadCaptures() {
  for (const auto& [name, value] : operands.captures.all()) {
    if (!std::holds_alternative<TensorView>(value)) {
      std::visit([&, &name = name](auto known) { captures.set(name, known); }, value);
      continue;
    }
    auto view = memory.upload(operands.tensors.find(name)->second);
    if (!view) return view.error();
    captures.set(name, *view);
  }
  return {};
}

/// Allocates device memory for a result. download() fills the bytes of `host`; `bench` does not call it.
Expected<TensorView> DeviceOperands::placeResult(HostTensor& host) {
  auto allocated = memory.allocate(host);
  if (allocated) results.emplace_back(memory.size() - 1, &host);
  return allocated;
}

Status DeviceOperands::download() {
  for (auto [buffer, host] : results) {
    host->bytes.resize(memory[buffer].bytes());
    if (auto status = memory[buffer].download(host->bytes.data(), host->bytes.size()); !status) return status;
  }
  return {};
}

/// Does the same for the backward pass.
Status DeviceOperands::placeGradients() {
  inputs.out = *outputs.out;
  inputs.lse = *outputs.lse;
  auto dOut = memory.upload(operands.dOut);
  if (!dOut) return dOut.error();
  inputs.dOut = *dOut;
  if (operands.dLse) {
    auto dLse = memory.upload(*operands.dLse);
    if (!dLse) return dLse.error();
    inputs.dLse = *dLse;
  }
  for (auto [name, like, view] : {std::tuple("dq", &operands.q, &gradients.dQ),
                                  {"dk", &operands.k, &gradients.dK},
                                  {"dv", &operands.v, &gradients.dV}}) {
    HostTensor& host = result.gradients[name] = {like->dtype, like->shape, {}};
    auto placed = placeResult(host);
    if (!placed) return placed.error();
    *view = *placed;
  }
  for (const auto& [name, value] : operands.gradients.all()) {
    HostTensor& host = result.gradients["d_" + name] = HostTensor::like(std::get<TensorView>(value));
    auto placed = placeResult(host);
    if (!placed) return placed.error();
    captureGradients.set(name, *placed);
  }
  gradients.captures = &captureGradients;
  return {};
}

/// Uploads q, k and v, allocates the results, and sets the problem.
Status DeviceOperands::placeOperands() {
  std::vector<int64_t> rows = rowsOf(operands);
  result.lse = result.rowMax = {DType::F32, rows, {}};
  rows.push_back(operands.v.shape[3]);
  result.out = {operands.q.dtype, rows, {}};
  const auto& cache = operands.cache;
  for (auto [name, host, view] : {std::tuple("", &operands.q, &inputs.q),
                                  {"k", cache ? &cache->k : &operands.k, &inputs.k},
                                  {"v", cache ? &cache->v : &operands.v, &inputs.v}}) {
    auto uploaded = memory.upload(*host);
    if (!uploaded) return uploaded.error();
    *view = *uploaded;
    if (!cache || !cache->newK || host == &operands.q) continue;
    HostTensor& after = result.cache[name] = {host->dtype, host->shape, {}};
    results.emplace_back(memory.size() - 1, &after);
  }
  std::vector<std::pair<const std::optional<HostTensor>*, std::optional<TensorView>*>> optional{
      {&operands.kvLengths, &inputs.kvLengths}, {&operands.qOffset, &inputs.qOffsets},
      {&operands.kScale, &inputs.kScales}, {&operands.vScale, &inputs.vScales}};
  if (cache)
    optional.insert(optional.end(),
                    {{&cache->pageTable, &inputs.pageTable}, {&cache->newK, &inputs.newK}, {&cache->newV, &inputs.newV}});
  for (auto [host, view] : optional) {
    if (!*host) continue;
    auto uploaded = memory.upload(**host);
    if (!uploaded) return uploaded.error();
    *view = *uploaded;
  }
  if (inputs.ragged = raggedOf(operands); inputs.ragged) {
    auto ofQ = memory.upload(*operands.cuSeqlensQ);
    if (!ofQ) return ofQ.error();
    inputs.ragged->cuSeqlensQ = *ofQ;
  }
  if (inputs.ragged && operands.cuSeqlensKv) {
    auto ofKv = memory.upload(*operands.cuSeqlensKv);
    if (!ofKv) return ofKv.error();
    inputs.ragged->cuSeqlensKv = *ofKv;
  }
  TensorView out, lse, rowMax;
  for (auto [host, view] :
       {std::pair(&result.out, &out), std::pair(&result.lse, &lse), std::pair(&result.rowMax, &rowMax)}) {
    auto placed = placeResult(*host);
    if (!placed) return placed.error();
    *view = *placed;
  }
  outputs.out = out;
  bool all = options.verify;
  if (all || options.lse || options.backward || options.output.empty()) outputs.lse = lse; // the digest prints it
  if (all || options.rowMax) outputs.rowMax = rowMax;
  if (options.scale) inputs.scale = float(*options.scale);
  inputs.captures = &captures;
  return options.backward ? placeGradients() : Status();
}

} // namespace attnc::cli
