// What a mod captures, by name.
#pragma once

#include "attnc/tensor.h"

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>

namespace attnc {

/// What a mod captures, by name: tensors as views (host memory for CPU work, device memory for GPU work), scalars by
/// value. A view is borrowed until the work that uses it is done.
///
/// Tensors have the dtype and rank that the mod declares and any strides; addresses are multiples of the element's
/// size. What is set last counts. Names that the mod does not have are not looked at. Whoever is given Captures reads
/// them during the call alone.
class Captures {
public:
  using Item = std::variant<TensorView, int64_t, double, bool>;
  Captures& set(std::string name, TensorView tensor) { return put(std::move(name), tensor); }
  Captures& set(std::string name, int64_t value) { return put(std::move(name), value); }
  Captures& set(std::string name, int value) { return put(std::move(name), int64_t(value)); }
  Captures& set(std::string name, double value) { return put(std::move(name), value); }
  Captures& set(std::string name, bool value) { return put(std::move(name), value); }
  const Item* find(std::string_view name) const; ///< null: not set
  const std::map<std::string, Item, std::less<>>& all() const { return values; }

private:
  Captures& put(std::string name, Item value);
  std::map<std::string, Item, std::less<>> values;
};

} // namespace attnc
