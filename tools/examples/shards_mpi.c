// Attention of a sequence that is divided among the ranks of MPI, from C, on the CPU.
//   mpirun -np 4 shards_mpi [length, default 301] [mask, default causal]
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

/// Rows of q, k, v and out.
typedef struct problem {
  attnc_tensor q, k, v, out;
  attnc_operands operands;
  attnc_outputs outputs;
} problem;

static void make(problem* all, const attnc_capture* capture, const attnc_shard_interval* rows, size_t row_count,
                 const attnc_shard_interval* keys, size_t key_count) {
  const int64_t of_q = tokens_in(rows, row_count), of_kv = tokens_in(keys, key_count);
  const size_t row = kHeads * kHeadDim * sizeof(float);
  all->q = rows_of(allocate((size_t)of_q * row), kHeads, of_q);
  all->k = rows_of(allocate((size_t)of_kv * row), kKvHeads, of_kv);
  all->v = rows_of(allocate((size_t)of_kv * row), kKvHeads, of_kv);
  all->out = rows_of(allocate((size_t)of_q * row), kHeads, of_q);
  draw(all->q.data, kHeads, rows, row_count, 1);
  draw(all->k.data, kKvHeads, keys, key_count, 2);
  draw(all->v.data, kKvHeads, keys, key_count, 3);
  all->operands = (attnc_operands){.struct_size = sizeof all->operands, .q = &all->q, .k = &all->k, .v = &all->v,
                                   .captures = capture, .capture_count = 1};
  all->outputs = (attnc_outputs){.struct_size = sizeof all->outputs, .out = &all->out};
}

static void release(const problem* all) {
  free(all->q.data), free(all->k.data), free(all->v.data), free(all->out.data);
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
  attnc_shard_plan* plan;
  check(attnc_shard_plan_create(&mask, 1, &shape, world, NULL, &plan));
  attnc_shard_tokens tokens = {.struct_size = sizeof tokens};
  check(attnc_shard_plan_get_tokens(plan, (size_t)rank, &tokens));

  problem mine;
  make(&mine, &capture, tokens.rows, tokens.row_count, tokens.keys, tokens.key_count);
  attnc_sharded* sharded;
  size_t bytes;
  check(attnc_sharded_prepare(NULL, mod, plan, 0, (size_t)rank, &mine.operands, &mine.outputs, NULL, &sharded));
  check(attnc_sharded_workspace_bytes(sharded, &bytes));
  void* workspace = allocate(bytes);
  check(attnc_sharded_initialise(sharded, &mine.operands, workspace, NULL));
  messages coming = {.count = 0};
  const attnc_shard_engine engine = {.struct_size = sizeof engine, .exchange = exchange, .wait = wait, .user = &coming};
  check(attnc_sharded_launch(sharded, &mine.operands, &mine.outputs, &engine, workspace, NULL, NULL));

  problem whole;
  const attnc_shard_interval all = {0, length};
  make(&whole, &capture, &all, 1, &all, 1);
  check(attnc_compute_on_cpu(mod, &whole.operands, &whole.outputs));
  double difference = 0, largest = 0;
  const float* found = mine.out.data;
  for (size_t i = 0; i < tokens.row_count; ++i)
    for (int64_t at = tokens.rows[i].begin * kHeads * kHeadDim; at < tokens.rows[i].end * kHeads * kHeadDim; ++at)
      difference = fmax(difference, fabs(*found++ - ((const float*)whole.out.data)[at]));
  MPI_Reduce(&difference, &largest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  attnc_shard_plan_info info = {.struct_size = sizeof info};
  check(attnc_shard_plan_get_info(plan, &info));
  if (rank == 0)
    printf("%d ranks, %d stages of transfers: out is %s\n", world, (int)info.stages,
           largest < 1e-5 ? "that of one process" : "WRONG");

  free(workspace);
  release(&whole);
  release(&mine);
  attnc_sharded_destroy(sharded);
  attnc_shard_plan_destroy(plan);
  attnc_mod_destroy(mod);
  MPI_Finalize();
  return 0;
}
