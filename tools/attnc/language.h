// dsl/SPEC.md inside the program, so that who has no copy of the sources can read it. Written by
// tools/cmake/embed_text.cmake.
#pragma once

namespace attnc::cli {

extern const char kLanguage[];

} // namespace attnc::cli
