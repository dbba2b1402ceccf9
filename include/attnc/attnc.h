// attnc: an attention compiler. Mod text in, CUDA kernels out.
//
//   auto mod = attnc::Mod::parse("q_idx >= kv_idx");             // text -> checked program
//   attnc::Compiler compiler;                                    // one per process
//   auto attention = compiler.prepare(*mod, {.q = q, .k = k, .v = v}, {.out = out}); // NVRTC, or the cache
//   // workspace: attention->workspaceBytes() of device memory; attention->initialise() fills it
//   auto status = attention->launch({.q = q, .k = k, .v = v}, {.out = out}, workspace, stream);
// For training: compiler.prepareTraining(), attention->launchBackward().
//
// Errors are values (error.h). Tensors are views that the caller owns (tensor.h). mod.h: the language's entry.
// operands.h: what a launch reads and writes. prepared.h: the usual way to launch. compiler.h: compiling. kernel.h: what
// is static in a kernel. block_mask.h: which blocks live. page_allocator.h: pages of a cache, dealt to sequences.
// tuning.h: tiles by measuring.
// reference.h: attention on the CPU. log.h: what is told beside results. Nothing here needs CUDA headers; libcuda and
// libnvrtc are opened when they are first needed, so everything but launching works without a GPU.
#pragma once

#include "attnc/block_mask.h"
#include "attnc/captures.h"
#include "attnc/compiler.h"
#include "attnc/error.h"
#include "attnc/family.h"
#include "attnc/kernel.h"
#include "attnc/log.h"
#include "attnc/mod.h"
#include "attnc/operands.h"
#include "attnc/page_allocator.h"
#include "attnc/prepared.h"
#include "attnc/problem.h"
#include "attnc/reference.h"
#include "attnc/tensor.h"
#include "attnc/tuning.h"
#include "attnc/version.h"
