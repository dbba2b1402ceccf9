// Z3, opened at run time, as an interpreter of SMT-LIB 2.
#pragma once

#include "attnc/error.h"

#include <memory>
#include <string>
#include <vector>

namespace attnc::proofs {

/// A session with Z3. Not thread-safe.
class Solver {
public:
  enum class Answer { Sat, Unsat, Unknown };

  /// Opens libz3: `path` if it is not empty, else $ATTNC_Z3, else libz3.so.4 and libz3.so as ld.so finds them. Error
  /// (environment): it is not found.
  static Expected<Solver> open(const std::string& path);

  /// Returns "Z3 4.8.12".
  std::string name() const;
  /// Adds declarations and assertions. Error (internal): Z3 does not take the text.
  Status add(const std::string& text);
  void push();
  void pop();
  /// Looks for a model, for at most this long.
  Expected<Answer> check(double seconds);
  /// Returns the values of terms in the model, after Sat.
  std::vector<std::string> valuesOf(const std::vector<std::string>& terms);

private:
  struct Session;
  explicit Solver(std::shared_ptr<Session> session) : session(std::move(session)) {}
  std::string evaluate(const std::string& text);
  std::shared_ptr<Session> session;
};

} // namespace attnc::proofs
