// dsl/SPEC.md inside the program, so that users without the sources can read it. Written by
// tools/cmake/embed_text.cmake.
#pragma once

namespace attnc::cli {

extern const char kLanguage[];

} // namespace attnc::cli
