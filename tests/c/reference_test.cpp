// Attention on the CPU through the C interface.
#include "calls.h"

#include <vector>

using namespace ctest;

TEST_CASE("attention and its gradients are computed on the CPU", "[c]") {
  // One query; the second of two keys is masked, so out is v of the first one.
  std::vector<float> q = {1, 2}, k = {3, 4, 5, 6}, v = {7, 8, 9, 10}, out(2), lse(1), dOut = {1, 2}, dV(4), dQ(2),
                     dK(4);
  float slope = 0.5f, dSlope = -1;
  attnc_tensor qView = tensor(ATTNC_DTYPE_F32, {1, 1, 1, 2}, q.data()),
               kView = tensor(ATTNC_DTYPE_F32, {1, 1, 2, 2}, k.data()), vView = kView, dQView = qView, dKView = kView,
               dVView = kView, outView = qView, dOutView = qView,
               lseView = tensor(ATTNC_DTYPE_F32, {1, 1, 1}, lse.data()), slopes = tensor(ATTNC_DTYPE_F32, {1}, &slope),
               dSlopes = tensor(ATTNC_DTYPE_F32, {1}, &dSlope);
  vView.data = v.data(), outView.data = out.data(), dOutView.data = dOut.data();
  dQView.data = dQ.data(), dKView.data = dK.data(), dVView.data = dV.data();
  const attnc_capture captured = capture("slopes", &slopes), wanted = capture("slopes", &dSlopes);
  auto operands = sized<attnc_operands>();
  operands.q = &qView, operands.k = &kView, operands.v = &vView;
  operands.captures = &captured, operands.capture_count = 1;
  operands.scale = 1, operands.has_scale = 1;
  auto outputs = sized<attnc_outputs>();
  outputs.out = &outView, outputs.lse = &lseView;
  const Owned<attnc_mod> mod = parse("slopes: f32[H]\n"
                                     "def score_mod(s, b, h, q, k):\n    return s * slopes[h]\n"
                                     "def mask_mod(b, h, q, k):\n    return k < 1\n");
  TAKE(attnc_compute_on_cpu(mod.get(), &operands, &outputs));
  CHECK(out == std::vector<float>{7, 8});
  CHECK(lse[0] == 5.5f);

  const Owned<attnc_mod> summing = parse("slopes: f32[H]\n"
                                         "def mask_mod(b, h, q, k):\n    return k < 1\n"
                                         "def weight(prob, score, b, h, q, k):\n    return prob * slopes[h]\n"
                                         "sums: f32[B, H, KV_LEN] = reduce_sum(weight)\n");
  std::vector<float> sums(2, -1);
  attnc_tensor sumsView = tensor(ATTNC_DTYPE_F32, {1, 1, 2}, sums.data());
  const attnc_capture reduced = capture("sums", &sumsView), unknown = capture("sum", &sumsView);
  auto more = outputs;
  more.lse = nullptr, more.reductions = &reduced, more.reduction_count = 1;
  TAKE(attnc_compute_on_cpu(summing.get(), &operands, &more));
  CHECK(sums == std::vector<float>{0.5f, 0});
  more.reductions = &unknown;
  REFUSED(ATTNC_ERROR_ENVIRONMENT, "the mod has no output sum", attnc_compute_on_cpu(summing.get(), &operands, &more));

  auto backward = sized<attnc_backward_operands>();
  backward.forward = &operands;
  backward.out = &outView, backward.lse = backward.dlse = &lseView, backward.dout = &dOutView;
  auto gradients = sized<attnc_backward_outputs>();
  gradients.dq = &dQView, gradients.dk = &dKView, gradients.dv = &dVView;
  gradients.captures = &wanted, gradients.capture_count = 1;
  TAKE(attnc_compute_backward_on_cpu(mod.get(), &backward, &gradients));
  CHECK(dV == std::vector<float>{1, 2, 0, 0});
  // Only the gradient of lse counts, which is 5.5 here: the one weight is 1.
  CHECK(dSlope == 5.5f * 11);
  CHECK(dQ[0] == 5.5f * 0.5f * 3);
  CHECK(dK == std::vector<float>{5.5f * 0.5f, 5.5f, 0, 0});

  // A loss that reads the sums: slopes multiply the one weight, which is 1.
  std::vector<float> dSums = {3, 100};
  attnc_tensor dSumsView = tensor(ATTNC_DTYPE_F32, {1, 1, 2}, dSums.data());
  attnc_capture both[] = {captured, capture("sums_gradient", &dSumsView)};
  operands.captures = both, operands.capture_count = 2;
  TAKE(attnc_compute_on_cpu(summing.get(), &operands, &outputs)); // which does not read it
  TAKE(attnc_compute_backward_on_cpu(summing.get(), &backward, &gradients));
  CHECK(dSlope == 3);
  operands.captures = &captured, operands.capture_count = 1;

  outView.shape[3] = 1;
  REFUSED(ATTNC_ERROR_ENVIRONMENT, "out is [1, 1, 1, 1]", attnc_compute_on_cpu(mod.get(), &operands, &outputs));
  const Owned<attnc_mod> asserting = parse("slopes: f32[N]\nassert slopes.shape[0] == B + 1, 'one slope more'\n"
                                           "def score_mod(s, b, h, q, k):\n    return s * slopes[b + 1]\n");
  outView.shape[3] = 2;
  REFUSED(ATTNC_ERROR_ENVIRONMENT, "one slope more", attnc_compute_on_cpu(asserting.get(), &operands, &outputs));
  REFUSED(ATTNC_ERROR_ARGUMENT, "mod is NULL", attnc_compute_on_cpu(nullptr, &operands, &outputs));
  REFUSED(ATTNC_ERROR_ARGUMENT, "operands is NULL", attnc_compute_on_cpu(mod.get(), nullptr, &outputs));
  REFUSED(ATTNC_ERROR_ARGUMENT, "mod is NULL", attnc_compute_backward_on_cpu(nullptr, &backward, &gradients));
  REFUSED(ATTNC_ERROR_ARGUMENT, "outputs is NULL", attnc_compute_backward_on_cpu(mod.get(), &backward, nullptr));
}

