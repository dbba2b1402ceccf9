#include "problem/problem_options.h"

#include "add_option.h"
#include "text.h"

#include <fmt/format.h>

namespace attnc::cli {

RandomProblem randomProblem(const char* option, const std::string& text, const ProblemShape& shape, int64_t headDim) {
  if (std::string wrong = checkHeadDim(fmt::to_string(headDim)); !wrong.empty())
    throw wrongUsage(option, inQuotes(text) + ": " + wrong, /*hint=*/""); // it has one
  constexpr double kMaxElements = 1ll << 34;
  for (double length : {double(shape.qHeads) * double(shape.qLen), double(shape.kvHeads) * double(shape.kvLen)})
    if (double(shape.batch) * length * double(headDim) > kMaxElements)
      throw wrongUsage(option, inQuotes(text) + ": a tensor would have more than 2^34 elements",
                       "take a smaller batch, fewer heads or a shorter length");
  return {shape, headDim};
}

void checkFp8(const ProblemOptions& options) {
  options.target.fp8.check(dtypeOf(options.target.dtype));
  if (options.target.fp8.scales == "pages" && !options.sequences.pageSize)
    throw wrongUsage("--scales", "k and v have no pages", "--scales rows; `attnc run` has --page-size");
  if (options.target.fp8.scales == "blocks" && dtypeOf(options.target.dtype) != DType::E4M3)
    throw wrongUsage("--scales", "k and v of a cache have no scales of blocks", "--scales heads, rows or pages");
}

void KindOptions::addTo(CLI::App& command, bool takesBackward) {
  std::vector<Choice> choices{"auto", {"forward", {"fwd"}}, "decode"};
  if (takesBackward) choices.push_back({"backward", {"bwd"}});
  addChoice(command, "--kernel", kind, "KERNEL", std::move(choices),
            std::string("Which kernel: auto (a decode kernel where that is faster), forward, decode (few queries "
                        "over\nlong KV, which it divides)") +
                (takesBackward ? ", backward (gradients)" : ""));
}

std::optional<bool> KindOptions::decode() const {
  if (kind == "auto" || kind == "backward") return std::nullopt;
  return kind == "decode";
}

} // namespace attnc::cli
