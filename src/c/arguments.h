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

/// What is wrong with the arguments of a call; the first finding is kept. After a refusal, readers go on with defaults,
/// and the caller checks ok() before it does anything.
class Arguments {
public:
  bool ok() const { return reason.empty(); }
  const std::string& why() const { return reason; }
  void refuse(const Place& place, std::string_view observed);
  /// Whether the pointer is not NULL; refuses it if it is.
  bool given(const void* pointer, const Place& place);

private:
  std::string reason;
};

/// Checks that an element of this index exists.
bool checkIndex(Arguments& arguments, size_t index, size_t count);

} // namespace attnc::c
