// Runs the C and C++ examples of the documents, which the build extracts.
#include "on_device.h"

#include "attnc/c.hpp"
#include "tools/examples/page_allocator.h"

#include <algorithm>
#include <functional>

bool alibi(const attnc::Compiler& compiler, attnc::TensorView q, attnc::TensorView k, attnc::TensorView v,
           attnc::TensorView out, float* slopes, const std::function<void*(size_t)>& allocate, attnc::Stream stream);

bool train(const attnc::Compiler& compiler, const attnc::Mod& mod, const attnc::BackwardOperands& operands,
           const attnc::BackwardOutputs& gradients, const std::function<void*(size_t)>& allocate, attnc::Stream stream);

struct Cache {
  attnc::TensorView k, v, table, lengths;
};
struct Tokens {
  attnc::TensorView q, k, v, out;
};
struct Cuda {
  std::function<void*(size_t)> allocate;
  std::function<void(void* to, const void* from, size_t bytes)> upload;
  std::function<std::function<void()>(const std::function<bool()>& work)> capture;
  attnc::Stream stream;
};
using Deal = std::function<bool(int64_t tokens, int32_t* table, int32_t* lengths)>;
bool generate(const attnc::Compiler& compiler, const attnc::Mod& mod, const Deal& deal, const Cache& cache,
              const Tokens& prompt, const Tokens& token, int steps, const std::function<void(int)>& next,
              const Cuda& cuda);
bool alibiOverC(const attnc::c::Compiler& compiler, const attnc::c::TensorView& q, const attnc::c::TensorView& k,
                const attnc::c::TensorView& v, const attnc::c::TensorView& out, float* slopes,
                const std::function<void*(size_t)>& allocate, attnc::c::Stream stream);
extern "C" attnc_status alibi_in_c(const attnc_compiler* compiler, const attnc_tensor* q, const attnc_tensor* k,
                                   const attnc_tensor* v, const attnc_tensor* out, float* slopes,
                                   void* (*allocate)(size_t bytes), attnc_stream stream);

using namespace attnc;
using namespace attnc::gputest;

namespace {

const Problem kProblem{{2, 4, 2, 100, 150}, 128, 128, DType::BF16};

/// Device memory of an example; a workspace is poisoned with NaN.
struct Memory : Placed {
  device::Buffer workspace;

  void* allocate(size_t bytes) {
    workspace = filled(bytes, 0xff);
    return workspace.data();
  }
};

/// ALiBi in device memory. An example of the documents fills `out`.
struct Alibi {
  Gpu& device = *gpu();
  const Mod mod = libraryMod("alibi");
  const OnDevice placed{mod, kProblem};
  Memory memory;
  const TensorView q = placed.inputs.q, k = placed.inputs.k, v = placed.inputs.v, out = placed.inputs.out;

  float* slopesData() const {
    return static_cast<float*>(std::get<TensorView>(placed.captures.captures.all().at("slopes")).data);
  }
  static attnc::c::TensorView inC(const TensorView& of) {
    return attnc::c::TensorView::contiguous(of.data, ATTNC_DTYPE_BF16,
                                            {of.shape[0], of.shape[1], of.shape[2], of.shape[3]});
  }
  void check() {
    take(device.stream.synchronize());
    Outcome actual = placed.outcome(), expected = runReference(mod, kProblem, placed.host);
    actual.lse.clear();
    expected.lse.clear();
    checkClose(actual, expected, kProblem);
  }
};

} // namespace

GPU_TEST_CASE("the documents' C++ example computes ALiBi", "[gpu]") {
  Alibi given;
  REQUIRE(alibi(
      given.device.compiler, given.q, given.k, given.v, given.out, given.slopesData(),
      [&](size_t bytes) { return given.memory.allocate(bytes); }, given.device.stream.get()));
  given.check();
}

