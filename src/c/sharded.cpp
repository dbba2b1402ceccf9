#include "attnc/c/sharded.h"

#include "c/call.h"
#include "c/handles.h"
#include "c/kernel_options.h"
#include "c/operands.h"
#include "c/structs.h"

#include <fmt/format.h>

namespace attnc::c {
namespace {

std::vector<attnc_shard_message> toC(const std::vector<ShardMessage>& messages) {
  std::vector<attnc_shard_message> all;
  for (const ShardMessage& message : messages) all.push_back({message.data, message.bytes, message.peer, 0});
  return all;
}

Status statusOf(const char* what, int32_t result) {
  if (result == 0) return {};
  return Error::environment(fmt::format("shards: the engine's {} returned {}", what, result));
}

ShardEngine readEngine(const attnc_shard_engine* given) {
  need(given, "engine");
  const attnc_shard_engine all = readStruct(given, "engine");
  need(reinterpret_cast<const void*>(all.exchange), {"engine", "exchange"});
  ShardEngine engine;
  engine.exchange = [all](const std::vector<ShardMessage>& sends, const std::vector<ShardMessage>& receives,
                          Stream stream) {
    const std::vector<attnc_shard_message> going = toC(sends), coming = toC(receives);
    return statusOf("exchange",
                    all.exchange(all.user, going.data(), going.size(), coming.data(), coming.size(), stream));
  };
  if (all.wait) engine.wait = [all] { return statusOf("wait", all.wait(all.user)); };
  return engine;
}

/// Checks the arguments of a call that prepares, and makes what it prepares: make(compiler, options).
template <class Make>
Status prepare(const attnc_compiler* compiler, const attnc_mod* mod, const attnc_shard_plan* plan, size_t mask,
               size_t rank, const attnc_prepare_options* options, attnc_sharded** sharded, Make make) {
  need(mod, "mod");
  need(sharded, "sharded");
  const PrepareOptions how = readPrepareOptions(options);
  need(plan, "plan");
  checkIndex(mask, plan->plan.masks.size());
  checkIndex(rank, plan->plan.ranks.size());
  return give(make(compiler ? &compiler->compiler : nullptr, how), sharded);
}

attnc_status bytesOf(const attnc_sharded* sharded, size_t (ShardedAttention::*of)() const, size_t* bytes) {
  return call({{sharded, "sharded"}, {bytes, "bytes"}}, [&] {
    *bytes = (sharded->sharded.*of)();
    return Status();
  });
}

attnc_status launch(const attnc_sharded* sharded, const attnc_operands* operands, const attnc_outputs* outputs,
                    const attnc_shard_engine* engine, void* workspace, attnc_stream stream, attnc_stream transfers,
                    void* kept) {
  return call({{sharded, "sharded"}}, [&]() -> Status {
    const ShardEngine how = readEngine(engine);
    const GivenForward given(operands, outputs);
    return sharded->sharded.launch(given.operands, given.outputs, how, workspace, static_cast<Stream>(stream),
                                   static_cast<Stream>(transfers), kept);
  });
}

} // namespace
} // namespace attnc::c

using namespace attnc;
using namespace attnc::c;

attnc_status attnc_sharded_prepare(const attnc_compiler* compiler, const attnc_mod* mod, const attnc_shard_plan* plan,
                                   size_t mask, size_t rank, const attnc_operands* operands,
                                   const attnc_outputs* outputs, const attnc_prepare_options* options,
                                   attnc_sharded** sharded) {
  return call({}, [&]() -> Status {
    const GivenForward given(operands, outputs);
    const auto make = [&](const Compiler* with, const PrepareOptions& how) {
      return ShardedAttention::prepare(with, mod->mod, plan->plan, int(mask), int(rank), given.operands, given.outputs,
                                       how);
    };
    return prepare(compiler, mod, plan, mask, rank, options, sharded, make);
  });
}

attnc_status attnc_sharded_prepare_training(const attnc_compiler* compiler, const attnc_mod* mod,
                                            const attnc_shard_plan* plan, size_t mask, size_t rank,
                                            const attnc_backward_operands* operands, const attnc_outputs* outputs,
                                            const attnc_backward_outputs* gradients,
                                            const attnc_prepare_options* options, attnc_sharded** sharded) {
  return call({}, [&]() -> Status {
    const GivenBackward given(operands, gradients);
    Captures reductions;
    const Outputs written = readOutputs(outputs, "outputs", reductions);
    const auto make = [&](const Compiler* with, const PrepareOptions& how) {
      return ShardedAttention::prepareTraining(with, mod->mod, plan->plan, int(mask), int(rank), given.operands,
                                               written, given.outputs, how);
    };
    return prepare(compiler, mod, plan, mask, rank, options, sharded, make);
  });
}

void attnc_sharded_destroy(attnc_sharded* sharded) { delete sharded; }

attnc_status attnc_sharded_workspace_bytes(const attnc_sharded* sharded, size_t* bytes) {
  return bytesOf(sharded, &ShardedAttention::workspaceBytes, bytes);
}

attnc_status attnc_sharded_kept_bytes(const attnc_sharded* sharded, size_t* bytes) {
  return bytesOf(sharded, &ShardedAttention::keptBytes, bytes);
}

attnc_status attnc_sharded_initialise(const attnc_sharded* sharded, const attnc_operands* operands, void* workspace,
                                      attnc_stream stream) {
  return call({{sharded, "sharded"}}, [&]() -> Status {
    Operands all;
    GivenOperands given;
    given.read(operands, "operands", all);
    return sharded->sharded.initialise(all, workspace, static_cast<Stream>(stream));
  });
}

attnc_status attnc_sharded_launch(const attnc_sharded* sharded, const attnc_operands* operands,
                                  const attnc_outputs* outputs, const attnc_shard_engine* engine, void* workspace,
                                  attnc_stream stream, attnc_stream transfers) {
  return launch(sharded, operands, outputs, engine, workspace, stream, transfers, nullptr);
}

attnc_status attnc_sharded_launch_training(const attnc_sharded* sharded, const attnc_operands* operands,
                                           const attnc_outputs* outputs, const attnc_shard_engine* engine,
                                           void* workspace, attnc_stream stream, attnc_stream transfers, void* kept) {
  return launch(sharded, operands, outputs, engine, workspace, stream, transfers, kept);
}

attnc_status attnc_sharded_launch_backward(const attnc_sharded* sharded, const attnc_backward_operands* operands,
                                           const attnc_backward_outputs* gradients, const attnc_shard_engine* engine,
                                           void* workspace, attnc_stream stream, attnc_stream transfers,
                                           const void* kept) {
  return call({{sharded, "sharded"}}, [&]() -> Status {
    const ShardEngine how = readEngine(engine);
    const GivenBackward given(operands, gradients);
    return sharded->sharded.launchBackward(given.operands, given.outputs, how, workspace, static_cast<Stream>(stream),
                                           static_cast<Stream>(transfers), kept);
  });
}
