#include "run_options.h"

namespace attnc::cli {

void KindOptions::addTo(CLI::App& command, bool takesBackward) {
  std::vector<Choice> choices{{"auto", {}}, {"forward", {"fwd"}}, {"decode", {}}};
  if (takesBackward) choices.push_back({"backward", {"bwd"}});
  command
      .add_option("--kernel", kind,
                  std::string("Which kernel: auto (a decode kernel where that is faster), forward, decode (few queries "
                              "over\nlong KV, which it divides)") +
                      (takesBackward ? ", backward (gradients)" : ""))
      ->type_name("KERNEL")
      ->capture_default_str()
      ->transform(oneOf(std::move(choices)));
}

std::optional<bool> KindOptions::decode() const {
  if (kind == "auto" || kind == "backward") return std::nullopt;
  return kind == "decode";
}

} // namespace attnc::cli
