// K and V in pages, and new rows, on the command line: run on the CPU gives what it gives of rows that lie together,
// and says what does not fit.
#include "command.h"
#include "problem/pages.h"
#include "tensors.h"

#include <catch2/catch.hpp>

#include <cmath>

using namespace attnc;
using namespace attnc::cli;
using namespace attnc::test;
using Catch::Contains;

namespace {

const std::string kCausal = "--expr 'q_idx >= kv_idx' ";
constexpr int64_t kPageSize = 8, kColumns = 3, kRows = kPageSize * kColumns;

/// Three sequences of up to 24 keys, and 4 queries each.
NamedTensors together() {
  static constexpr int64_t kLengths[] = {17, 2, 24};
  NamedTensors tensors;
  const auto some = [](int64_t i) { return std::sin(double(i)); };
  tensors["q"] = tensor(DType::F32, {3, 4, 4, 8}, some);
  tensors["k"] = tensor(DType::F32, {3, 2, kRows, 8}, [&](int64_t i) { return some(3 * i + 1); });
  tensors["v"] = tensor(DType::F32, {3, 2, kRows, 16}, [&](int64_t i) { return some(7 * i + 2); });
  tensors["kv_lengths"] = tensor(DType::I32, {3}, [](int64_t b) { return double(kLengths[b]); });
  return tensors;
}

/// The same in a pool; entries behind the lengths are no pages.
NamedTensors inPages(NamedTensors tensors) {
  HostTensor table = drawPageTable(3, kColumns, 1);
  for (const char* name : {"k", "v"})
    tensors[name] = dealToPages(tensors[name], table, tensors["kv_lengths"], 3 * kColumns, kPageSize);
  writeElement(table.bytes.data(), DType::I32, 4, -1);
  writeElement(table.bytes.data(), DType::I32, 5, 1 << 30);
  tensors["page_table"] = std::move(table);
  return tensors;
}

/// Without the last 4 rows of each sequence, which come apart.
NamedTensors withoutNew(NamedTensors tensors) {
  const int64_t lengths[] = {17, 2, 24};
  for (auto [name, fresh, width] : {std::tuple("k", "new_k", 8), {"v", "new_v", 16}}) {
    HostTensor& all = tensors[name];
    const auto place = [&](int64_t b, int64_t h, int64_t i) { return ((b * 2 + h) * kRows + i) * width; };
    const HostTensor before = all;
    tensors[fresh] = tensor(DType::F32, {3, 2, 4, width}, [&](int64_t i) {
      const int64_t b = i / width / 8, h = i / width / 4 % 2, row = lengths[b] - 4 + i / width % 4;
      return row < 0 ? NAN : test::at(before, place(b, h, row) + i % width);
    });
    for (int64_t b = 0; b < 3; ++b)
      for (int64_t h = 0; h < 2; ++h)
        for (int64_t i = std::max<int64_t>(lengths[b] - 4, 0); i < lengths[b]; ++i)
          for (int64_t d = 0; d < width; ++d) writeElement(all.bytes.data(), DType::F32, place(b, h, i) + d, NAN);
  }
  return tensors;
}

Outcome run(const NamedTensors& tensors, const std::string& arguments, NamedTensors* result = nullptr) {
  Folder folder;
  REQUIRE(writeSafetensors(folder / "in.safetensors", tensors));
  Outcome outcome = test::attnc("run --device cpu --in " + folder / "in.safetensors" + " --out " +
                                folder / "out.safetensors" + " --lse " + kCausal + arguments);
  INFO(outcome.err);
  if (!result) return outcome;
  REQUIRE(outcome.exitCode == 0);
  *result = test::readTensors(folder / "out.safetensors");
  return outcome;
}

NamedTensors resultOf(const NamedTensors& tensors, const std::string& arguments = "") {
  NamedTensors result;
  run(tensors, arguments, &result);
  return result;
}

} // namespace

TEST_CASE("run attends to pages as to the rows that lie in them") {
  const NamedTensors expected = resultOf(together()), paged = resultOf(inPages(together()));
  for (const char* name : {"out", "lse"}) CHECK(paged.at(name).bytes == expected.at(name).bytes);
  CHECK(paged.size() == 2);
  CHECK(resultOf(inPages(together()), "--q-offset none").at("out").bytes != expected.at("out").bytes);
}

