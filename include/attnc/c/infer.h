/// A mod from a tensor: the text of a mask that is given element by element (infer.h).
#pragma once

#include "attnc/c/mod.h"

#ifdef __cplusplus
extern "C" {
#endif

/// Creates the shortest mod that is equal to a mask on every element (infer). The mask is in host memory. `name` is its
/// name in the text; NULL: "a mask". Fills the address of one JSON object, which lives as long as the mod: {"text",
/// "form", "recognised", "captures": [{"name", "dtype", "shape", "values"}], ...}. Errors: those of infer().
ATTNC_API attnc_status attnc_infer(const attnc_tensor* mask, const char* name, const char** json, attnc_mod** mod);

#ifdef __cplusplus
}
#endif
