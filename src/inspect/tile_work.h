// How the tiles of a launch keep a GPU busy.
#pragma once

#include "attnc/explain.h"
#include "ir/bindings.h"
#include "ir/ir.h"

#include <optional>

namespace attnc {

/// Returns the limits of an architecture, and those of a usual GPU of it. Precondition: parseArch() accepts the text.
GpuLimits limitsOf(const std::string& arch);

/// Returns the source of the launch that walks the scores.
const KernelSource& walkingSource(const Explanation& explanation);

/// Returns the work of the tiles of a settled forward kernel, or of Hopper's backward kernels. `module` is what its
/// mask is counted with (countedModule). The explanation has its kernel, census, boxes and limits.
std::optional<TileWork> tileWorkOf(const ir::Module& module, const ir::Bindings& bindings,
                                   const Explanation& explanation);

} // namespace attnc
