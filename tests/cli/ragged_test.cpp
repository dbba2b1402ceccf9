// Ragged batches on the command line: run on the CPU, and what is refused.
#include "command.h"
#include "tensors.h"

#include <catch2/catch.hpp>

#include <cmath>
#include <limits>

using namespace attnc;
using namespace attnc::cli;
using namespace attnc::test;
using Catch::Contains;

namespace {

constexpr double kStarts[] = {1, 4, 4, 6}; ///< of 3 sequences: 3, 0 and 2 rows, in 7
constexpr int64_t kRows = 7, kHeads = 2, kColumns = 8;

/// q, k, v [total, H, D] with equal scores: out is the mean of the live kv's rows, counted over all sequences. NaN in
/// rows of none.
NamedTensors operands() {
  NamedTensors tensors;
  const auto row = [](int64_t i) { return i / (kHeads * kColumns); };
  const auto inside = [&](int64_t i, double value) {
    return row(i) >= 1 && row(i) < 6 ? value : std::numeric_limits<double>::quiet_NaN();
  };
  for (const char* name : {"q", "k", "dout"})
    tensors[name] = tensor(DType::F32, {kRows, kHeads, kColumns}, [&](int64_t i) { return inside(i, *name == 'd'); });
  tensors["v"] = tensor(DType::F32, {kRows, kHeads, kColumns}, [&](int64_t i) { return inside(i, double(row(i))); });
  tensors["cu_seqlens_q"] = tensor(DType::I32, {4}, [](int64_t b) { return kStarts[b]; });
  return tensors;
}

Outcome run(const NamedTensors& tensors, const std::string& arguments, NamedTensors* result = nullptr) {
  Folder folder;
  REQUIRE(writeSafetensors(folder / "in.safetensors", tensors));
  Outcome outcome = test::attnc("run --device cpu --in " + folder / "in.safetensors" + " --out " +
                                folder / "out.safetensors" + " --lse " + arguments);
  INFO(outcome.err);
  if (!result) return outcome;
  REQUIRE(outcome.exitCode == 0);
  *result = test::readTensors(folder / "out.safetensors");
  return outcome;
}

} // namespace

TEST_CASE("run takes packed sequences from the file, and writes results packed", "[cli]") {
  NamedTensors result;
  run(operands(), "--expr 'q_idx >= kv_idx'", &result);
  const HostTensor &out = result["out"], &lse = result["lse"];
  REQUIRE(out.shape == std::vector<int64_t>{kRows, kHeads, kColumns});
  REQUIRE(lse.shape == std::vector<int64_t>{kHeads, kRows});
  constexpr double kMeans[] = {0, 1, 1.5, 2, 4, 4.5, 0};
  constexpr double kLive[] = {0, 1, 2, 3, 1, 2, 0};
  for (int64_t row = 0; row < kRows; ++row)
    for (int64_t h = 0; h < kHeads; ++h) {
      CHECK(at(out, (row * kHeads + h) * kColumns) == Approx(kMeans[row]));
      CHECK(std::exp(at(lse, h * kRows + row)) == Approx(kLive[row]));
    }
}

TEST_CASE("run computes gradients of packed sequences", "[cli]") {
  NamedTensors result;
  run(operands(), "--expr 'q_idx >= kv_idx' --backward", &result);
  const HostTensor& dv = result["dv"];
  REQUIRE(dv.shape == std::vector<int64_t>{kRows, kHeads, kColumns});
  constexpr double kWeights[] = {0, 1 + 0.5 + 1. / 3, 0.5 + 1. / 3, 1. / 3, 1.5, 0.5, 0}; // sums of a column's
  for (int64_t row = 0; row < kRows; ++row) CHECK(at(dv, row * kHeads * kColumns) == Approx(kWeights[row]));
}

