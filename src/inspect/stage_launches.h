// How the stages of a plan are launched, in words: for the comment of an emitted file.
#pragma once

#include "plan/plan.h"

#include <string>
#include <string_view>

namespace attnc {

/// Returns the number of CTAs of a stage: "B * H * ceil(Q_LEN / 128)".
std::string ctasWords(const plan::Stage& stage);

/// Returns the tensors of which a stage takes tensor maps: "q k v". Empty if it takes none.
std::string_view mappedTensors(const plan::Stage& stage);

/// Returns what a use of the workspace holds.
std::string_view useWords(plan::Use use);

} // namespace attnc
