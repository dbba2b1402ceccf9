// Attention of a sequence that is divided among the ranks of MPI, and its gradients, from C, on the CPU.
//   mpirun -np 4 shards_mpi [length, default 301] [mask, default causal] [groups of heads, default 1]
// Each rank holds its rows, and compares its results with those of the whole sequence.
#include <attnc/c.h>

#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { kHeads = 4, kKvHeads = 2, kHeadDim = 16, kMaxMessages = 1024 };

static void check(attnc_status status) {
  if (status == ATTNC_OK) return;
  fprintf(stderr, "%s\n%s\n", attnc_last_error(), attnc_last_remedy());
  MPI_Abort(MPI_COMM_WORLD, status); // the others would wait
}

static void* allocate(size_t bytes) {
  // The C interface wants workspaces at multiples of 256.
  void* memory = aligned_alloc(256, (bytes / 256 + 1) * 256);
  if (!memory) MPI_Abort(MPI_COMM_WORLD, ATTNC_ERROR_MEMORY);
  return memory;
}

/// What is on its way.
typedef struct messages {
  MPI_Request requests[kMaxMessages];
  int count;
} messages;

static int32_t exchange(void* user, const attnc_shard_message* sends, size_t send_count,
                        const attnc_shard_message* receives, size_t receive_count, attnc_stream stream) {
  messages* all = user;
  (void)stream; // MPI has none
  all->count = 0;
  if (send_count + receive_count > kMaxMessages) return 1;
  for (size_t i = 0; i < receive_count + send_count; ++i) {
    const int is_send = i >= receive_count;
    const attnc_shard_message* message = is_send ? &sends[i - receive_count] : &receives[i];
    MPI_Request* request = &all->requests[all->count++];
    if (message->bytes > 0x7fffffff) return 2; // larger ones want a derived type, or MPI 4
    const int result =
        is_send ? MPI_Isend(message->data, (int)message->bytes, MPI_BYTE, message->peer, 0, MPI_COMM_WORLD, request)
                : MPI_Irecv(message->data, (int)message->bytes, MPI_BYTE, message->peer, 0, MPI_COMM_WORLD, request);
    if (result != MPI_SUCCESS) return result;
  }
  return 0;
}

static int32_t wait(void* user) {
  messages* all = user;
  return MPI_Waitall(all->count, all->requests, MPI_STATUSES_IGNORE);
}

/// A tensor [1, heads, rows, kHeadDim] of memory [rows, heads, kHeadDim]: rows travel from where they lie.
static attnc_tensor rows_of(float* data, int64_t heads, int64_t rows) {
  return (attnc_tensor){.struct_size = sizeof(attnc_tensor), .data = data, .dtype = ATTNC_DTYPE_F32, .rank = 4,
                        .shape = {1, heads, rows, kHeadDim},
                        .stride = {rows * heads * kHeadDim, kHeadDim, heads * kHeadDim, 1}};
}

/// Fills rows with numbers that are the same on each rank.
static void draw(float* to, int64_t heads, const attnc_shard_interval* tokens, size_t count, unsigned seed) {
  for (size_t i = 0; i < count; ++i)
    for (int64_t at = tokens[i].begin * heads * kHeadDim; at < tokens[i].end * heads * kHeadDim; ++at) {
      unsigned x = (unsigned)at * 2654435761u + seed * 40503u;
      x = (x ^ x >> 15) * 2246822519u;
      *to++ = (float)(x >> 8) / (1 << 23) - 1;
    }
}

static int64_t tokens_in(const attnc_shard_interval* tokens, size_t count) {
  int64_t all = 0;
  for (size_t i = 0; i < count; ++i) all += tokens[i].end - tokens[i].begin;
  return all;
}

/// The tensors of both passes.
typedef struct problem {
  attnc_tensor q, k, v, out, lse, dout, dq, dk, dv, dslopes;
  attnc_capture captured_gradient;
  attnc_operands operands;
  attnc_outputs outputs;
  attnc_backward_operands backward;
  attnc_backward_outputs gradients;
} problem;

