// In: findings (row, place, holes). Out: attnc::Diagnostic values and their rendered text.
// Not: long lines. If a line has more than kWindow bytes, only the part around the caret is shown.
#include "dsl/diagnostics.h"

#include "dsl/limits.h"
#include "support/readable.h"

#include <llvm/Support/SourceMgr.h>
#include <llvm/Support/raw_ostream.h>

#include <algorithm>

namespace attnc::dsl {

namespace {

constexpr size_t kWindow = 200;
// Replaces one non-ASCII character while LLVM places the caret, because LLVM places it correctly for ASCII lines only.
constexpr char kWide = '\x01';

std::string substitute(std::string_view text, const std::vector<std::string>& holes) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '{' && i + 2 < text.size() && text[i + 2] == '}' && size_t(text[i + 1] - '0') < holes.size()) {
      result += readable(holes[text[i + 1] - '0']);
      i += 2;
    } else {
      result += text[i];
    }
  }
  return result;
}

} // namespace

std::vector<std::string> diagnosticIds() {
  return {
#define DIAG(name, id, message, hint, ...) id,
#include "dsl/diagnostics.def"
  };
}

const std::vector<std::string>& warningIds() {
  static const std::vector<std::string> ids = {
#define WARN(name, id, message, hint, ...) id,
#include "dsl/warnings.def"
  };
  return ids;
}

uint32_t Diagnostics::addSource(Source source) {
  texts.push_back({readable(source.name), source.text});
  lineStarts.emplace_back();
  return uint32_t(texts.size() - 1);
}

std::string Diagnostics::textOf(Loc loc) const {
  std::string result;
  for (char c : texts[loc.text].text.substr(loc.begin, loc.end - loc.begin)) {
    const bool isSpace = c == ' ' || c == '\t' || c == '\r' || c == '\n';
    if (!isSpace)
      result += c;
    else if (!result.empty() && result.back() != ' ')
      result += ' ';
  }
  return result;
}

std::pair<int, int> Diagnostics::lineAndColumn(Loc loc) const {
  auto& starts = lineStarts[loc.text];
  if (starts.empty()) {
    std::string_view text = texts[loc.text].text;
    starts.push_back(0);
    for (uint32_t i = 0; i < text.size(); ++i)
      if (text[i] == '\n' || (text[i] == '\r' && !(i + 1 < text.size() && text[i + 1] == '\n')))
        starts.push_back(i + 1);
  }
  auto next = std::upper_bound(starts.begin(), starts.end(), loc.begin);
  return {int(next - starts.begin()), int(loc.begin - *(next - 1)) + 1};
}

Finding Diagnostics::make(Severity severity, Loc loc, const char* id, std::string_view message, std::string_view hint,
                          const std::vector<std::string>& holes) const {
  auto [line, column] = lineAndColumn(loc);
  Diagnostic diagnostic{id, texts[loc.text].name, line, column, substitute(message, holes), substitute(hint, holes)};
  diagnostic.severity = severity;
  diagnostic.rendered = render(loc, diagnostic);
  return {loc, std::move(diagnostic)};
}

void Diagnostics::add(Loc loc, const char* id, std::string_view message, std::string_view hint,
                      const std::vector<std::string>& holes) {
  put(make(Severity::Error, loc, id, message, hint, holes));
}

namespace {

bool isIn(const std::vector<Finding>& found, Loc loc, std::string_view id) {
  return std::any_of(found.begin(), found.end(), [&](const Finding& other) {
    return other.loc.begin == loc.begin && other.loc.text == loc.text && other.diagnostic.id == id;
  });
}

} // namespace

void Diagnostics::addWarning(Loc loc, const char* id, std::string_view message, std::string_view hint,
                             const std::vector<std::string>& holes) {
  if (warned.size() < kMaxDiagnostics && !isIn(warned, loc, id))
    warned.push_back(make(Severity::Warning, loc, id, message, hint, holes));
}

void Diagnostics::put(Finding finding) {
  if (isIn(found, finding.loc, finding.diagnostic.id)) return;
  found.push_back(std::move(finding));
  if (found.size() >= kMaxDiagnostics) throw Abort{true};
}

