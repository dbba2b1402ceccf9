// The kernel templates as text in the binary: templates/ without the identity mod. The build generates the definitions.
#pragma once

#include <llvm/ADT/StringRef.h>

namespace attnc::plan {

struct EmbeddedFile {
  const char* name; ///< as #include spells it: "ptx/math.cuh"
  const char* text;
};
extern const EmbeddedFile kEmbeddedFiles[];
extern const unsigned kEmbeddedFileCount;

} // namespace attnc::plan