static void make(problem* all, const attnc_capture* capture, const attnc_shard_interval* rows, size_t row_count,
                 const attnc_shard_interval* keys, size_t key_count) {
  const int64_t of_q = tokens_in(rows, row_count), of_kv = tokens_in(keys, key_count);
  attnc_tensor* const of_rows[] = {&all->q, &all->out, &all->dout, &all->dq};
  attnc_tensor* const of_keys[] = {&all->k, &all->v, &all->dk, &all->dv};
  const size_t row = kHeadDim * sizeof(float);
  for (int i = 0; i < 4; ++i) {
    *of_rows[i] = rows_of(allocate((size_t)of_q * kHeads * row), kHeads, of_q);
    *of_keys[i] = rows_of(allocate((size_t)of_kv * kKvHeads * row), kKvHeads, of_kv);
  }
  draw(all->q.data, kHeads, rows, row_count, 1);
  draw(all->k.data, kKvHeads, keys, key_count, 2);
  draw(all->v.data, kKvHeads, keys, key_count, 3);
  draw(all->dout.data, kHeads, rows, row_count, 4); // the gradient of a loss
  all->lse = (attnc_tensor){.struct_size = sizeof(attnc_tensor), .data = allocate((size_t)of_q * kHeads * sizeof(float)),
                            .dtype = ATTNC_DTYPE_F32, .rank = 3, .shape = {1, kHeads, of_q},
                            .stride = {of_q * kHeads, of_q, 1}};
  all->dslopes = *capture->tensor;
  all->dslopes.data = allocate(kHeads * sizeof(float));
  all->captured_gradient = *capture;
  all->captured_gradient.tensor = &all->dslopes;
  all->operands = (attnc_operands){.struct_size = sizeof all->operands, .q = &all->q, .k = &all->k, .v = &all->v,
                                   .captures = capture, .capture_count = 1};
  all->outputs = (attnc_outputs){.struct_size = sizeof all->outputs, .out = &all->out, .lse = &all->lse};
  all->backward = (attnc_backward_operands){.struct_size = sizeof all->backward, .forward = &all->operands,
                                            .out = &all->out, .lse = &all->lse, .dout = &all->dout};
  all->gradients = (attnc_backward_outputs){.struct_size = sizeof all->gradients, .dq = &all->dq, .dk = &all->dk,
                                            .dv = &all->dv, .captures = &all->captured_gradient, .capture_count = 1};
}

static void release(const problem* all) {
  const attnc_tensor* const tensors[] = {&all->q,    &all->k,  &all->v,  &all->out, &all->lse,
                                         &all->dout, &all->dq, &all->dk, &all->dv,  &all->dslopes};
  for (size_t i = 0; i < sizeof tensors / sizeof *tensors; ++i) free(tensors[i]->data);
}

