#include "api/mod_warnings.h"

#include "analysis/suspicions.h"
#include "dsl/diagnostics.h"

#include <algorithm>
#include <iterator>

namespace attnc {
namespace {

using analysis::Suspicion;

/// Returns the place of a line's code, without the space before it and the comment after it.
dsl::Loc placeOf(std::string_view text, uint32_t line) {
  size_t begin = 0;
  for (uint32_t i = 1; i < line && begin < text.size(); ++i) {
    begin = std::min(text.find_first_of("\r\n", begin), text.size());
    begin += text.substr(begin, 2) == "\r\n" ? 2 : 1;
  }
  begin = std::min(text.find_first_not_of(" \t", begin), text.size());
  size_t end = std::min(text.find_first_of("\r\n", begin), text.size());
  while (end > begin && (text[end - 1] == ' ' || text[end - 1] == '\t')) --end;
  return {uint32_t(begin), uint32_t(end), 0};
}

void warn(dsl::Diagnostics& to, dsl::Loc at, const Suspicion& found) {
  switch (found.kind) {
  case Suspicion::Kind::MaskAlwaysTrue: return to.warn(at, dsl::diag::maskAlwaysTrue);
  case Suspicion::Kind::MaskAlwaysFalse: return to.warn(at, dsl::diag::maskAlwaysFalse);
  case Suspicion::Kind::ConditionNeverMet: return to.warn(at, dsl::diag::conditionNeverMet, found.what);
  case Suspicion::Kind::FiniteMask: return to.warn(at, dsl::diag::finiteMask, found.what);
  case Suspicion::Kind::GatherOutside: return to.warn(at, dsl::diag::gatherOutside, found.axis, found.what);
  }
}

} // namespace

std::vector<Diagnostic> warningsOf(std::string_view text, const std::string& name, const ir::Module& traced,
                                   const ir::Module& simplified, std::vector<Diagnostic> found) {
  dsl::Diagnostics diagnostics;
  diagnostics.addSource({name, text});
  for (const Suspicion& one : analysis::suspicions(traced, simplified)) warn(diagnostics, placeOf(text, one.line), one);
  std::vector<Diagnostic> more = diagnostics.warnings();
  found.insert(found.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
  std::stable_sort(found.begin(), found.end(), [&](const Diagnostic& a, const Diagnostic& b) {
    return std::make_tuple(a.file != name, a.line, a.column) < std::make_tuple(b.file != name, b.line, b.column);
  });
  return found;
}

} // namespace attnc
