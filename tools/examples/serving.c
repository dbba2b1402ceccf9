// Serves two sequences from a cache in pages: a prompt of each, then token by token. On a GPU a step is a CUDA graph,
// which is replayed for all lengths and tables. Without one, the CPU reference computes.
#include "support.h"

#include <math.h>

enum { kBatch = 2, kHeads = 8, kKvHeads = 2, kHeadDim = 64, kPage = 16, kPages = 16, kColumns = 4, kMost = 64 };
enum { kPrompt = 37, kSteps = 20 };

/// New tokens of each sequence, and their launch. Tensors lie where attention is computed.
typedef struct tokens {
  int64_t count;
  attnc_tensor q, k, v, out;
  attnc_operands operands;
  attnc_outputs outputs;
  attnc_prepared* attention;
  void *workspace, *graph;
} tokens;

/// The cache. Launches read `table` and `lengths` when they run, so a graph need not be recorded again.
typedef struct cache {
  attnc_tensor k, v, table, lengths;
  int32_t host_table[kBatch][kColumns], host_lengths[kBatch], dealt;
} cache;

// All keys and values of each sequence, for the check.
static uint16_t seen_k[kBatch][kKvHeads][kMost][kHeadDim], seen_v[kBatch][kKvHeads][kMost][kHeadDim];

static uint16_t scratch[3][kBatch * kHeads * kPrompt * kHeadDim]; // host memory of the largest tensors
_Static_assert(sizeof scratch >= kPages * kKvHeads * kPage * kHeadDim * 2, "a pool fits");

static attnc_tensor placed(const device* gpu, attnc_dtype dtype, int32_t rank, const int64_t* shape) {
  attnc_tensor view = tensor(dtype, rank, shape);
  size_t bytes = attnc_dtype_bytes(dtype);
  for (int32_t axis = 0; axis < rank; ++axis) bytes *= (size_t)shape[axis];
  memset(scratch, 0xff, sizeof scratch); // NaN: what was not written reaches no result
  view.data = upload(gpu, scratch, bytes);
  return view;
}

static void prepare_tokens(tokens* of, const device* gpu, const cache* pages, int64_t count) {
  const int64_t q[] = {kBatch, kHeads, count, kHeadDim}, kv[] = {kBatch, kKvHeads, count, kHeadDim};
  memset(of, 0, sizeof *of);
  of->count = count;
  of->q = placed(gpu, ATTNC_DTYPE_BF16, 4, q), of->out = placed(gpu, ATTNC_DTYPE_BF16, 4, q);
  of->k = placed(gpu, ATTNC_DTYPE_BF16, 4, kv), of->v = placed(gpu, ATTNC_DTYPE_BF16, 4, kv);
  of->operands = (attnc_operands){.struct_size = sizeof of->operands,
                                  .q = &of->q,
                                  .k = &pages->k,
                                  .v = &pages->v,
                                  .kv_lengths = &pages->lengths,
                                  .page_table = &pages->table,
                                  .new_k = &of->k,
                                  .new_v = &of->v};
  of->outputs = (attnc_outputs){.struct_size = sizeof of->outputs, .out = &of->out};
}

/// Draws `rows` new rows of a tensor [B, heads, count, D]: the last ones of each sequence. Keeps those of k and v.
static void draw_rows(const device* gpu, const attnc_tensor* to, const int32_t* rows, const int32_t* lengths,
                      uint16_t (*seen)[kKvHeads][kMost][kHeadDim], uint32_t* state) {
  const int64_t heads = to->shape[1], count = to->shape[2], elements = kBatch * heads * count * kHeadDim;
  uint16_t* host = scratch[0];
  for (int64_t i = 0; i < elements; ++i) {
    const int64_t b = i / kHeadDim / count / heads, head = i / kHeadDim / count % heads, row = i / kHeadDim % count;
    const int64_t position = lengths[b] - count + row;
    host[i] = to_bf16(draw(state));
    if (seen && row >= count - rows[b]) seen[b][head][position][i % kHeadDim] = host[i];
  }
  check_cuda(gpu->upload((uint64_t)to->data, host, (size_t)elements * 2));
}

/// Makes room for more rows of each sequence, and draws the new tokens.
static void grow(const device* gpu, cache* pages, const tokens* of, const int32_t* rows, uint32_t* state) {
  for (int b = 0; b < kBatch; ++b) {
    const int32_t before = (pages->host_lengths[b] + kPage - 1) / kPage;
    pages->host_lengths[b] += rows[b];
    for (int32_t i = before; i * kPage < pages->host_lengths[b]; ++i) pages->host_table[b][i] = pages->dealt++;
  }
  check_cuda(gpu->upload((uint64_t)pages->table.data, pages->host_table, sizeof pages->host_table));
  check_cuda(gpu->upload((uint64_t)pages->lengths.data, pages->host_lengths, sizeof pages->host_lengths));
  draw_rows(gpu, &of->q, rows, pages->host_lengths, NULL, state);
  draw_rows(gpu, &of->k, rows, pages->host_lengths, seen_k, state);
  draw_rows(gpu, &of->v, rows, pages->host_lengths, seen_v, state);
}

