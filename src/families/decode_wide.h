// Plans of decode kernels for head dims above 256: templates/decode_wide_sm90.cu.
#pragma once

#include "families/family.h"

#include <string>
#include <vector>

namespace attnc::plan {

/// Implements FamilyRow::unserved. Precondition: hasWideHeads(), and the arch has wgmma.
std::string unservedByDecodeWide(const Request& request);

/// Implement FamilyRow's functions. Precondition: unservedByDecodeWide() returns nothing.
Plan planDecodeWide(const Request& request);
std::vector<std::string> candidatesDecodeWide(const Request& request);

} // namespace attnc::plan