namespace {

/// Two heads of 64 queries and 64 keys.
struct Attention {
  std::vector<float> q, k, v, out = std::vector<float>(2 * 64 * 4);
  attnc_tensor qView, kView, vView, outView;
  attnc_operands operands = sized<attnc_operands>();
  attnc_outputs outputs = sized<attnc_outputs>();

  Attention() {
    for (int i = 0; i < 2 * 64 * 4; ++i) {
      q.push_back(float(i % 7) - 3);
      k.push_back(float(i % 5) / 2 - 1);
      v.push_back(float(i % 11));
    }
    const auto view = [](std::vector<float>& data) { return tensor(ATTNC_DTYPE_F32, {1, 2, 64, 4}, data.data()); };
    qView = view(q), kView = view(k), vView = view(v), outView = view(out);
    operands.q = &qView, operands.k = &kView, operands.v = &vView;
    outputs.out = &outView;
  }
  std::vector<float> computed(const char* mod) {
    TAKE(attnc_compute_on_cpu(parse(mod).get(), &operands, &outputs));
    return out;
  }
};

} // namespace

TEST_CASE("lists of a caller's are of mask_mod unless he says more", "[c]") {
  constexpr const char* kCausal = "where(q_idx >= kv_idx, score, -inf)";
  Attention attention;
  const std::vector<float> causal = attention.computed(kCausal);
  int32_t one = 1, none = 0, first = 0;
  auto lists = sized<attnc_block_mask_view>();
  lists.shape = {1, 1, 64, 64, 64, 64};
  lists.rows = {&none, &first, &one, &first, 1};
  attention.operands.block_mask = &lists;
  CHECK(attention.computed(kCausal) == causal);
  CHECK(attention.computed("score") != causal);

  attnc_block_mask* mask = nullptr;
  TAKE(attnc_block_mask_from_lists(&lists, &mask));
  Owned<attnc_block_mask> owned(mask);
  auto view = told<attnc_block_mask_view>(attnc_block_mask_get_view, mask);
  CHECK(view.of_whole_mod == 0);
  lists.of_whole_mod = 1;
  TAKE(attnc_block_mask_from_lists(&lists, &mask));
  owned.reset(mask);
  TAKE(attnc_block_mask_get_view(mask, &view));
  CHECK(view.of_whole_mod == 1);
  const attnc_problem problem = {1, 2, 2, 64, 64};
  TAKE(attnc_block_mask_build(parse(kCausal).get(), nullptr, 0, &problem, &lists.shape, &mask));
  owned.reset(mask);
  TAKE(attnc_block_mask_get_view(mask, &view));
  CHECK(view.of_whole_mod == 1);
  // Kernels are told.
  Case c;
  c.k = c.q, c.v = c.out = tensor(ATTNC_DTYPE_BF16, {2, 8, 1000, 32}), c.operands.block_mask = &lists;
  lists.shape = {1, 1, 1000, 1000, 128, 128};
  std::string texts[2];
  for (const int32_t isWhole : {0, 1}) {
    lists.of_whole_mod = isWhole;
    Owned<attnc_preparation> preparation;
    TAKE(c.settle(parse(kCausal).get(), &preparation));
    auto options = told<attnc_kernel_options>(optionsOf, preparation.get(), 0);
    CHECK(options.lists_of_whole_mod == isWhole);
    const auto source = made<attnc_source>(sourceOf, compiler().get(), parse(kCausal).get(), &options);
    auto stage = told<attnc_source_stage>(attnc_source_get_stage, source.get(), 0);
    texts[isWhole] = stage.flattened;
  }
  CHECK(texts[0] != texts[1]);
  lists.of_whole_mod = 2;
  REFUSED(ATTNC_ERROR_ARGUMENT, "of_whole_mod", attnc_block_mask_from_lists(&lists, &mask));
  lists.of_whole_mod = 0, lists.reserved = 1;
  REFUSED(ATTNC_ERROR_ARGUMENT, "reserved", attnc_block_mask_from_lists(&lists, &mask));
}

