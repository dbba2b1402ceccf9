// Captures as text: shows declarations, and reads values from the command line.
#pragma once

#include "problem/host_tensor.h"

#include "attnc/captures.h"
#include "attnc/mod.h"

#include <optional>
#include <string>

namespace attnc::cli {

/// Returns "slopes: f32[H]" or "window: int".
std::string declaration(const CaptureInfo& capture);

/// Returns the value of a run-time scalar; nullopt if the text does not fit its type, with `expected` set to what
/// would. Precondition: the capture is not a tensor.
std::optional<Captures::Item> parseScalar(const CaptureInfo& capture, const std::string& text, std::string& expected);

/// Returns a 0-d tensor of this dtype; nullopt if the text does not fit.
std::optional<HostTensor> parseElement(DType dtype, const std::string& text);

} // namespace attnc::cli
