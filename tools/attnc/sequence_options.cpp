#include "sequence_options.h"

#include "usage.h"

namespace attnc::cli {

void SequenceOptions::addTo(CLI::App& command, const char* helpOfLengths) {
  command.add_flag("--kv-lengths", kvLengths, helpOfLengths);
  command
      .add_option("--q-offset", qOffset,
                  "Forward: where the queries of each sequence stand. none: from 0 on; lengths: the last query at the\n"
                  "last key (default where there are KV lengths); tensor: from where a tensor q_offset [B] says")
      ->type_name("FROM")
      ->transform(oneOf({{"none", {}}, {"lengths", {}}, {"tensor", {}}}));
}

void SequenceOptions::addRagged(CLI::App& command, const char* help) { command.add_flag("--ragged", ragged, help); }

std::optional<QueryOffsets> SequenceOptions::offsets() const {
  if (qOffset.empty()) return std::nullopt;
  if (qOffset == "tensor") return QueryOffsets::Tensor;
  return qOffset == "lengths" ? QueryOffsets::FromLengths : QueryOffsets::None;
}

QueryOffsets SequenceOptions::settledOffsets() const {
  return offsets().value_or(kvLengths ? QueryOffsets::FromLengths : QueryOffsets::None);
}

void SequenceOptions::check(bool isForward) const {
  if (isForward) return;
  constexpr const char* kReason = "is of forward kernels, and this is none";
  if (kvLengths) throw CLI::ValidationError("--kv-lengths", kReason);
  if (!qOffset.empty() && !ragged) throw CLI::ValidationError("--q-offset", kReason);
}

} // namespace attnc::cli
