// One CUDA file of all stages of a kernel.
#pragma once

#include "attnc/kernel.h"

#include <llvm/ADT/ArrayRef.h>

#include <string>
#include <vector>

namespace attnc {

struct JoinedStages {
  std::string text;
  std::vector<std::string> kernels; ///< by stage: the name by which host code behind the text finds the kernel
};

/// Puts the number of the launch behind names that different kernels share. Precondition: no name is in a header.
void nameApart(std::vector<KernelSource>& stages);

/// Joins the sources of a kernel's stages. What depends on neither mod nor configuration is written once. Each stage
/// has a namespace of its own if there are several. `space`: the namespace of everything. Unless it is "attnc", kernels
/// have no C names, so that files of several kernels can be linked together. Else different kernels need different
/// names: nameApart().
JoinedStages joined(llvm::ArrayRef<KernelSource> stages, const std::string& space);

/// Marks where a file says which of its own lines follows, behind lines of a mod.
inline constexpr const char* kOwnLine = "#line own";

/// Returns the text with the marks replaced by the file's name and lines.
std::string withOwnLines(const std::string& text, const std::string& file);

/// Returns a text with another word for `attnc` as the name of a namespace.
std::string inNamespace(const std::string& text, const std::string& space);

/// Returns a header's text without what other files replace: includes of "...", and #pragma once.
std::string withoutIncludes(llvm::StringRef text);

} // namespace attnc
