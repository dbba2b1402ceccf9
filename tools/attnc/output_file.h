// Files that appear whole or not at all.
#pragma once

#include "attnc/error.h"

#include <string>
#include <string_view>
#include <vector>

namespace attnc::cli {

/// Writes the pieces one after another to `path`: into a temporary file in the same directory, which is then renamed.
/// On an error, an existing file is unchanged. A device or pipe (/dev/null) is written directly, and so is stdout, "-".
/// Errors: Blame::Environment naming the path.
Status writeWholeFile(const std::string& path, const std::vector<std::string_view>& pieces);

} // namespace attnc::cli
