// Linear forms over extents.
#include "analysis/linear.h"

#include <catch2/catch.hpp>

using namespace attnc;
using namespace attnc::analysis;

namespace {

constexpr unsigned kH = unsigned(ir::BuiltinDim::H), kKvLen = unsigned(ir::BuiltinDim::KvLen);

} // namespace

TEST_CASE("terms are added by extent, and those that cancel are gone", "[linear]") {
  const LinearForm h = LinearForm::extent(kH), kv = LinearForm::extent(kKvLen);
  const LinearForm sum = *addScaled(*addScaled(LinearForm::number(3), kv, 2), h, -1);
  CHECK(toString(sum, ir::Module()) == "-H + 2 * KV_LEN + 3");
  CHECK(*addScaled(*addScaled(LinearForm::number(3), h, -1), kv, 2) == sum);
  const LinearForm less = *addScaled(sum, kv, -2);
  REQUIRE(less.terms.size() == 1);
  CHECK(less.terms[0].dim == kH);
  CHECK(addScaled(less, h, 1)->isNumber());
  CHECK(toString(LinearForm::number(0), ir::Module()) == "0");
  CHECK(toString(*addScaled(LinearForm::number(-1), kv, 1), ir::Module()) == "KV_LEN - 1");
}

TEST_CASE("a form takes its extremes where each extent has one of its own", "[linear]") {
  std::vector<ExtentRange> dims(ir::kBuiltinDims, {1, 1});
  dims[kH] = {2, 5};
  dims[kKvLen] = {0, 10};
  const LinearForm form = *addScaled(LinearForm{{{kH, -3}}, 7}, LinearForm::extent(kKvLen), 2);
  CHECK(maxOf(form, dims) == 2 * 10 - 3 * 2 + 7);
  CHECK(minOf(form, dims) == 2 * 0 - 3 * 5 + 7);
  dims[kKvLen] = {0, INT64_MAX / 2};
  CHECK(maxOf(*addScaled(form, form, 3), dims) == INT64_MAX);
}

TEST_CASE("numbers that grow without limit give no form", "[linear]") {
  std::optional<LinearForm> form = LinearForm::extent(kH);
  int doublings = 0;
  for (; form && doublings < 100; ++doublings) form = addScaled(*form, *form, 1);
  CHECK_FALSE(form);
  CHECK(doublings > 24); // products of extents and small numbers fit
  CHECK_FALSE(addScaled(LinearForm::number(INT64_MAX), LinearForm::number(1), 1));
}
