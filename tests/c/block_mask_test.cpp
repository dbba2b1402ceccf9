// Block masks through the C interface.
#include "calls.h"

#include <cstring>
#include <vector>

using namespace ctest;

namespace {

attnc_block_mask_shape square(int64_t length, int32_t block = 0) {
  attnc_block_mask_shape shape = {};
  shape.q_len = shape.kv_len = length;
  shape.q_block = shape.kv_block = block;
  return shape;
}

Owned<attnc_block_mask> build(const char* text, int64_t length) {
  const attnc_problem problem = {1, 1, 1, length, length};
  const attnc_block_mask_shape shape = square(length);
  return made<attnc_block_mask>(attnc_block_mask_build, parse(text).get(), nullptr, 0, &problem, &shape);
}

attnc_block_mask_view viewOf(const attnc_block_mask* mask) {
  auto view = told<attnc_block_mask_view>(attnc_block_mask_get_view, mask);
  return view;
}

} // namespace

TEST_CASE("a block mask is built from mask_mod", "[c]") {
  const Owned<attnc_block_mask> mask = build("q_idx >= kv_idx", 512);
  auto info = told<attnc_block_mask_info>(attnc_block_mask_get_info, mask.get());
  CHECK(info.live_blocks == 10);
  CHECK(info.full_blocks == 6);
  CHECK(info.sparsity == 37.5);
  const attnc_block_mask_view view = viewOf(mask.get());
  CHECK(view.shape.q_block == 128); // the default
  CHECK(view.shape.batch == 1);
  CHECK(view.rows.partial_count[3] == 1);
  CHECK(view.rows.full_count[3] == 3);
  CHECK(view.columns.partial_count == nullptr);

  char picture[64];
  size_t length = 0;
  TAKE(attnc_block_mask_text(mask.get(), 0, 0, 2, picture, sizeof picture, &length));
  CHECK(std::string(picture) == "░ \n█░\n");
  CHECK(length == std::strlen(picture));
  std::memset(picture, 'x', sizeof picture);
  TAKE(attnc_block_mask_text(mask.get(), 0, 0, 2, picture, 4, &length));
  CHECK(std::string(picture) == "░");
  CHECK(picture[4] == 'x');
  CHECK(length == 12);
  TAKE(attnc_block_mask_text(mask.get(), 0, 0, 2, nullptr, 0, &length));
  CHECK(length == 12);
  TAKE(attnc_block_mask_text(mask.get(), 1, 0, 2, picture, 4, &length));
  CHECK(length == 0);
}

TEST_CASE("captures of a block mask, and what does not fit", "[c]") {
  std::vector<int32_t> ids(2 * 256);
  for (size_t i = 128; i < 256; ++i) ids[i] = 1;
  const attnc_tensor view = tensor(ATTNC_DTYPE_I32, {2, 256}, ids.data());
  const attnc_capture captures[] = {capture("ids", &view)};
  const attnc_problem problem = {2, 1, 1, 256, 256};
  attnc_block_mask_shape shape = square(256);
  shape.batch = 2;
  const Owned<attnc_mod> mod = parse(kDocument);
  attnc_block_mask* made = nullptr;
  TAKE(attnc_block_mask_build(mod.get(), captures, 1, &problem, &shape, &made));
  const Owned<attnc_block_mask> mask(made);
  auto info = told<attnc_block_mask_info>(attnc_block_mask_get_info, mask.get());
  CHECK(info.live_blocks == 6);

  REFUSED(ATTNC_ERROR_ENVIRONMENT, "ids", attnc_block_mask_build(mod.get(), nullptr, 0, &problem, &shape, &made));
  shape.q_len = 128;
  REFUSED(ATTNC_ERROR_ENVIRONMENT, "block mask",
          attnc_block_mask_build(mod.get(), captures, 1, &problem, &shape, &made));
  shape.q_len = 256;
  shape.batch = 1;
  REFUSED(ATTNC_ERROR_ENVIRONMENT, "block mask",
          attnc_block_mask_build(mod.get(), captures, 1, &problem, &shape, &made));
}

