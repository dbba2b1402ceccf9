// Collects the errors and warnings of a mod's text and renders them as a compiler does.
//
// In: a row of diagnostics.def or warnings.def, a place in a text, and the values of the row's holes, whose types the
// row fixes.
// Out: attnc::Diagnostic, with the source line and a caret drawn by llvm::SourceMgr's printer.
// Not: what is an error. All messages are in these tables.
#pragma once

#include "attnc/error.h"

#include <llvm/ADT/ArrayRef.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace attnc::dsl {

/// A range of bytes in one of the texts of a compilation. Text 0 is the mod, others are the values of defines.
struct Loc {
  uint32_t begin = 0;
  uint32_t end = 0;
  uint32_t text = 0;
};

/// A text and the name under which it is reported. It borrows the text.
struct Source {
  std::string name;
  std::string_view text;
};

/// A row of a table. `Holes` are the types of {0}, {1}, ...
template <class... Holes> struct Row {
  const char* id;
  const char* message;
  const char* hint;
};

using Text = std::string_view;
using Count = int64_t;

namespace detail {
/// Returns the number of the highest hole in a message, plus one.
constexpr size_t holes(std::string_view text) {
  size_t count = 0;
  for (size_t i = 0; i + 2 < text.size(); ++i)
    if (text[i] == '{' && text[i + 2] == '}' && size_t(text[i + 1] - '0') >= count) count = text[i + 1] - '0' + 1;
  return count;
}
constexpr size_t most(size_t a, size_t b) { return a < b ? b : a; }
template <class... Holes> constexpr size_t size(const Row<Holes...>&) { return sizeof...(Holes); }
inline std::string toText(Text text) { return std::string(text); }
inline std::string toText(Count count) { return std::to_string(count); }
} // namespace detail

namespace diag {
#define ROW(name, id, message, hint, ...)                                                                              \
  inline constexpr Row<__VA_ARGS__> name{id, message, hint};                                                           \
  static_assert(detail::most(detail::holes(message), detail::holes(hint)) <= detail::size(name), "hole without a "     \
                                                                                                 "type");
#define DIAG ROW
#include "dsl/diagnostics.def"
#define WARN ROW
#include "dsl/warnings.def"
#undef ROW
} // namespace diag

/// Returns all ids of diagnostics.def, in order.
std::vector<std::string> diagnosticIds();
/// Returns all ids of warnings.def, in order.
const std::vector<std::string>& warningIds();

/// Thrown to unwind to the nearest place where work can go on. It never leaves the front end. If `fatal`, all work
/// ends.
struct Abort {
  bool fatal = false;
  bool raised = false; ///< whether the text itself raised this: `raise`, or an `assert` that fails
};

/// One error or warning, and its place.
struct Finding {
  Loc loc;
  Diagnostic diagnostic;
};

class Diagnostics {
public:
  /// Adds a text. Returns its number, for Loc::text.
  uint32_t addSource(Source source);
  const Source& source(uint32_t index) const { return texts[index]; }
  size_t sources() const { return texts.size(); }

  /// Returns the text of a place, in one line.
  std::string textOf(Loc loc) const;
  /// Returns the 1-based line and column (in bytes) of a place.
  std::pair<int, int> lineAndColumn(Loc loc) const;

  /// Records a finding. The same finding at the same place is recorded once. Throws a fatal Abort at kMaxDiagnostics.
  template <class... Holes> void report(Loc loc, const Row<Holes...>& row, std::type_identity_t<Holes>... holes) {
    add(loc, row.id, row.message, row.hint, {detail::toText(holes)...});
  }

  /// Records a warning. The same warning at the same place is recorded once.
  template <class... Holes> void warn(Loc loc, const Row<Holes...>& row, std::type_identity_t<Holes>... holes) {
    addWarning(loc, row.id, row.message, row.hint, {detail::toText(holes)...});
  }

  /// Calls report(), then throws Abort.
  template <class... Holes>
  [[noreturn]] void fail(Loc loc, const Row<Holes...>& row, std::type_identity_t<Holes>... holes) {
    report(loc, row, holes...);
    throw Abort{};
  }

  bool empty() const { return found.empty(); }
  size_t size() const { return found.size(); }
  /// Removes the findings from index `from` on and returns them.
  std::vector<Finding> take(size_t from);
  /// Records a finding as report() does.
  void put(Finding finding);
  /// Returns all findings as one error, in order of place.
  Error error() const;

  /// Returns the warnings in order of place.
  std::vector<Diagnostic> warnings() const;
  size_t warningCount() const { return warned.size(); }
  /// Removes the warnings from index `from` on.
  void dropWarnings(size_t from) { warned.resize(from); }

private:
  Finding make(Severity severity, Loc loc, const char* id, std::string_view message, std::string_view hint,
               const std::vector<std::string>& holes) const;
  void addWarning(Loc loc, const char* id, std::string_view message, std::string_view hint,
                  const std::vector<std::string>& holes);
  void add(Loc loc, const char* id, std::string_view message, std::string_view hint,
           const std::vector<std::string>& holes);
  void sourceLine(Loc loc, std::string& line, size_t& column, size_t& width, std::vector<std::string>& wide) const;
  std::string render(Loc loc, const Diagnostic& diagnostic) const;

  std::vector<Source> texts;
  mutable std::vector<std::vector<uint32_t>> lineStarts; // per source, made when first needed
  std::vector<Finding> found, warned;
};

} // namespace attnc::dsl
