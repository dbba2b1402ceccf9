#include "problem/sequence_options.h"

#include "add_option.h"
#include "text.h"

#include "attnc/kernel.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace attnc::cli {

void SequenceOptions::addTo(CLI::App& command, const char* helpOfLengths, const char* helpOfPages) {
  command.add_flag("--kv-lengths", kvLengths, helpOfLengths);
  const auto isPageSize = [](const std::string& text) {
    for (int size : kPageSizes)
      if (text == std::to_string(size)) return std::string();
    return fmt::format("{} is no size of a page: pages have {} rows\nhint: e.g. --page-size 64", inQuotes(text),
                       fmt::join(kPageSizes, ", "));
  };
  command.add_option("--page-size", pageSize, helpOfPages)->check(isPageSize);
  addChoice(command, "--q-offset", qOffset, "FROM", {"none", "lengths", "tensor"},
            "Where the queries of each sequence stand. none: from 0 on; lengths: the last query at the\n"
            "last key (default where there are KV lengths); tensor: from where a tensor q_offsets [B] says");
}

void SequenceOptions::addRagged(CLI::App& command, const char* help) { command.add_flag("--ragged", ragged, help); }

std::optional<QueryOffsets> SequenceOptions::offsets() const {
  if (qOffset.empty()) return std::nullopt;
  if (qOffset == "tensor") return QueryOffsets::Tensor;
  return qOffset == "lengths" ? QueryOffsets::FromLengths : QueryOffsets::None;
}

QueryOffsets SequenceOptions::settledOffsets() const {
  return offsets().value_or(lengths() ? QueryOffsets::FromLengths : QueryOffsets::None);
}

void SequenceOptions::checkPages(int64_t kvLen) const {
  if (pageSize && kvLen % pageSize)
    throw wrongUsage("--page-size", fmt::format("KV_LEN {} is no multiple of {}", kvLen, pageSize),
                     fmt::format("take KV_LEN {}", (kvLen / pageSize + 1) * pageSize));
}

void SequenceOptions::check(bool isForward) const {
  if (pageSize && !isForward)
    throw wrongUsage("--page-size", "is of forward and decode kernels, and this is a backward kernel",
                     "leave --page-size out, or the backward pass; --kv-lengths and --ragged train sequences of "
                     "different lengths");
}

} // namespace attnc::cli
