// Tuning in C without a GPU: what it refuses, and what an empty result contains.
#include "calls.h"

using namespace ctest;

TEST_CASE("tuning chooses a tile, and takes none", "[c]") {
  Case c;
  const Owned<attnc_mod> mod = parse("score");
  const Owned<attnc_compiler> with = compiler();
  attnc_tuning* tuning = nullptr;
  const auto forward = [&] {
    return attnc_tune(with.get(), mod.get(), &c.operands, &c.outputs, &c.options, nullptr, &tuning);
  };
  const auto training = [&] {
    return attnc_tune_training(with.get(), mod.get(), &c.backwardOperands, &c.outputs, &c.gradients, &c.options,
                               nullptr, &tuning);
  };
  const char* const asked = "tuning chooses a tile, and one is asked for";
  c.options.tile = "128x64x8";
  REFUSED(ATTNC_ERROR_ENVIRONMENT, asked, forward());
  c.options.backward_tile = "64x128x8";
  REFUSED(ATTNC_ERROR_ENVIRONMENT, asked, training());
  c.options.backward_tile = nullptr;
  c.gradients.dq = nullptr;
  REFUSED(ATTNC_ERROR_ENVIRONMENT, "gradients of q, k and v are not all given", training());
  c.operands.q = nullptr;
  REFUSED(ATTNC_ERROR_ARGUMENT, "q is NULL", forward());
  CHECK(tuning == nullptr);
  REFUSED(ATTNC_ERROR_ARGUMENT, "tuning is NULL",
          attnc_tune(with.get(), mod.get(), &c.operands, &c.outputs, nullptr, nullptr, nullptr));
}

TEST_CASE("no tuning has no tiles", "[c]") {
  CHECK(attnc_tuning_tile_count(nullptr, ATTNC_PASS_FORWARD) == 0);
  CHECK(attnc_tuning_get_preparation(nullptr) == nullptr);
  auto tile = sized<attnc_tuned_tile>();
  REFUSED(ATTNC_ERROR_ARGUMENT, "tuning is NULL", attnc_tuning_get_tile(nullptr, ATTNC_PASS_FORWARD, 0, &tile));
}
