// What custom calls prepared, kept for the process.
#pragma once

#include "xla/frame.h"

#include <memory>

namespace attnc::xla {

/// Sets the compiler of launches(); null: one of their own.
void setCompiler(const attnc_compiler* compiler);

/// Returns the mod of IR text. Each text is read once.
Expected<std::shared_ptr<const attnc_mod>> modOf(const std::string& text);

/// An attention that is ready to launch on one device.
struct Launch {
  std::shared_ptr<const attnc_prepared> prepared;
  size_t workspaceBytes = 0;
};
/// Returns the launch of a call on a device, whose context is current. The first call of a kind prepares it.
Expected<Launch> launchOf(const Frame& frame, int32_t device);

/// Returns the error that a failed function of the C interface left.
Error lastError();

} // namespace attnc::xla