GPU_TEST_CASE("the documents' example of C++ over C computes ALiBi", "[gpu][c]") {
  Alibi given;
  const auto compiler = attnc::c::Compiler::create().value(); // outlives the launched work
  REQUIRE(alibiOverC(
      compiler, Alibi::inC(given.q), Alibi::inC(given.k), Alibi::inC(given.v), Alibi::inC(given.out),
      given.slopesData(), [&](size_t bytes) { return given.memory.allocate(bytes); }, given.device.stream.get()));
  given.check();
}

GPU_TEST_CASE("the documents' C example computes ALiBi", "[gpu][c]") {
  Alibi given;
  static Memory* memory; // C has no closures
  memory = &given.memory;
  const auto compiler = attnc::c::Compiler::create().value();
  const attnc_tensor q = Alibi::inC(given.q), k = Alibi::inC(given.k), v = Alibi::inC(given.v),
                     out = Alibi::inC(given.out);
  REQUIRE(alibi_in_c(
              compiler.get(), &q, &k, &v, &out, given.slopesData(),
              [](size_t bytes) { return memory->allocate(bytes); }, given.device.stream.get()) == ATTNC_OK);
  given.check();
}

GPU_TEST_CASE("the documents' training step computes gradients", "[gpu][backward]") {
  Gpu& device = *gpu();
  const Mod mod = libraryMod("alibi");
  OnDevice step(mod, kProblem, drawGradients(kProblem, true));
  Memory memory;
  const auto allocate = [&](size_t bytes) { return memory.allocate(bytes); };
  REQUIRE(train(device.compiler, mod, step.inputs, step.gradients, allocate, device.stream.get()));
  take(device.stream.synchronize());
  step.checkTraining(mod);

  // A problem prepared for the forward pass has no backward pass, and one of another shape is refused.
  const Prepared forward = take(device.compiler.prepare(mod, step.inputs, step.outputs));
  CHECK_FALSE(forward.backwardKernel());
  CHECK_FALSE(forward.launchBackward(step.inputs, step.gradients, memory.workspace.data(), device.stream.get()));
  const Prepared both = take(device.compiler.prepareTraining(mod, step.inputs, step.outputs, step.gradients));
  step.inputs.q.shape[2] = 99;
  CHECK_FALSE(both.launchBackward(step.inputs, step.gradients, memory.workspace.data(), device.stream.get()));
}

namespace {

/// Rows [first, first + count) of every head.
cli::HostTensor rowsOf(const cli::HostTensor& tensor, int64_t first, int64_t count) {
  cli::HostTensor rows =
      cli::HostTensor::make(tensor.dtype, {tensor.shape[0], tensor.shape[1], count, tensor.shape[3]});
  const int64_t bytes = tensor.shape[3] * dtypeBytes(tensor.dtype);
  for (int64_t head = 0; head < tensor.shape[0] * tensor.shape[1]; ++head)
    std::copy_n(tensor.bytes.begin() + (head * tensor.shape[2] + first) * bytes, count * bytes,
                rows.bytes.begin() + head * count * bytes);
  return rows;
}

} // namespace