/// Returns the largest difference of out from the CPU reference over contiguous keys.
static float difference(const device* gpu, const attnc_mod* mod, const tokens* of, cache* pages) {
  const int64_t kv[] = {kBatch, kKvHeads, kMost, kHeadDim}, batch = kBatch;
  const size_t bytes = (size_t)of->count * kBatch * kHeads * kHeadDim * 2;
  uint16_t *q = scratch[0], *out = scratch[1], *expected = scratch[2];
  check_cuda(gpu->download(q, (uint64_t)of->q.data, bytes));
  check_cuda(gpu->download(out, (uint64_t)of->out.data, bytes));
  attnc_tensor q_view = of->q, k_view = tensor(ATTNC_DTYPE_BF16, 4, kv), v_view = k_view, out_view = of->out,
               lengths = tensor(ATTNC_DTYPE_I32, 1, &batch);
  q_view.data = q, k_view.data = seen_k, v_view.data = seen_v, out_view.data = expected;
  lengths.data = pages->host_lengths;
  const attnc_operands operands = {
      .struct_size = sizeof operands, .q = &q_view, .k = &k_view, .v = &v_view, .kv_lengths = &lengths};
  const attnc_outputs outputs = {.struct_size = sizeof outputs, .out = &out_view};
  check(attnc_compute_on_cpu(mod, &operands, &outputs));
  float largest = 0;
  for (size_t i = 0; i < bytes / 2; ++i) {
    const float apart = fabsf(from_bf16(out[i]) - from_bf16(expected[i]));
    largest = fmaxf(largest, isnan(apart) ? HUGE_VALF : apart);
  }
  return largest;
}

int main(void) {
  device gpu;
  const int on_gpu = device_open(&gpu);
  printf(on_gpu ? "serving on the GPU\n" : "no GPU here: the CPU reference computes\n");
  attnc_mod* mod;
  check(attnc_mod_parse("q_idx >= kv_idx", ATTNC_WHOLE, NULL, &mod));
  attnc_compiler* compiler;
  check(attnc_compiler_create(NULL, &compiler));

  const int64_t pool[] = {kPages, kKvHeads, kPage, kHeadDim}, table[] = {kBatch, kColumns};
  cache pages = {.k = placed(&gpu, ATTNC_DTYPE_BF16, 4, pool),
                 .v = placed(&gpu, ATTNC_DTYPE_BF16, 4, pool),
                 .table = placed(&gpu, ATTNC_DTYPE_I32, 2, table),
                 .lengths = placed(&gpu, ATTNC_DTYPE_I32, 1, table)};
  tokens phases[2]; // the prompts, then a token of each sequence
  prepare_tokens(&phases[0], &gpu, &pages, kPrompt);
  prepare_tokens(&phases[1], &gpu, &pages, 1);
  void* stream = NULL;
  if (on_gpu) {
    check_cuda(gpu.create_stream(&stream, 0));
    for (tokens* of = phases; of < phases + 2; ++of) {
      check(attnc_prepare(compiler, mod, &of->operands, &of->outputs, NULL, &of->attention));
      of->workspace = workspace_of(&gpu, of->attention);
      check(attnc_prepared_initialise(of->attention, &of->operands, of->workspace, stream));
      void* recorded;
      check_cuda(gpu.begin_capture(stream, 0));
      check(attnc_prepared_launch(of->attention, &of->operands, &of->outputs, of->workspace, stream));
      check_cuda(gpu.end_capture(stream, &recorded));
      check_cuda(gpu.instantiate(&of->graph, recorded, 0));
    }
  }

  uint32_t state = 1;
  float worst = 0;
  for (int step = 0; step <= kSteps; ++step) {
    const tokens* of = &phases[step > 0];
    // The shorter prompt is padded in front: rows before position 0 are dropped.
    const int32_t prompts[kBatch] = {kPrompt, 20}, one[kBatch] = {1, 1};
    grow(&gpu, &pages, of, step ? one : prompts, &state);
    if (on_gpu)
      check_cuda(gpu.launch_graph(of->graph, stream));
    else
      check(attnc_compute_on_cpu(mod, &of->operands, &of->outputs));
    check_cuda(gpu.synchronize());
    worst = fmaxf(worst, difference(&gpu, mod, of, &pages));
  }
  const int is_right = worst < 0.02f;
  printf("lengths %d and %d, %d pages, %d steps: largest difference %.4f, %s\n", pages.host_lengths[0],
         pages.host_lengths[1], pages.dealt, kSteps, worst, is_right ? "as the reference" : "WRONG");

  for (int i = 0; i < 2; ++i) attnc_prepared_destroy(phases[i].attention);
  attnc_compiler_destroy(compiler);
  attnc_mod_destroy(mod);
  return !is_right; // the end frees the memory
}
