// Rounding to e4m3 through the C interface.
#include "calls.h"

#include <string>

using namespace ctest;

TEST_CASE("C rounds on the CPU", "[c]") {
  float x[2 * 16], scales[2] = {};
  unsigned char values[2 * 16] = {};
  for (int i = 0; i < 32; ++i) x[i] = float(i < 16 ? i - 8 : 100 * (i - 24));
  const attnc_tensor in = tensor(ATTNC_DTYPE_F32, {1, 2, 2, 8}, x),
                     out = tensor(ATTNC_DTYPE_E4M3, {1, 2, 2, 8}, values),
                     factors = tensor(ATTNC_DTYPE_F32, {1, 2}, scales);
  TAKE(attnc_quantise_on_cpu(&in, &out, &factors, nullptr));
  CHECK(scales[0] == 8.f / 448);
  CHECK(scales[1] == 800.f / 448);
  CHECK(values[0] == 0xfe); // -448
  CHECK(values[8] == 0);
  CHECK(values[16] == 0xfe);
  auto options = sized<attnc_quantise_options>();
  options.rotates = 1;
  options.seed = 5;
  TAKE(attnc_quantise_on_cpu(&in, &out, &factors, &options));
  CHECK(scales[0] > 8.f / 448); // the row of all signs has more in one place
  options = sized<attnc_quantise_options>();
  options.scale_bits = 4;
  TAKE(attnc_quantise_on_cpu(&in, &out, &factors, &options));
  CHECK(scales[0] == 0x1.4p-6); // 8 / 448, rounded up
  CHECK(scales[1] == 0x1.ep0);
  CHECK(values[0] == 0xfd); // -416
  options = sized<attnc_quantise_options>();
  options.reads_scales = 1;
  attnc_tensor one = factors;
  one.stride[1] = 0;
  scales[0] = 2, scales[1] = 8;
  TAKE(attnc_quantise_on_cpu(&in, &out, &one, &options));
  CHECK((scales[0] == 2 && scales[1] == 8));
  CHECK(values[0] == 0xc8);  // -4
  CHECK(values[16] == 0xfc); // -400, between -384 and -416
  TAKE(attnc_quantise_on_cpu(&in, &out, &factors, &options));
  CHECK(values[16] == 0xec); // -100, between -96 and -104
  options = sized<attnc_quantise_options>();
  for (int64_t bits : {-1, 25, 30}) {
    options.scale_bits = bits;
    REFUSED(ATTNC_ERROR_ENVIRONMENT, "scale_bits is " + std::to_string(bits),
            attnc_quantise_on_cpu(&in, &out, &factors, &options));
    CHECK(std::string(attnc_last_remedy()) == "give 1 to 24, or 0 for all bits");
  }
  const attnc_tensor wrong = tensor(ATTNC_DTYPE_F32, {1, 3}, scales);
  REFUSED(ATTNC_ERROR_ENVIRONMENT, "scales are not f32 [1, 2], [1, 2, 1] or [1, 2, 2]",
          attnc_quantise_on_cpu(&in, &out, &wrong, nullptr));
  REFUSED(ATTNC_ERROR_ARGUMENT, "out", attnc_quantise_on_cpu(&in, nullptr, &factors, nullptr));
}

TEST_CASE("C embeds rows before it rounds them", "[c]") {
  float x[16], table[2 * 8] = {}, scale = 0;
  unsigned char values[16] = {};
  int32_t numbers[2] = {1, 0};
  for (int i = 0; i < 16; ++i) x[i] = float(i % 8 + 1);
  for (int i = 0; i < 4; ++i) table[i] = 1, table[8 + 4 + i] = 1; // by 0 and by a right angle
  const attnc_tensor in = tensor(ATTNC_DTYPE_F32, {1, 1, 2, 8}, x),
                     out = tensor(ATTNC_DTYPE_E4M3, {1, 1, 2, 8}, values),
                     factors = tensor(ATTNC_DTYPE_F32, {1, 1}, &scale), cosSin = tensor(ATTNC_DTYPE_F32, {2, 8}, table),
                     positions = tensor(ATTNC_DTYPE_I32, {1, 2}, numbers);
  auto options = sized<attnc_quantise_options>();
  options.cos_sin = &cosSin;
  TAKE(attnc_quantise_on_cpu(&in, &out, &factors, &options));
  CHECK(values[7] == 0x7e);          // 8 of row 0 stays
  CHECK(values[8 + 3] == 0xfe);      // -8 of row 1
  CHECK(values[8 + 7] == values[3]); // 4
  options.positions = &positions;
  options.interleaved = 1;
  TAKE(attnc_quantise_on_cpu(&in, &out, &factors, &options));
  CHECK(values[6] == 0xfe); // of row 0, at position 1
  CHECK(values[15] == 0x7e);
  options.cos_sin = nullptr;
  REFUSED(ATTNC_ERROR_ENVIRONMENT, "without cos_sin", attnc_quantise_on_cpu(&in, &out, &factors, &options));
  attnc_tensor wrong = cosSin;
  wrong.rank = 99;
  options.cos_sin = &wrong;
  REFUSED(ATTNC_ERROR_ARGUMENT, "options.cos_sin", attnc_quantise_on_cpu(&in, &out, &factors, &options));
}

TEST_CASE("C refuses quantisers", "[c]") {
  const Owned<attnc_compiler> compiler = ctest::compiler();
  attnc_quantiser* quantiser = nullptr;
  REFUSED(ATTNC_ERROR_ENVIRONMENT, "tensors of i32 are not rounded",
          attnc_quantiser_create(compiler.get(), ATTNC_DTYPE_I32, 64, &quantiser));
  REFUSED(ATTNC_ERROR_ENVIRONMENT, "head dim 12",
          attnc_quantiser_create(compiler.get(), ATTNC_DTYPE_F32, 12, &quantiser));
  CHECK(attnc_quantiser_create(nullptr, ATTNC_DTYPE_F32, 64, &quantiser) == ATTNC_ERROR_ARGUMENT);
  CHECK(attnc_quantiser_create(compiler.get(), ATTNC_DTYPE_F32, 64, nullptr) == ATTNC_ERROR_ARGUMENT);
  CHECK(quantiser == nullptr);
  attnc_quantiser_destroy(nullptr);
  const attnc_tensor none = tensor(ATTNC_DTYPE_F32, {0, 1, 1, 64});
  REFUSED(ATTNC_ERROR_ARGUMENT, "quantiser", attnc_quantiser_launch(nullptr, &none, &none, &none, nullptr, nullptr));
}
