// attnc in C: the C++ interface (attnc.h) as functions, for C11, and for any language that can call C. C++ compiles it,
// too.
//
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
//
// What functions mean, need and cost is what the C++ functions of the same name do, whose docstrings in
// include/attnc/*.h hold here as well; c/*.h say what is different in C.
//
// Results. A function that can fail returns an attnc_status; what it makes goes to its last argument, which is not
// touched on a failure. attnc_last_error() has the reason. No C++ exception comes out, and memory that runs out is
// ATTNC_ERROR_MEMORY. Arguments are checked: NULL where a value is due, a struct_size or an enumerator that there is
// not, give ATTNC_ERROR_ARGUMENT. What cannot be checked: addresses that are no memory, and handles that are destroyed.
//
// Structs begin with struct_size, which the caller sets to sizeof of the struct as he knows it. Later versions of attnc
// add members at the end, and zero in any member means the default: the smaller struct of an older caller is taken as
// it is, and `{.struct_size = sizeof x}` is all defaults. A struct that is larger than the library knows is taken if
// what it does not know is zero; else it is ATTNC_ERROR_ARGUMENT. Of structs that are filled, as much is written as
// there is room for. Elements of an array have one struct_size, which is their distance. Structs without a struct_size
// do not change.
//
// Handles are pointers to what attnc owns. Who creates one destroys it; NULL is destroyed without effect. Strings and
// arrays that come out of a handle live as long as it does. They are UTF-8, as are those that go in; those end with 0,
// and are read during the call alone, as all that a call is given.
//
// Threads. All functions may be called from any thread at any time, on the same handles, too, but that nobody may use a
// handle while or after it is destroyed. The last error is that of the calling thread. Calls that touch the GPU do so
// in the CUDA context that is current in their thread. A caller's stack of 64 KiB is enough: parsing, code
// generation and NVRTC run on threads of attnc's own.
#pragma once

#include "attnc/c/base.h"
#include "attnc/c/block_mask.h"
#include "attnc/c/compiler.h"
#include "attnc/c/kernel.h"
#include "attnc/c/mod.h"
#include "attnc/c/operands.h"
#include "attnc/c/pack.h"
#include "attnc/c/prepared.h"
#include "attnc/c/reference.h"
#include "attnc/c/tensor.h"
#include "attnc/c/tuning.h"
#include "attnc/version.h"