/// Returns the largest difference of tokens from those of the whole.
static double difference_of(const attnc_tensor* mine, const attnc_tensor* whole, const attnc_shard_interval* tokens,
                            size_t count) {
  const float *found = mine->data, *wanted = whole->data;
  const int64_t row = mine->shape[1] * kHeadDim;
  double difference = 0;
  for (size_t i = 0; i < count; ++i)
    for (int64_t at = tokens[i].begin * row; at < tokens[i].end * row; ++at)
      difference = fmax(difference, fabs(*found++ - wanted[at]));
  return difference;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, world;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world);
  const int64_t length = argc > 1 ? atoll(argv[1]) : 301;
  char text[1024];
  snprintf(text, sizeof text,
           "slopes: f32[H]\n"
           "def score_mod(score, b, h, q_idx, kv_idx):\n"
           "    return score + slopes[h] * (kv_idx - q_idx)\n"
           "def mask_mod(b, h, q_idx, kv_idx):\n"
           "    return %s\n",
           argc > 2 ? argv[2] : "q_idx >= kv_idx");
  attnc_mod* mod;
  check(attnc_mod_parse(text, ATTNC_WHOLE, NULL, &mod));
  float slope[kHeads] = {0.25f, 0.0625f, 0.015625f, 0.00390625f};
  const attnc_tensor slopes = {.struct_size = sizeof slopes, .data = slope, .dtype = ATTNC_DTYPE_F32, .rank = 1,
                               .shape = {kHeads}, .stride = {1}};
  const attnc_capture capture = {.struct_size = sizeof capture, .name = "slopes", .tensor = &slopes};

  // The plan is the same on each rank.
  const attnc_shard_mask mask = {.struct_size = sizeof mask, .mod = mod, .captures = &capture, .capture_count = 1};
  const attnc_problem shape = {1, kHeads, kKvHeads, length, length};
  const attnc_shard_options options = {.struct_size = sizeof options, .head_groups = argc > 3 ? atoi(argv[3]) : 1};
  attnc_shard_plan* plan;
  check(attnc_shard_plan_create(&mask, 1, &shape, world, &options, &plan));
  attnc_shard_tokens tokens = {.struct_size = sizeof tokens};
  check(attnc_shard_plan_get_tokens(plan, (size_t)rank, &tokens));

  problem mine;
  make(&mine, &capture, tokens.rows, tokens.row_count, tokens.keys, tokens.key_count);
  attnc_sharded* sharded;
  size_t bytes, kept_bytes;
  check(attnc_sharded_prepare_training(NULL, mod, plan, 0, (size_t)rank, &mine.backward, &mine.outputs, &mine.gradients,
                                       NULL, &sharded));
  check(attnc_sharded_workspace_bytes(sharded, &bytes));
  check(attnc_sharded_kept_bytes(sharded, &kept_bytes));
  void *workspace = allocate(bytes), *kept = allocate(kept_bytes);
  check(attnc_sharded_initialise(sharded, &mine.operands, workspace, NULL));
  messages coming = {.count = 0};
  const attnc_shard_engine engine = {.struct_size = sizeof engine, .exchange = exchange, .wait = wait, .user = &coming};
  check(attnc_sharded_launch_training(sharded, &mine.operands, &mine.outputs, &engine, workspace, NULL, NULL, kept));
  check(attnc_sharded_launch_backward(sharded, &mine.backward, &mine.gradients, &engine, workspace, NULL, NULL, kept));
  // Each rank has its part of the gradients of captures.
  MPI_Allreduce(MPI_IN_PLACE, mine.dslopes.data, kHeads, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);

  problem whole;
  const attnc_shard_interval all = {0, length};
  make(&whole, &capture, &all, 1, &all, 1);
  check(attnc_compute_on_cpu(mod, &whole.operands, &whole.outputs));
  check(attnc_compute_backward_on_cpu(mod, &whole.backward, &whole.gradients));
  double differences[5] = {difference_of(&mine.out, &whole.out, tokens.rows, tokens.row_count),
                           difference_of(&mine.dq, &whole.dq, tokens.rows, tokens.row_count),
                           difference_of(&mine.dk, &whole.dk, tokens.keys, tokens.key_count),
                           difference_of(&mine.dv, &whole.dv, tokens.keys, tokens.key_count)};
  for (int h = 0; h < kHeads; ++h) {
    const float found = ((const float*)mine.dslopes.data)[h], wanted = ((const float*)whole.dslopes.data)[h];
    differences[4] = fmax(differences[4], fabs(found - wanted) / fmax(1, fabs(wanted)));
  }
  double largest[5];
  MPI_Reduce(differences, largest, 5, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  int is_right = 1;
  for (int i = 0; i < 5; ++i) is_right = is_right && largest[i] < 1e-4;
  attnc_shard_plan_info info = {.struct_size = sizeof info};
  check(attnc_shard_plan_get_info(plan, &info));
  if (rank == 0)
    printf("%d ranks, %d groups of heads, %d stages of transfers: out and gradients are %s\n", world,
           (int)info.head_groups, (int)info.stages, is_right ? "those of one process" : "WRONG");

  free(workspace), free(kept);
  release(&whole);
  release(&mine);
  attnc_sharded_destroy(sharded);
  attnc_shard_plan_destroy(plan);
  attnc_mod_destroy(mod);
  MPI_Finalize();
  return 0;
}
