// Captures by name: the public container that bind() reads. It is defined here, in the lowest layer that uses it.
#include "attnc/captures.h"

namespace attnc {

const Captures::Item* Captures::find(std::string_view name) const {
  auto found = values.find(name);
  return found == values.end() ? nullptr : &found->second;
}

Captures& Captures::put(std::string name, Item value) {
  values.insert_or_assign(std::move(name), std::move(value));
  return *this;
}

} // namespace attnc
