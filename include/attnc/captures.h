// The values that a mod captures, by name.
#pragma once

#include "attnc/tensor.h"

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>

namespace attnc {

/// The values that a mod captures, by name. Tensors are views of host memory for CPU work, and of device memory for GPU
/// work; scalars are values. The memory of a view must stay valid until the work that uses it is done.
///
/// Tensors have the dtype and rank that the mod declares, and any strides. Addresses are multiples of the element's
/// size. Names that the mod does not have are ignored. Functions that take Captures read them only during the call.
class Captures {
public:
  /// A captured value.
  using Item = std::variant<TensorView, int64_t, double, bool>;
  /// Sets the value of `name`; replaces an earlier one. Returns *this.
  Captures& set(std::string name, TensorView tensor) { return put(std::move(name), tensor); }
  Captures& set(std::string name, int64_t value) { return put(std::move(name), value); }
  Captures& set(std::string name, int value) { return put(std::move(name), int64_t(value)); }
  Captures& set(std::string name, double value) { return put(std::move(name), value); }
  Captures& set(std::string name, bool value) { return put(std::move(name), value); }
  /// Returns the value of `name`, owned by this object; null if it is not set.
  const Item* find(std::string_view name) const;
  /// Returns all values by name.
  const std::map<std::string, Item, std::less<>>& all() const { return values; }

private:
  Captures& put(std::string name, Item value);
  std::map<std::string, Item, std::less<>> values;
};

} // namespace attnc
