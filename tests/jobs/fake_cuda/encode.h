// Stands for the driver's tensor maps: 128 bytes that hold all that a map is made of.
#pragma once

#include <cstring>
#include <initializer_list>

inline int fakeEncode(void* map, int type, unsigned rank, void* data, const unsigned long long* extent,
                      const unsigned long long* stride, const unsigned* box, const unsigned* step, int interleave,
                      int swizzle, int promotion, int fill) {
  unsigned char bytes[128] = {};
  size_t at = 0;
  const auto add = [&](const void* from, size_t count) {
    std::memcpy(bytes + at, from, count);
    at += count;
  };
  add(&data, sizeof data);
  add(extent, 8 * rank);
  add(stride, 8 * (rank - 1));
  add(box, 4 * rank);
  add(step, 4 * rank);
  for (int value : {type, int(rank), interleave, swizzle, promotion, fill}) add(&value, 2);
  std::memcpy(map, bytes, sizeof bytes);
  return 0;
}
