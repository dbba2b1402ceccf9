#include "jit/env.h"

#include <llvm/ADT/StringExtras.h>

#include <cstdlib>

namespace attnc::jit {

namespace {
std::string variableOrEmpty(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}
} // namespace

Env Env::read() {
  Env env;
#define ATTNC_ENV(field, variable, help) env.field = variableOrEmpty(variable);
#include "jit/env.def"
#undef ATTNC_ENV
  return env;
}

std::vector<EnvRow> envTable() {
  return {
#define ATTNC_ENV(field, variable, help) {variable, help},
#include "jit/env.def"
#undef ATTNC_ENV
  };
}

std::vector<std::string> splitPaths(const std::string& list) {
  std::vector<std::string> paths;
  for (llvm::StringRef path : llvm::split(list, ':'))
    if (!path.empty()) paths.push_back(path.str());
  return paths;
}

} // namespace attnc::jit