TEST_CASE("run appends new rows, and gives the cache back") {
  const NamedTensors expected = resultOf(together());
  const NamedTensors rows = resultOf(withoutNew(together()));
  for (const char* name : {"out", "lse"}) CHECK(rows.at(name).bytes == expected.at(name).bytes);
  CHECK(rows.at("k").bytes == together().at("k").bytes);
  CHECK(rows.at("v").bytes == together().at("v").bytes);
  NamedTensors missing = withoutNew(together());
  const NamedTensors fresh{{"new_k", missing["new_k"]}, {"new_v", missing["new_v"]}};
  missing = inPages(std::move(missing));
  const NamedTensors pages = resultOf(missing);
  for (const char* name : {"out", "lse"}) CHECK(pages.at(name).bytes == expected.at(name).bytes);
  CHECK(pages.at("k").bytes == inPages(together()).at("k").bytes);
  CHECK(pages.at("v").bytes == inPages(together()).at("v").bytes);
}

TEST_CASE("page tables and new rows that do not fit are refused by name") {
  const auto refused = [](const NamedTensors& tensors, const std::string& message, const std::string& arguments = "") {
    const Outcome outcome = run(tensors, arguments);
    INFO(message);
    CHECK(outcome.exitCode == 3);
    CHECK_THAT(outcome.err, Contains(message));
  };
  NamedTensors tensors = inPages(together());
  tensors.erase("kv_lengths");
  refused(tensors, "pages need KV lengths of sequences, and none are given");
  tensors = inPages(together());
  writeElement(tensors["page_table"].bytes.data(), DType::I32, 1, 9);
  refused(tensors, "page_table: entry [0, 1] is 9, of a pool of 9 pages");
  writeElement(tensors["page_table"].bytes.data(), DType::I32, 1, -1);
  refused(tensors, "page_table: entry [0, 1] is -1, of a pool of 9 pages");
  tensors["page_table"] = tensor(DType::I32, {2, 3}, [](int64_t) { return 0.0; });
  refused(tensors, "page_table is i32 [2, 3], expected i32 [3, pages of a sequence]");
  tensors = inPages(together());
  tensors["k"].shape = {9, 1, 16, 8};
  refused(tensors, "v has shape [9, 2, 8, 16], expected [9, 1, 16, 16]");
  tensors = withoutNew(together());
  tensors.erase("new_v");
  refused(tensors, "new_v is not given, expected both new_k and new_v, or neither");
  tensors = withoutNew(together());
  tensors["new_k"].shape = {3, 4, 2, 8};
  refused(tensors, "new_k has shape [3, 4, 2, 8], expected [3, 2, 4, 8]");
}

TEST_CASE("emit and explain take a page size, run one of random pages") {
  CHECK_THAT(test::attnc("emit --stage cu --arch sm_80 --page-size 16 " + kCausal).out,
             Contains("constexpr int kPageSize = 16;") && Contains("kHasLengths = true"));
  CHECK_THAT(test::attnc("emit --stage cu --arch sm_90a --kernel decode --page-size 1 " + kCausal).out,
             Contains("constexpr int kPageSize = 1;"));
  for (const char* wrong : {"emit --stage cu --page-size 12 ", "emit --stage cu --kernel backward --page-size 16 ",
                            "explain --page-size 3 ", "explain --page-size 16 --shape 1,1,1,1,100 ",
                            "run --random 1,1,1,4,60,8 --page-size 8 ", "run --in x.safetensors --page-size 8 ",
                            "run --random 1,1,1,4,64,8 --page-size 8 --backward "}) {
    INFO(wrong);
    CHECK(test::attnc(wrong + kCausal).exitCode == 2);
  }
  const std::string random = "run --device cpu --random 3,4,2,5,64,16 " + kCausal;
  const std::string pages = test::attnc(random + "--page-size 16").out, rows = test::attnc(random + "--kv-lengths").out;
  CHECK_THAT(pages, Contains("lse "));
  CHECK(pages.substr(pages.find("lse ")) == rows.substr(rows.find("lse ")));
}
