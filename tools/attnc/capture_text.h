// Captures as text: how declarations are shown, and how values on the command line are read.
#pragma once

#include "host_tensor.h"

#include "attnc/captures.h"
#include "attnc/mod.h"

#include <optional>
#include <string>

namespace attnc::cli {

/// "slopes: f32[H]", "window: int"
std::string declaration(const CaptureInfo& capture);

/// The value of a run-time scalar; nothing if the text does not fit its type. `expected` then says what would.
/// Precondition: the capture is no tensor.
std::optional<Captures::Item> parseScalar(const CaptureInfo& capture, const std::string& text, std::string& expected);

/// A 0-d tensor of this dtype; nothing if the text does not fit.
std::optional<HostTensor> parseElement(DType dtype, const std::string& text);

bool isInteger(DType dtype); ///< not bool
bool isFloat(DType dtype);

} // namespace attnc::cli
