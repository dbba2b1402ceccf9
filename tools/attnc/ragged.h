// Ragged batches in files: q, k, v and results [total, H, D] with cumulative lengths. Inside the command they are [1, H,
// total, D], as other tensors are.
#pragma once

#include "host_tensor.h"

#include "attnc/error.h"
#include "attnc/operands.h"

#include <optional>
#include <string_view>

namespace attnc::cli {

struct HostOperands;

/// [total, H, D] to [1, H, total, D]; or [H, total] to [1, H, total]. Errors (environment) name the tensor.
Status fromPacked(std::string_view name, HostTensor& tensor);

/// The same backwards.
HostTensor toPacked(const HostTensor& tensor);

/// Cumulative lengths, that begin at 0.
HostTensor cumulative(const HostTensor& lengths);

/// Checks cumulative lengths, those of q in `of` rows: they ascend within it. Returns the longest length.
Expected<int64_t> longestOf(std::string_view name, const HostTensor& cumulative, int64_t rows);

/// Of operands with cumulative lengths; views of these.
std::optional<RaggedBatch> raggedOf(const HostOperands& operands);

} // namespace attnc::cli
