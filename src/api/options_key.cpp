#include "api/options_key.h"

#include <fmt/format.h>

#include <type_traits>
#include <utility>

namespace attnc {
namespace {

/// Converts to a member of any type.
struct AnyMember {
  template <class T> operator T() const;
};
/// Whether a struct has at least as many members as `I`.
template <class Struct, size_t... I> constexpr bool hasMembers(std::index_sequence<I...>) {
  return requires { Struct{(void(I), AnyMember())...}; };
}
constexpr size_t kRows = std::tuple_size_v<decltype(fieldsOf(std::declval<KernelOptions&>()))>;
static_assert(hasMembers<KernelOptions>(std::make_index_sequence<kRows>()) &&
                  !hasMembers<KernelOptions>(std::make_index_sequence<kRows + 1>()),
              "options.def has a row for each member of KernelOptions");

/// Writes a text's length before it, so that different lists of fields never look alike.
std::string textOf(const std::string& value) { return fmt::format("{}:{}", value.size(), value); }

std::string textOf(const std::map<std::string, int64_t>& pins) {
  std::string text = fmt::format("{}", pins.size());
  for (const auto& [name, value] : pins) text += fmt::format(" {}={}", textOf(name), value);
  return text;
}

std::string textOf(const std::set<std::string>& names) {
  std::string text = fmt::format("{}", names.size());
  for (const std::string& name : names) text += " " + textOf(name);
  return text;
}

std::string textOf(Features features) { return fmt::format("{}", uint32_t(features)); }

std::string textOf(float value) { return fmt::format("{}", value); }

template <class T> std::string textOf(T value) {
  static_assert(std::is_enum_v<T> || std::is_integral_v<T>, "say how this option is written");
  return fmt::format("{}", int64_t(value));
}

} // namespace

std::string optionsKey(const KernelOptions& options) {
  return std::apply([](const auto&... fields) { return ((textOf(fields) + " ") + ...); }, fieldsOf(options));
}

} // namespace attnc
