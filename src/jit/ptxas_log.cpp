#include "jit/ptxas_log.h"

#include <llvm/ADT/StringExtras.h>

#include <algorithm>
#include <charconv>

namespace attnc::jit {

namespace {

// Returns the number that ends right before `what`, as in "16 bytes smem" for " bytes smem"; 0 if not found.
int64_t numberBefore(std::string_view line, std::string_view what) {
  size_t end = line.find(what);
  if (end == std::string_view::npos) return 0;
  size_t begin = end;
  while (begin > 0 && llvm::isDigit(line[begin - 1])) --begin;
  int64_t value = 0;
  std::from_chars(line.data() + begin, line.data() + end, value);
  return value;
}

// Returns the number of an advisory "(C7519)" in the line; 0 if not found.
int advisoryNumber(std::string_view line) {
  for (size_t at = line.find("(C"); at != std::string_view::npos; at = line.find("(C", at + 1)) {
    int number = 0;
    auto [end, error] = std::from_chars(line.data() + at + 2, line.data() + line.size(), number);
    if (error == std::errc() && end != line.data() + line.size() && *end == ')') return number;
  }
  return 0;
}

bool isOfProducts(int number) { return number >= 7510 && number <= 7520; }

void readLine(std::string_view line, CompiledKernel& result) {
  result.stackBytes += numberBefore(line, " bytes stack frame");
  result.spillBytes += int(numberBefore(line, " bytes spill stores") + numberBefore(line, " bytes spill loads"));
  result.registers = std::max(result.registers, int(numberBefore(line, " registers")));
  result.staticSharedBytes = std::max(result.staticSharedBytes, numberBefore(line, " bytes smem"));
  const int advisory = advisoryNumber(line);
  if (advisory == 7504 || isOfProducts(advisory)) result.advisories.emplace_back(line); // 7504: setmaxnreg ignored
}

} // namespace

void readPtxasLog(std::string_view log, CompiledKernel& result) {
  result.registers = result.spillBytes = 0;
  result.staticSharedBytes = result.stackBytes = 0;
  result.advisories.clear();
  for (llvm::StringRef line : llvm::split(log, '\n')) readLine(line, result);
}

bool serialisesProducts(const CompiledKernel& kernel) {
  return std::any_of(kernel.advisories.begin(), kernel.advisories.end(),
                     [](const std::string& line) { return isOfProducts(advisoryNumber(line)); });
}

} // namespace attnc::jit
