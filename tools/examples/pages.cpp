// The page table of two sequences with the same prompt, and the kernel that would read it.
//   pages_cpp [arch, default sm_90a]
#include <attnc/attnc.h>

#include "page_allocator.h"
#include "support.hpp"

namespace {

constexpr int64_t kPages = 8, kPageSize = 16, kColumns = 4, kPrompt = 40;

} // namespace

int main(int argc, char** argv) {
  example::PageAllocator pages(kPages, kPageSize);
  const auto first = pages.add();
  take(pages.append(first, kPrompt));
  const auto second = take(pages.share(first, kPrompt));
  for (const auto sequence : {second, first}) // a token each; the page that both would write to is copied once
    if (const auto copy = take(pages.append(sequence, 1)))
      std::printf("copy %d rows of page %d to page %d\n", int(copy->rows), copy->from, copy->to);

  std::vector<int32_t> table(2 * kColumns), lengths(2);
  if (!pages.fill({first, second}, kColumns, table.data(), lengths.data())) return 1;
  for (size_t b = 0; b < lengths.size(); ++b) {
    std::printf("%d rows in pages", lengths[b]);
    for (size_t i = 0; i < size_t(kColumns); ++i) std::printf(" %d", table[b * kColumns + i]);
    std::printf("\n");
  }

  using attnc::TensorView;
  const auto view = [](int64_t batch, int64_t heads, int64_t length) {
    return TensorView::contiguous(nullptr, attnc::DType::BF16, {batch, heads, length, 128});
  };
  const attnc::Operands operands{.q = view(2, 8, 1),
                                 .k = view(kPages, 2, kPageSize),
                                 .v = view(kPages, 2, kPageSize),
                                 .kvLengths = TensorView::contiguous(nullptr, attnc::DType::I32, {2}),
                                 .pageTable = TensorView::contiguous(nullptr, attnc::DType::I32, {2, kColumns})};
  const attnc::Preparation settled = take(attnc::Compiler().settle(
      attnc::Mod::identity(), operands, {.out = view(2, 8, 1)}, {.arch = argc > 1 ? argv[1] : "sm_90a"}));
  std::printf("family %s, pages of %d rows\n", std::string(attnc::familyName(settled.kernel.options().family)).c_str(),
              settled.kernel.options().pageSize);
  return 0;
}
