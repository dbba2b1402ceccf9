// attnc: an attention compiler. Mod text in, CUDA kernels out.
//
//   auto mod = attnc::Mod::parse("q_idx >= kv_idx");             // text -> checked program
//   attnc::Compiler compiler;                                    // one per process
//   auto kernel = compiler.loadForward(*mod, {.dtype = attnc::DType::BF16, .headDim = 128}); // NVRTC, or the cache
//   auto status = kernel->launch({.q = q, .k = k, .v = v}, {.out = out}, nullptr, stream);
//
// Errors are values (error.h). Tensors are views that the caller owns (tensor.h). mod.h: the language's entry.
// operands.h: what a launch reads and writes. compiler.h: compiling. kernel.h: what
// is static in a kernel. block_mask.h: which blocks live. log.h: what is told beside results. Nothing here needs CUDA
// headers; libcuda and libnvrtc are opened when they are first needed, so everything but launching works without a GPU.
#pragma once

#include "attnc/block_mask.h"
#include "attnc/captures.h"
#include "attnc/compiler.h"
#include "attnc/error.h"
#include "attnc/kernel.h"
#include "attnc/log.h"
#include "attnc/mod.h"
#include "attnc/operands.h"
#include "attnc/problem.h"
#include "attnc/tensor.h"
#include "attnc/version.h"
