// attnc in C: the C++ interface (attnc.h) as functions, for C11 and any language that can call C. C++ compiles it as
// well.
//
// ```
//   attnc_mod* mod;
//   attnc_mod_parse("q_idx >= kv_idx", ATTNC_WHOLE, NULL, &mod);            // text -> checked program
//   attnc_compiler* compiler;
//   attnc_compiler_create(NULL, &compiler);                                 // one per process
//   attnc_operands operands = {.struct_size = sizeof operands, .q = &q, .k = &k, .v = &v};
//   attnc_outputs outputs = {.struct_size = sizeof outputs, .out = &out};
//   attnc_prepared* attention;
//   attnc_prepare(compiler, mod, &operands, &outputs, NULL, &attention);    // NVRTC, or the cache
//   // workspace: attnc_prepared_workspace_bytes() of device memory
//   attnc_prepared_initialise(attention, &operands, workspace, stream);
//   attnc_prepared_launch(attention, &operands, &outputs, workspace, stream);
// ```
//
// Meaning. C functions mean, need and cost the same as the C++ functions of the same name. The docstrings in
// include/attnc/*.h hold here as well; those in c/*.h add what differs in C.
//
// Results. A function that can fail returns an attnc_status. Its last argument receives the result, and is not touched
// on a failure. attnc_last_error() returns the reason. No C++ exception escapes. If memory runs out, the status is
// ATTNC_ERROR_MEMORY.
//
// Arguments. They are checked: a required NULL, an invalid struct_size or an unknown enumerator gives
// ATTNC_ERROR_ARGUMENT. Addresses that are not memory, and destroyed handles, cannot be checked.
//
// Structs. They begin with struct_size, which the caller sets to the sizeof that it was compiled with. Later versions
// of attnc add members at the end. Zero in any member means its default, so `{.struct_size = sizeof x}` is all
// defaults. A smaller struct of an older caller is accepted. A larger struct is accepted if the unknown members are
// zero; otherwise it is ATTNC_ERROR_ARGUMENT. Output structs are filled as far as they have room. All elements of an
// array have one struct_size, which is their distance in bytes. Structs without a struct_size never change.
//
// Handles. They are pointers to objects of attnc. Whoever creates one destroys it; destroying NULL has no effect.
// Strings and arrays from a handle live as long as the handle.
//
// Strings. They are UTF-8. Input strings end with 0. All arguments are read only during the call.
//
// Threads. Any thread may call any function at any time, also on the same handles. Nobody may use a handle during or
// after its destruction. The last error belongs to the calling thread. Calls that touch the GPU use the CUDA context
// that is current in their thread. A caller's stack of 64 KiB is enough, since parsing, code generation and NVRTC run
// on attnc's own threads.
#pragma once

#include "attnc/c/base.h"
#include "attnc/c/block_mask.h"
#include "attnc/c/compiler.h"
#include "attnc/c/infer.h"
#include "attnc/c/mod.h"
#include "attnc/c/operands.h"
#include "attnc/c/pack.h"
#include "attnc/c/prepared.h"
#include "attnc/c/prove.h"
#include "attnc/c/quantise.h"
#include "attnc/c/reference.h"
#include "attnc/c/shard.h"
#include "attnc/c/sharded.h"
#include "attnc/c/tensor.h"
#include "attnc/c/tuning.h"
#include "attnc/c/xla.h"
#include "attnc/version.h"
