#include "xla/launches.h"

#include "support/try.h"

#include <atomic>
#include <mutex>
#include <unordered_map>

namespace attnc::xla {
namespace {

/// Values by text. Each is made once, or more often if threads ask for it at the same time; the first one stays.
template <class T> class Kept {
public:
  template <class Make> Expected<T> get(const std::string& key, Make&& make) {
    {
      std::lock_guard lock(mutex);
      if (const auto found = values.find(key); found != values.end()) return found->second;
    }
    ATTNC_TRY_AS(made, make());
    std::lock_guard lock(mutex);
    return values.emplace(key, *std::move(made)).first->second;
  }

private:
  std::mutex mutex;
  std::unordered_map<std::string, T> values;
};

// Never destroyed: XLA's threads may outlive static objects.
template <class T> Kept<T>& kept() {
  static auto* const all = new Kept<T>;
  return *all;
}

std::atomic<const attnc_compiler*> given = nullptr;

Expected<const attnc_compiler*> compiler() {
  if (const attnc_compiler* found = given) return found;
  return kept<const attnc_compiler*>().get("", []() -> Expected<const attnc_compiler*> {
    attnc_compiler* made = nullptr;
    if (attnc_compiler_create(nullptr, &made)) return lastError();
    return made;
  });
}

Expected<Launch> prepare(const Frame& frame) {
  ATTNC_TRY_AS(with, compiler());
  ATTNC_TRY_AS(mod, modOf(frame.mod));
  Frame::Structs structs;
  frame.fill(structs);
  attnc_prepared* made = nullptr;
  const attnc_status status =
      frame.isBackward ? attnc_prepare_training(*with, mod->get(), &structs.backwardOperands, &structs.outputs,
                                                &structs.backwardOutputs, nullptr, &made)
                       : attnc_prepare(*with, mod->get(), &structs.operands, &structs.outputs, nullptr, &made);
  if (status) return lastError();
  Launch launch = {{made, attnc_prepared_destroy}};
  if (attnc_prepared_workspace_bytes(made, &launch.workspaceBytes)) return lastError();
  return launch;
}

} // namespace

Error lastError() { return Error::environment(attnc_last_error(), attnc_last_remedy()); }

void setCompiler(const attnc_compiler* compiler) { given = compiler; }

Expected<std::shared_ptr<const attnc_mod>> modOf(const std::string& text) {
  using Mod = std::shared_ptr<const attnc_mod>;
  return kept<Mod>().get(text, [&]() -> Expected<Mod> {
    attnc_mod* mod = nullptr;
    if (attnc_mod_parse_ir(text.data(), text.size(), "<xla>", &mod)) return lastError();
    return Mod(mod, [](const attnc_mod* mod) { attnc_mod_destroy(const_cast<attnc_mod*>(mod)); });
  });
}

Expected<Launch> launchOf(const Frame& frame, int32_t device) {
  return kept<Launch>().get(frame.key() + std::to_string(device), [&] { return prepare(frame); });
}

} // namespace attnc::xla
