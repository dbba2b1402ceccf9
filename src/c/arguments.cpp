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

void Arguments::refuse(const Place& place, std::string_view observed) {
  if (ok()) reason = fmt::format("{} {}", place.text(), observed);
}

bool Arguments::given(const void* pointer, const Place& place) {
  if (!pointer) refuse(place, "is NULL");
  return pointer;
}

bool checkIndex(Arguments& arguments, size_t index, size_t count) {
  if (index < count) return true;
  arguments.refuse("index", fmt::format("is {}, there are {}", index, count));
  return false;
}

} // namespace attnc::c
