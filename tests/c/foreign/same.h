// Claims about declarations of ours that follow a foreign binary interface.
#pragma once

#include <cstddef>
#include <cstdint>

#define SAME_SIZE(ours, theirs) static_assert(sizeof(ours) == sizeof(theirs) && alignof(ours) == alignof(theirs))
#define SAME_MEMBER(ours, member, theirs, other)                                                                       \
  static_assert(offsetof(ours, member) == offsetof(theirs, other) && sizeof(ours::member) == sizeof(theirs::other))
#define SAME_VALUE(ours, theirs) static_assert(int64_t(ours) == int64_t(theirs))
