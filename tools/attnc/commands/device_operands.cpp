#include "commands/device_operands.h"

#include "support/try.h"

#include <tuple>

namespace attnc::cli {

Status DeviceOperands::uploadCaptures() {
  for (const auto& [name, value] : operands.captures.all()) {
    if (!std::holds_alternative<TensorView>(value)) {
      std::visit([&, &name = name](auto known) { captures.set(name, known); }, value);
      continue;
    }
    ATTNC_TRY_AS(view, memory.upload(operands.tensors.find(name)->second));
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

Expected<Prepared> DeviceOperands::prepare(const Compiler& compiler, const Mod& mod) const {
  const PrepareOptions how = prepareOptions(options);
  return options.backward ? compiler.prepareTraining(mod, inputs, outputs, gradients, how)
                          : compiler.prepare(mod, inputs, outputs, how);
}

Status DeviceOperands::download() {
  for (auto [buffer, host] : results) {
    host->bytes.resize(memory[buffer].bytes());
    ATTNC_TRY(memory[buffer].download(host->bytes.data(), host->bytes.size()));
  }
  return {};
}

/// Does the same for the backward pass.
Status DeviceOperands::placeGradients() {
  inputs.out = *outputs.out;
  inputs.lse = *outputs.lse;
  ATTNC_TRY_AS(dOut, memory.upload(operands.dOut));
  inputs.dOut = *dOut;
  if (operands.dLse) {
    ATTNC_TRY_AS(dLse, memory.upload(*operands.dLse));
    inputs.dLse = *dLse;
  }
  for (auto [name, like, view] : {std::tuple("dq", &operands.q, &gradients.dQ),
                                  {"dk", &operands.k, &gradients.dK},
                                  {"dv", &operands.v, &gradients.dV}}) {
    HostTensor& host = result.gradients[name] = {like->dtype, like->shape, {}};
    ATTNC_TRY_AS(placed, placeResult(host));
    *view = *placed;
  }
  for (const auto& [name, value] : operands.gradients.all()) {
    HostTensor& host = result.gradients["d_" + name] = HostTensor::like(std::get<TensorView>(value));
    ATTNC_TRY_AS(placed, placeResult(host));
    captureGradients.set(name, *placed);
  }
  gradients.captures = &captureGradients;
  return {};
}

Status DeviceOperands::place() {
  ATTNC_TRY(uploadCaptures());
  const Operands views = viewsOf(operands);
  inputs.maxQLen = views.maxQLen, inputs.maxKvLen = views.maxKvLen;
  std::vector<int64_t> rows = rowsOf(operands);
  result.lse = result.rowMax = {DType::F32, rows, {}};
  rows.push_back(operands.v.shape[3]);
  result.out = {options.target.fp8.outOf(operands.q.dtype), rows, {}};
  const auto& cache = operands.cache;
  for (auto [name, host, view] : {std::tuple("", &operands.q, &inputs.q),
                                  {"k", cache ? &cache->k : &operands.k, &inputs.k},
                                  {"v", cache ? &cache->v : &operands.v, &inputs.v}}) {
    if (operands.vInK && view == &inputs.v) {
      inputs.v = firstColumns(inputs.k, host->view());
      continue;
    }
    ATTNC_TRY_AS(uploaded, memory.upload(*host));
    *view = *uploaded;
    if (!operands.newK || host == &operands.q) continue;
    HostTensor& after = result.cache[name] = {host->dtype, host->shape, {}};
    results.emplace_back(memory.size() - 1, &after);
  }
  Status uploaded;
  const auto upload = [&](const std::optional<HostTensor>& host, std::optional<TensorView>& view) {
    if (!host || !uploaded) return;
    if (auto placed = memory.upload(*host))
      view = *placed;
    else
      uploaded = placed.error();
  };
#define ATTNC_OPTIONAL(member, name, feature) upload(operands.member, inputs.member);
#include "attnc/operands.def"
  if (cache) upload(cache->kScales, inputs.kScales), upload(cache->vScales, inputs.vScales);
  if (!uploaded) return uploaded;
  if (operands.vInK && inputs.newV) inputs.newV = firstColumns(*inputs.newK, *inputs.newV);
  TensorView out, lse, rowMax;
  for (auto [host, view] :
       {std::pair(&result.out, &out), std::pair(&result.lse, &lse), std::pair(&result.rowMax, &rowMax)}) {
    ATTNC_TRY_AS(placed, placeResult(*host));
    *view = *placed;
  }
  outputs.out = out;
  bool all = options.verify;
  if (all || options.lse || options.backward || options.output.empty()) outputs.lse = lse; // the digest prints it
  if (options.rowMax || (all && options.hasSoftmax)) outputs.rowMax = rowMax;
  for (const auto& [name, value] : operands.reductions.all()) {
    HostTensor& host = result.gradients[name] = HostTensor::like(std::get<TensorView>(value));
    ATTNC_TRY_AS(placed, placeResult(host));
    reductions.set(name, *placed);
    outputs.reductions = &reductions;
  }
  if (options.scale) inputs.scale = float(*options.scale);
  inputs.captures = &captures;
  return options.backward ? placeGradients() : Status();
}

} // namespace attnc::cli
