// Where rows in pages lie, block by block as a warp looks it up, against the table itself. The code of the kernels, on
// the host.
#include "host_cta.h"

#include "algo/pages.cuh"

#include <catch2/catch.hpp>

#include <random>

using namespace attnc;

namespace {

constexpr int kNoPage = 1 << 23; // large enough to show, small enough for a float

template <int PageSize, int Rows> void checkBlocks(int length, uint64_t seed) {
  constexpr int kPositions = 128;
  const Strides strides = {1'000'003, 0, 17};
  std::vector<int> table(size_t((kPositions + PageSize - 1) / PageSize));
  std::mt19937_64 random(seed);
  for (int i = 0; i < int(table.size()); ++i) table[size_t(i)] = i * PageSize < length ? int(random() % 1000) : kNoPage;
  int wrong = 0, readBehind = 0;
  HostCta::run(32, [&] {
    for (int start = 0; start < kPositions; start += Rows) {
      PageBlock<PageSize, Rows> block;
      block.look_up(table.data(), start, length);
      for (int page : block.page) {
        readBehind += page == kNoPage;
      }
      for (int i = 0; i < Rows; ++i) {
        // As in a copy, lanes ask for rows of their own.
        const int row = (i + int(threadIdx.x) / 8) % Rows;
        const long long offset = block.offset(strides, unsigned(row));
        if (start + row >= length) continue;
        wrong += offset != paged_offset<PageSize>(table.data(), strides, start + row);
      }
    }
  });
  INFO("pages of " << PageSize << ", blocks of " << Rows << ", length " << length);
  CHECK(wrong == 0);
  CHECK(readBehind == 0);
}

template <int PageSize> void checkPageSize() {
  for (int length : {1, 37, 128}) {
    checkBlocks<PageSize, 16>(length, uint64_t(length));
    checkBlocks<PageSize, 32>(length, uint64_t(length));
    checkBlocks<PageSize, 64>(length, uint64_t(length));
  }
}

} // namespace

TEST_CASE("a warp finds the rows of a block in their pages, and reads no entry behind the length", "[templates]") {
  checkPageSize<1>();
  checkPageSize<8>();
  checkPageSize<16>();
  checkPageSize<32>();
  checkPageSize<64>();
  checkPageSize<128>();
  checkPageSize<256>();
}

TEST_CASE("a position of a sequence is a row of its page", "[templates]") {
  const int table[] = {5, 2, 9};
  const Strides strides = {100, 0, 3};
  CHECK(paged_offset<8>(table, strides, 0) == 500);
  CHECK(paged_offset<8>(table, strides, 7) == 521);
  CHECK(paged_offset<8>(table, strides, 8) == 200);
  CHECK(paged_offset<8>(table, strides, 18) == 906);
  CHECK(paged_offset<1>(table, strides, 2) == 900);
}
