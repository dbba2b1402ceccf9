// Who made a pack: this version of attnc, with these templates. Packs of others have other kernels.
#pragma once

#include <string>

namespace attnc {

/// "attnc 0.1.0 (templates 0123456789ab)". Thread-safe.
std::string packMaker();

} // namespace attnc
