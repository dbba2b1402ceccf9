// What is wrong with the arguments of a call, and where.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace attnc::c {

/// The place of an argument in messages: "operands.q", or "mod" without a parent. For an element of an array, also its
/// index and perhaps a member: "operands.captures[0].name". Becomes text only if it is needed.
struct Place {
  std::string_view parent, name, member;
  std::optional<size_t> index;
  Place(std::string_view name) : name(name) {}
  Place(const char* name) : name(name) {}
  Place(const std::string& name) : name(name) {}
  Place(std::string_view parent, std::string_view name) : parent(parent), name(name) {}
  /// Returns the place of an element of this array, or of a member of that element.
  Place at(size_t element, std::string_view of = {}) const;
  std::string text() const;
};

/// What is wrong with an argument. Ends a call: call() catches it.
struct Refusal {
  std::string why;
};

/// Throws a Refusal.
[[noreturn]] void refuse(const Place& place, std::string_view observed);

/// Refuses NULL.
void need(const void* pointer, const Place& place);

/// Refuses an index of which there is no element.
void checkIndex(size_t index, size_t count);

} // namespace attnc::c
