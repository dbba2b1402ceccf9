// The process's environment, as attnc sees it.
//
// In: the variables of env.def. Out: one immutable struct, read in one place and passed down. Not: the meaning of a
// value, which belongs to its user.
#pragma once

#include <string>
#include <vector>

namespace attnc::jit {

/// Values as text; an unset variable is empty.
struct Env {
#define ATTNC_ENV(field, variable, help) std::string field;
#include "jit/env.def"
#undef ATTNC_ENV

  /// Reads the variables now. Not to be called while another thread changes the environment.
  static Env read();
};

/// A row of env.def, for `--help` and the README.
struct EnvRow {
  const char* variable;
  const char* help;
};
std::vector<EnvRow> envTable();

/// The parts of a list separated by ':', without empty ones.
std::vector<std::string> splitPaths(const std::string& list);

} // namespace attnc::jit