GPU_TEST_CASE("the documents' decoding loop attends to all tokens so far", "[gpu]") {
  Gpu& device = *gpu();
  const Mod mod = libraryMod("causal");
  constexpr int64_t kBatch = 3, kPrompt = 200, kRows = 768, kPageSize = 64, kPages = 20;
  constexpr int kSteps = 70;
  const Problem problem{{kBatch, 8, 2, kRows, kRows}, 128, 128, DType::BF16};
  const HostOperands all = draw(mod, problem); // every token that there will be
  Memory memory;
  const auto place = [&](const cli::HostTensor& tensor) { return memory.place(tensor); };
  cli::HostTensor pool = cli::HostTensor::make(DType::BF16, {kPages, 2, kPageSize, 128});
  std::fill(pool.bytes.begin(), pool.bytes.end(), char(0xff)); // NaN
  const auto placeTokens = [&](int64_t count) {
    return Tokens{place(rowsOf(all.q, 0, count)), place(rowsOf(all.k, 0, count)), place(rowsOf(all.v, 0, count)),
                  place(rowsOf(all.q, 0, count))};
  };
  const Cache cache{place(pool), place(pool), place(cli::HostTensor::make(DType::I32, {kBatch, kRows / kPageSize})),
                    place(cli::HostTensor::make(DType::I32, {kBatch}))};
  const Tokens prompt = placeTokens(kPrompt), token = placeTokens(1);
  const auto bufferOf = [&](const void* data) -> device::Buffer& {
    for (device::Buffer& buffer : memory.buffers)
      if (buffer.data() == data) return buffer;
    FAIL("memory that was not placed");
    return memory.buffers.front();
  };
  std::vector<device::Buffer> workspaces;
  device::Graph graph;
  const Cuda cuda{.allocate =
                      [&](size_t bytes) {
                        workspaces.push_back(take(device::Buffer::allocate(bytes)));
                        if (bytes) take(workspaces.back().fill(0xff));
                        return workspaces.back().data();
                      },
                  .upload =
                      [&](void* to, const void* from, size_t bytes) {
                        take(device.stream.synchronize());
                        take(bufferOf(to).upload(from, bytes));
                      },
                  .capture = [&](const std::function<bool()>& work) -> std::function<void()> {
                    take(device.stream.beginCapture());
                    const bool enqueued = work();
                    graph = take(device.stream.endCapture());
                    REQUIRE(enqueued);
                    return [&] { take(graph.launch(device.stream.get())); };
                  },
                  .stream = device.stream.get()};
  const auto check = [&](const TensorView& out, int64_t first, int64_t count) {
    take(device.stream.synchronize());
    const ProblemShape shape{kBatch, 8, 2, count, kRows};
    const Problem part{shape, 128, 128, DType::BF16};
    HostOperands operands{.q = rowsOf(all.q, first, count), .k = all.k, .v = all.v};
    operands.kvLengths.assign(kBatch, int32_t(first + count));
    Outcome expected = runReference(mod, part, operands);
    expected.lse.clear();
    cli::HostTensor host = cli::HostTensor::make(DType::BF16, {kBatch, 8, count, 128});
    take(bufferOf(out.data).download(host.bytes.data(), host.bytes.size()));
    INFO("tokens from " << first);
    checkClose({toDoubles(host), {}, {}, {}, {}}, expected, part);
  };
  example::PageAllocator allocator(kPages, kPageSize);
  std::vector<example::PageAllocator::Sequence> sequences;
  for (int64_t b = 0; b < kBatch; ++b) sequences.push_back(allocator.add());
  const auto deal = [&](int64_t tokens, int32_t* table, int32_t* lengths) {
    for (const auto sequence : sequences)
      if (!allocator.append(sequence, tokens)) return false;
    return bool(allocator.fill(sequences, cache.table.shape[1], table, lengths));
  };
  const auto next = [&](int i) {
    if (i == 0)
      check(prompt.out, 0, kPrompt);
    else if (i == 1 || i % 10 == 7)
      check(token.out, kPrompt + i - 1, 1);
    take(device.stream.synchronize());
    for (auto [view, tensor] : {std::pair(&token.q, &all.q), {&token.k, &all.k}, {&token.v, &all.v}}) {
      const cli::HostTensor row = rowsOf(*tensor, kPrompt + i, 1);
      take(bufferOf(view->data).upload(row.bytes.data(), row.bytes.size()));
    }
  };
  REQUIRE(generate(device.compiler, mod, deal, cache, prompt, token, kSteps, next, cuda));
  check(token.out, kPrompt + kSteps - 1, 1);
  CHECK(allocator.freePages() == kPages - kBatch * 5);
  // Another prompt behind these would take 4 more pages a sequence.
  CHECK_FALSE(generate(device.compiler, mod, deal, cache, prompt, token, kSteps, next, cuda));
}
