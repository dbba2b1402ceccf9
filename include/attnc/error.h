// Errors as values. Nothing in attnc throws across its public interface.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace attnc {

/// Whose fault an error is. The command's exit codes follow it (Mod 1, Environment 3, Internal 4).
enum class Blame {
  Mod,         ///< the text of the mod is wrong; `Error::diagnostics` says where
  Environment, ///< arguments, files, GPU, driver, NVRTC: something around attnc is not as it must be
  Internal,    ///< a bug in attnc
};

enum class Severity {
  Error,
  Warning, ///< the mod is legal, and probably not what its author meant
};

/// One finding about a mod's text. Lines and columns count from 1; columns count bytes.
struct Diagnostic {
  std::string id;   ///< the row of dsl/diagnostics.def or dsl/warnings.def, e.g. "undefined-name"
  std::string file; ///< as given by the caller
  int line = 0;
  int column = 0;
  std::string message;  ///< lower case, no final period: what was observed, what was expected
  std::string hint;     ///< how to repair it; may be empty
  std::string rendered; ///< the above with the source line and a caret, as a compiler prints it
  Severity severity = Severity::Error;
};

struct [[nodiscard]] Error {
  Blame blame = Blame::Internal;
  std::string message; ///< for Blame::Mod: all diagnostics, rendered
  std::string remedy;  ///< what the user can do; may be empty
  std::vector<Diagnostic> diagnostics;

  static Error mod(std::string message, std::vector<Diagnostic> diagnostics) {
    return {Blame::Mod, std::move(message), {}, std::move(diagnostics)};
  }
  static Error environment(std::string message, std::string remedy = {}) {
    return {Blame::Environment, std::move(message), std::move(remedy), {}};
  }
  static Error internal(std::string message) {
    return {Blame::Internal, std::move(message), "this is a bug in attnc, please report it with the mod", {}};
  }
};

/// A value or the reason why there is none. Test it, then dereference it.
template <class T>
class [[nodiscard]] Expected {
public:
  Expected(T value) : state(std::in_place_index<0>, std::move(value)) {}
  Expected(Error error) : state(std::in_place_index<1>, std::move(error)) {}

  explicit operator bool() const { return state.index() == 0; }
  T& operator*() & { return std::get<0>(state); }
  const T& operator*() const& { return std::get<0>(state); }
  T&& operator*() && { return std::get<0>(std::move(state)); }
  T* operator->() { return &std::get<0>(state); }
  const T* operator->() const { return &std::get<0>(state); }
  const Error& error() const& { return std::get<1>(state); }
  Error&& error() && { return std::get<1>(std::move(state)); }

private:
  std::variant<T, Error> state;
};

/// Success, or the reason of a failure.
template <>
class [[nodiscard]] Expected<void> {
public:
  Expected() = default;
  Expected(Error error) : failure(std::move(error)) {}

  explicit operator bool() const { return !failure; }
  const Error& error() const& { return *failure; }
  Error&& error() && { return std::move(*failure); }

private:
  std::optional<Error> failure;
};

using Status = Expected<void>;

} // namespace attnc
