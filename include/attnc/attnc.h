// attnc: an attention compiler. Mod text goes in, CUDA kernels come out.
//
// ```
//   auto mod = attnc::Mod::parse("q_idx >= kv_idx");             // text -> checked program
//   attnc::Compiler compiler;                                    // one per process
//   auto attention = compiler.prepare(*mod, {.q = q, .k = k, .v = v}, {.out = out}); // NVRTC, or the cache
//   // workspace: attention->workspaceBytes() of device memory; attention->initialise() fills it
//   auto status = attention->launch({.q = q, .k = k, .v = v}, {.out = out}, workspace, stream);
// ```
//
// For training, call compiler.prepareTraining() and attention->launchBackward(). Errors are values (error.h). Tensors
// are views of memory that the caller owns (tensor.h). No header here needs CUDA headers. Libraries libcuda and
// libnvrtc are opened when they are first needed, so everything but launching works without a GPU.
//
//   Mods and their text: mod.h.
//   Tensors that a launch reads and writes: operands.h.
//   Prepared attention, the usual way to launch: prepared.h.
//   The compiler: compiler.h.
//   A kernel as it was chosen, and why: plan.h. Options, code and launches of single kernels: kernel.h.
//   Block masks: block_mask.h; as runs, for masks of a million tokens: block_runs.h.
//   Rounding of operands to E4M3: quantise.h.
//   Plans for several GPUs: shard.h; attention by a plan: sharded.h.
//   Tiles chosen by measurement: tuning.h.
//   Attention on the CPU: reference.h.
//   What a plan is, why it was chosen, what it costs: explain.h.
//   Claims about masks, proved or refuted: prove.h. Mods from tensors: infer.h.
//   GPUs that attnc knows, and NVRTC: toolchain.h.
//   Log lines: log.h.
#pragma once

#include "attnc/block_mask.h"
#include "attnc/block_runs.h"
#include "attnc/captures.h"
#include "attnc/compiler.h"
#include "attnc/error.h"
#include "attnc/explain.h"
#include "attnc/family.h"
#include "attnc/infer.h"
#include "attnc/kernel.h"
#include "attnc/log.h"
#include "attnc/mod.h"
#include "attnc/operands.h"
#include "attnc/plan.h"
#include "attnc/prepared.h"
#include "attnc/problem.h"
#include "attnc/prove.h"
#include "attnc/quantise.h"
#include "attnc/reference.h"
#include "attnc/shard.h"
#include "attnc/sharded.h"
#include "attnc/stages.h"
#include "attnc/tensor.h"
#include "attnc/toolchain.h"
#include "attnc/tuning.h"
#include "attnc/version.h"
