// Mods that sequences choose: TensorCapture::choices.
#pragma once

#include "ir/ir.h"

namespace attnc::ir {

/// Masks all scores of sequences that name no mod of a choice.
void maskUnchosen(Module& module);

} // namespace attnc::ir