TEST_CASE("scales, pages, new rows and ragged batches are computed on the CPU", "[c]") {
  Attention attention;
  const std::vector<float> whole = attention.computed("q_idx >= kv_idx");

  // Four pages of 16 rows in the opposite order.
  Attention paged;
  for (auto [pool, rows] : {std::pair(&paged.k, &attention.k), {&paged.v, &attention.v}})
    for (int i = 0; i < 2 * 64 * 4; ++i) {
      const int h = i / 256, row = i / 4 % 64, page = 3 - row / 16;
      (*pool)[size_t(((page * 2 + h) * 16 + row % 16) * 4 + i % 4)] = (*rows)[size_t(i)];
    }
  std::vector<int32_t> table = {3, 2, 1, 0}, length = {64}, starts = {0, 64};
  const attnc_tensor tableView = tensor(ATTNC_DTYPE_I32, {1, 4}, table.data()),
                     lengthView = tensor(ATTNC_DTYPE_I32, {1}, length.data()),
                     startsView = tensor(ATTNC_DTYPE_I32, {2}, starts.data());
  paged.kView = tensor(ATTNC_DTYPE_F32, {4, 2, 16, 4}, paged.k.data());
  paged.vView = tensor(ATTNC_DTYPE_F32, {4, 2, 16, 4}, paged.v.data());
  paged.operands.page_table = &tableView, paged.operands.kv_lengths = &lengthView;
  CHECK(paged.computed("q_idx >= kv_idx") == whole);
  table[1] = 4;
  REFUSED(ATTNC_ERROR_ENVIRONMENT, "page_table: entry [0, 1] is 4",
          attnc_compute_on_cpu(parse("score").get(), &paged.operands, &paged.outputs));

  Attention appended;
  std::vector<float> fresh(2 * 64 * 4, 9);
  const attnc_tensor freshView = tensor(ATTNC_DTYPE_F32, {1, 2, 64, 4}, fresh.data());
  appended.operands.kv_lengths = &lengthView;
  appended.operands.new_k = appended.operands.new_v = &freshView;
  CHECK(appended.computed("score") == fresh);
  CHECK(appended.k == fresh);
  CHECK(appended.v == fresh);

  Attention ragged;
  ragged.operands.cu_seqlens_q = &startsView;
  CHECK(ragged.computed("q_idx >= kv_idx") == whole);
  // Two sequences of 32 rows, whose lists leave out all of the second one.
  std::vector<int32_t> halves = {0, 32, 64}, counts = {1, 0}, none = {0, 0}, first = {0, 0};
  const attnc_tensor halvesView = tensor(ATTNC_DTYPE_I32, {3}, halves.data());
  ragged.operands.cu_seqlens_q = &halvesView;
  ragged.operands.max_q_len = ragged.operands.max_kv_len = 32;
  auto lists = sized<attnc_block_mask_view>();
  lists.shape = {2, 1, 32, 32, 128, 128};
  lists.rows = {counts.data(), first.data(), none.data(), first.data(), 1};
  ragged.operands.block_mask = &lists;
  const std::vector<float> listed = ragged.computed("q_idx >= kv_idx");
  for (size_t i = 0; i < listed.size(); ++i) CHECK(listed[i] == (i / 4 % 64 < 32 ? whole[i] : 0));

  // 0x38 is 1 in e4m3, so weights are equal, and v is 1.
  Attention scaled;
  std::vector<uint8_t> ones(2 * 64 * 4, 0x38);
  std::vector<float> kScale = {1, 2}, vScale = {100, 7};
  scaled.kView = scaled.vView = tensor(ATTNC_DTYPE_E4M3, {1, 2, 64, 4}, ones.data());
  const attnc_tensor kScaleView = tensor(ATTNC_DTYPE_F32, {2}, kScale.data()),
                     vScaleView = tensor(ATTNC_DTYPE_F32, {2}, vScale.data());
  scaled.operands.k_scales = &kScaleView, scaled.operands.v_scales = &vScaleView;
  const std::vector<float> out = scaled.computed("score");
  for (size_t i = 0; i < out.size(); ++i) CHECK(out[i] == (i < 256 ? 100.f : 7.f));
}