std::vector<Finding> Diagnostics::take(size_t from) {
  std::vector<Finding> taken(std::make_move_iterator(found.begin() + int64_t(from)),
                             std::make_move_iterator(found.end()));
  found.resize(from);
  return taken;
}

/// Computes the line of `loc` as ASCII, and the position of the range in it. Each other character becomes one kWide;
/// its bytes are appended to `wide`. Bytes that are not text become '?'.
void Diagnostics::sourceLine(Loc loc, std::string& line, size_t& column, size_t& width,
                             std::vector<std::string>& wide) const {
  std::string_view text = texts[loc.text].text;
  size_t begin = loc.begin - size_t(lineAndColumn(loc).second - 1);
  size_t end = std::min(text.find_first_of("\r\n", begin), text.size());
  if (loc.begin - begin > kWindow / 2 && end - begin > kWindow) begin = loc.begin - kWindow / 2;
  end = std::min(end, begin + kWindow);
  size_t rangeEnd = std::min(std::max<size_t>(loc.end, loc.begin + 1), end);
  width = 0;
  column = std::string::npos;
  for (size_t at = begin; at < end;) {
    if (at >= loc.begin && column == std::string::npos) column = line.size();
    if (at >= loc.begin && at < rangeEnd) ++width;
    const Character character = characterAt(text, at);
    const bool isPrintable = character.isPrintable || text[at] == '\t', isWide = isPrintable && character.bytes > 1;
    if (isWide) wide.emplace_back(text.substr(at, character.bytes));
    line += isWide ? kWide : isPrintable ? text[at] : '?';
    at += character.bytes;
  }
  if (column == std::string::npos) column = line.size();
}

std::string Diagnostics::render(Loc loc, const Diagnostic& diagnostic) const {
  std::string line;
  size_t column = 0, width = 0;
  std::vector<std::string> wide;
  sourceLine(loc, line, column, width, wide);
  std::string ascii;
  llvm::raw_string_ostream out(ascii);
  using Ranges = llvm::ArrayRef<std::pair<unsigned, unsigned>>;
  std::pair<unsigned, unsigned> range(column, column + width);
  const bool isWarning = diagnostic.severity == Severity::Warning;
  llvm::SourceMgr manager;
  llvm::SMDiagnostic(manager, llvm::SMLoc(), /*FN=*/"", diagnostic.line, int(column),
                     isWarning ? llvm::SourceMgr::DK_Warning : llvm::SourceMgr::DK_Error,
                     isWarning ? diagnostic.message + " [" + diagnostic.id + "]" : diagnostic.message, line,
                     width > 1 ? Ranges(range) : Ranges())
      .print(nullptr, out, /*ShowColors=*/false);
  if (!diagnostic.hint.empty())
    llvm::SMDiagnostic("", llvm::SourceMgr::DK_Note, diagnostic.hint).print(nullptr, out, /*ShowColors=*/false);
  std::string result =
      diagnostic.file + ":" + std::to_string(diagnostic.line) + ":" + std::to_string(diagnostic.column) + ": ";
  size_t next = 0;
  for (char c : out.str()) {
    if (c == kWide && next < wide.size())
      result += wide[next++];
    else
      result += c;
  }
  return result;
}

namespace {

/// Sorts findings by place.
std::vector<Diagnostic> sorted(const std::vector<Finding>& found) {
  std::vector<const Finding*> order;
  for (const Finding& finding : found) order.push_back(&finding);
  std::stable_sort(order.begin(), order.end(), [](const Finding* a, const Finding* b) {
    return std::make_pair(a->loc.text, a->loc.begin) < std::make_pair(b->loc.text, b->loc.begin);
  });
  std::vector<Diagnostic> result;
  for (const Finding* finding : order) result.push_back(finding->diagnostic);
  return result;
}

} // namespace

Error Diagnostics::error() const {
  std::vector<Diagnostic> all = sorted(found);
  std::string message;
  for (const Diagnostic& diagnostic : all) message += diagnostic.rendered;
  return Error::mod(std::move(message), std::move(all));
}

std::vector<Diagnostic> Diagnostics::warnings() const { return sorted(warned); }

} // namespace attnc::dsl