TEST_CASE("lists come in and get columns", "[c]") {
  const Owned<attnc_block_mask> mask = build("q_idx >= kv_idx", 512);
  attnc_block_mask_view view = viewOf(mask.get());
  attnc_block_mask* made = nullptr;
  TAKE(attnc_block_mask_from_lists(&view, &made));
  const Owned<attnc_block_mask> copy(made);
  CHECK(viewOf(made).rows.partial_count != view.rows.partial_count);
  TAKE(attnc_block_mask_with_columns(copy.get(), &made));
  const Owned<attnc_block_mask> both(made);
  CHECK(viewOf(made).columns.full_count[0] == 3);

  std::vector<int32_t> counts = {9, 1, 1, 1};
  view.rows.partial_count = counts.data();
  REFUSED(ATTNC_ERROR_ENVIRONMENT, "partialCount is 9", attnc_block_mask_from_lists(&view, &made));
  view.rows.partial_count = nullptr;
  REFUSED(ATTNC_ERROR_ENVIRONMENT, "block mask", attnc_block_mask_from_lists(&view, &made));
}

TEST_CASE("lists are written into memory of the caller's", "[c]") {
  const Owned<attnc_block_mask> mask = build("(q_idx >= kv_idx) & (kv_idx < 300)", 512);
  attnc_block_mask* made = nullptr;
  TAKE(attnc_block_mask_with_columns(mask.get(), &made));
  const Owned<attnc_block_mask> both(made);
  const attnc_block_mask_shape shape = square(512);
  for (int32_t withColumns : {0, 1}) {
    size_t bytes = 0;
    TAKE(attnc_block_mask_storage_bytes(&shape, withColumns, &bytes));
    CHECK(bytes == size_t(withColumns ? 320 : 160));
    std::vector<int32_t> storage(bytes / 4 + 1, 77);
    TAKE(attnc_block_mask_write(both.get(), withColumns, storage.data(), bytes));
    CHECK(storage.back() == 77); // nothing behind it
    auto view = told<attnc_block_mask_view>(attnc_block_mask_view_into, storage.data(), &shape, withColumns);
    CHECK(view.rows.partial_count == storage.data());
    CHECK((view.columns.partial_count != nullptr) == (withColumns == 1));
    TAKE(attnc_block_mask_from_lists(&view, &made)); // as it was, columns checked against rows
    const Owned<attnc_block_mask> again(made);
    auto before = sized<attnc_block_mask_info>(), after = before;
    TAKE(attnc_block_mask_get_info(mask.get(), &before));
    TAKE(attnc_block_mask_get_info(made, &after));
    CHECK(before.live_blocks == after.live_blocks);
    CHECK(before.full_blocks == after.full_blocks);
    REFUSED(ATTNC_ERROR_ENVIRONMENT, "expected",
            attnc_block_mask_write(both.get(), withColumns, storage.data(), bytes - 1));
  }
  std::vector<int32_t> storage(100);
  REFUSED(ATTNC_ERROR_ENVIRONMENT, "no lists by column", attnc_block_mask_write(mask.get(), 1, storage.data(), 400));
  REFUSED(ATTNC_ERROR_ARGUMENT, "with_columns is 3", attnc_block_mask_write(mask.get(), 3, storage.data(), 400));

  attnc_block_mask_shape wrong = square(512, 100);
  size_t bytes = 0;
  auto view = sized<attnc_block_mask_view>();
  REFUSED(ATTNC_ERROR_ENVIRONMENT, "block mask", attnc_block_mask_storage_bytes(&wrong, 0, &bytes));
  wrong = square(int64_t(1) << 62);
  REFUSED(ATTNC_ERROR_ENVIRONMENT, "block mask", attnc_block_mask_view_into(storage.data(), &wrong, 0, &view));
}
