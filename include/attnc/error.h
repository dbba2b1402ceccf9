// Errors as values. attnc throws nothing across its public interface.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace attnc {

/// Whose fault an error is. Exit codes of the command follow it: Mod 1, Environment 3, Internal 4.
enum class Blame {
  Mod,         ///< The mod's text is wrong; Error::diagnostics says where.
  Environment, ///< Arguments, files, GPU, driver or NVRTC are not as they must be.
  Internal,    ///< A bug in attnc.
};

/// How serious a finding is.
enum class Severity {
  Error,   ///< The mod is rejected.
  Warning, ///< The mod is legal, but probably not what its author meant.
};

/// One finding about a mod's text. Lines and columns count from 1; columns count bytes.
struct Diagnostic {
  std::string id;                      ///< Row of dsl/diagnostics.def or dsl/warnings.def, such as "undefined-name".
  std::string file;                    ///< Name of the text, as given by the caller.
  int line = 0;                        ///< Line in the text, from 1.
  int column = 0;                      ///< Column in bytes, from 1.
  std::string message;                 ///< What was observed and what was expected. Lower case, without a final period.
  std::string hint;                    ///< How to repair it. May be empty.
  std::string rendered;                ///< All of the above with the source line and a caret, as a compiler prints it.
  Severity severity = Severity::Error; ///< Whether it rejects the mod.
};

/// The reason of a failure.
struct [[nodiscard]] Error {
  Blame blame = Blame::Internal;       ///< Whose fault it is.
  std::string message;                 ///< What went wrong. For Blame::Mod: all diagnostics, rendered.
  std::string remedy;                  ///< What the user can do. May be empty.
  std::vector<Diagnostic> diagnostics; ///< Findings about the mod's text, for Blame::Mod.

  /// Returns an error of the mod's text.
  static Error mod(std::string message, std::vector<Diagnostic> diagnostics) {
    return {Blame::Mod, std::move(message), {}, std::move(diagnostics)};
  }
  /// Returns an error of the environment.
  static Error environment(std::string message, std::string remedy = {}) {
    return {Blame::Environment, std::move(message), std::move(remedy), {}};
  }
  /// Returns an error that is a bug in attnc.
  static Error internal(std::string message) {
    return {Blame::Internal, std::move(message), "this is a bug in attnc, please report it with the mod", {}};
  }
};

/// A value, or the reason why it is missing. Test it with operator bool before dereferencing it or calling error().
template <class T> class [[nodiscard]] Expected {
public:
  /// Holds a value.
  Expected(T value) : state(std::in_place_index<0>, std::move(value)) {}
  /// Holds the reason why the value is missing.
  Expected(Error error) : state(std::in_place_index<1>, std::move(error)) {}

  explicit operator bool() const { return state.index() == 0; }
  T& operator*() & { return std::get<0>(state); }
  const T& operator*() const& { return std::get<0>(state); }
  T&& operator*() && { return std::get<0>(std::move(state)); }
  T* operator->() { return &std::get<0>(state); }
  const T* operator->() const { return &std::get<0>(state); }
  /// Returns the reason. Precondition: there is no value.
  const Error& error() const& { return std::get<1>(state); }
  Error&& error() && { return std::get<1>(std::move(state)); }

private:
  std::variant<T, Error> state;
};

/// Success, or the reason of a failure. Test it with operator bool before calling error().
template <> class [[nodiscard]] Expected<void> {
public:
  Expected() = default;
  /// Holds the reason of a failure.
  Expected(Error error) : failure(std::move(error)) {}

  explicit operator bool() const { return !failure; }
  /// Returns the reason. Precondition: it failed.
  const Error& error() const& { return *failure; }
  Error&& error() && { return std::move(*failure); }

private:
  std::optional<Error> failure;
};

/// Success, or the reason of a failure.
using Status = Expected<void>;

} // namespace attnc
