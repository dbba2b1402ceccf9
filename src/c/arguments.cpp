#include "c/arguments.h"

#include <fmt/format.h>

namespace attnc::c {

Place Place::at(size_t element, std::string_view of) const {
  Place place = *this;
  place.index = element;
  place.member = of;
  return place;
}

std::string Place::text() const {
  std::string text = parent.empty() ? std::string(name) : fmt::format("{}.{}", parent, name);
  if (index) text += fmt::format("[{}]", *index);
  return member.empty() ? text : fmt::format("{}.{}", text, member);
}

void refuse(const Place& place, std::string_view observed) {
  throw Refusal{fmt::format("{} {}", place.text(), observed)};
}

void need(const void* pointer, const Place& place) {
  if (!pointer) refuse(place, "is NULL");
}

void checkIndex(size_t index, size_t count) {
  if (index >= count) refuse("index", fmt::format("is {}, there are {}", index, count));
}

} // namespace attnc::c
