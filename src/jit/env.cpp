#include "jit/env.h"

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
  for (size_t begin = 0; begin <= list.size();) {
    size_t end = std::min(list.find(':', begin), list.size());
    if (end > begin) paths.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return paths;
}

} // namespace attnc::jit