TEST_CASE("keys of packed sequences may lie in pages, to which new rows are appended", "[cli]") {
  constexpr int64_t kPage = 8, kPages = 4;
  constexpr double kTable[] = {2, 9, 9, 9, 0, 3}; // of 3 sequences with 3, 0 and 10 keys
  constexpr double kLengths[] = {3, 0, 10};
  for (bool appends : {false, true}) {
    NamedTensors tensors = operands();
    const auto nan = [](int64_t) { return std::numeric_limits<double>::quiet_NaN(); };
    for (const char* name : {"k", "v"}) tensors[name] = tensor(DType::F32, {kPages, kHeads, kPage, kColumns}, nan);
    // A key's v is its position.
    const auto set = [&](int64_t page, int64_t row, double value) {
      for (int64_t h = 0; h < kHeads; ++h)
        for (int64_t i = 0; i < kColumns; ++i) {
          const int64_t at = ((page * kHeads + h) * kPage + row) * kColumns + i;
          writeElement(tensors["k"].bytes.data(), DType::F32, at, 0);
          writeElement(tensors["v"].bytes.data(), DType::F32, at, value);
        }
    };
    for (int64_t i = 0; i < 3; ++i)
      if (!appends) set(2, i, double(i));
    for (int64_t i = 0; i < (appends ? 8 : 10); ++i) set(i < 8 ? 0 : 3, i % 8, double(i));
    tensors["page_table"] = tensor(DType::I32, {3, 2}, [&](int64_t i) { return kTable[i]; });
    tensors["kv_lengths"] = tensor(DType::I32, {3}, [&](int64_t b) { return kLengths[b]; });
    if (appends) {
      constexpr double kNew[] = {-1, 0, 1, 2, 8, 9, -1}; // in rows of q
      tensors["new_k"] = tensor(DType::F32, {kRows, kHeads, kColumns}, [](int64_t) { return 0; });
      tensors["new_v"] =
          tensor(DType::F32, {kRows, kHeads, kColumns}, [&](int64_t i) { return kNew[i / (kHeads * kColumns)]; });
    }
    NamedTensors result;
    run(tensors, "--expr 'q_idx >= kv_idx'", &result);
    const HostTensor &out = result["out"], &lse = result["lse"];
    REQUIRE(out.shape == std::vector<int64_t>{kRows, kHeads, kColumns});
    constexpr double kMeans[] = {0, 0, 0.5, 1, 4, 4.5, 0}, kLive[] = {0, 1, 2, 3, 9, 10, 0};
    for (int64_t row = 0; row < kRows; ++row)
      for (int64_t h = 0; h < kHeads; ++h) {
        CHECK(at(out, (row * kHeads + h) * kColumns) == Approx(kMeans[row]));
        CHECK(std::exp(at(lse, h * kRows + row)) == Approx(kLive[row]));
      }
    if (!appends) continue;
    REQUIRE(result["v"].shape == std::vector<int64_t>{kPages, kHeads, kPage, kColumns});
    CHECK(at(result["v"], ((3 * kHeads + 1) * kPage + 1) * kColumns) == 9);
  }
}

TEST_CASE("packed sequences that do not fit their tensors are refused", "[cli]") {
  NamedTensors tensors = operands();
  std::string arguments = "--expr 'q_idx >= kv_idx'", message;
  SECTION("descending") {
    tensors["cu_seqlens_q"] = tensor(DType::I32, {3}, [](int64_t b) { return b == 1 ? 5.0 : 3.0; });
    message = "cu_seqlens_q[2] is 3, expected 5 to 7";
  }
  SECTION("beyond the tensor") {
    tensors["cu_seqlens_q"] = tensor(DType::I32, {2}, [](int64_t b) { return b ? 8.0 : 0.0; });
    message = "cu_seqlens_q[1] is 8, expected 0 to 7";
  }
  SECTION("not there") {
    tensors.erase("cu_seqlens_q");
    arguments += " --ragged";
    message = "no tensor 'cu_seqlens_q'";
  }
  SECTION("a tensor that is not packed") {
    tensors["k"] = tensor(DType::F32, {1, kRows, kHeads, kColumns}, [](int64_t) { return 0.0; });
    message = "k is [1, 7, 2, 8], expected [total, heads, head_dim] beside cu_seqlens_q";
  }
  const Outcome outcome = run(tensors, arguments);
  CHECK(outcome.exitCode == 3);
  CHECK_THAT(outcome.err, Contains(message));
}
