// The process's environment, as attnc sees it.
//
// In: the variables of env.def. Out: one immutable struct, read in one place and passed down. Not: the meaning of
// values, which belongs to their users.
#pragma once

#include <string>
#include <vector>

namespace attnc::jit {

/// Values as text; empty if unset.
struct Env {
#define ATTNC_ENV(field, variable, help) std::string field;
#include "jit/env.def"
#undef ATTNC_ENV

  /// Reads the variables now. Must not run while another thread changes the environment.
  static Env read();
};

/// A row of env.def, for `--help` and the documents.
struct EnvRow {
  const char* variable;
  const char* help;
};
std::vector<EnvRow> envTable();

/// Returns the nonempty parts of a list separated by ':'.
std::vector<std::string> splitPaths(const std::string& list);

} // namespace attnc::jit
