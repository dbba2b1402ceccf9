// Types that stand for those of attnc in launchers: with the members that the other files of host/ read.
//
// Host code, only as text in the launcher of an emitted kernel.
#pragma once

namespace attnc {

enum class DType { F16, BF16 };
inline int64_t dtypeBytes(DType) { return 2; }
inline int64_t ceilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// A tensor of four axes; strides are in elements.
struct TensorView {
  void* data = nullptr;
  DType dtype = DType::BF16;
  std::array<int64_t, 4> shape{}, stride{};
  int64_t elements() const { return shape[0] * shape[1] * shape[2] * shape[3]; }
};

struct ProblemShape {
  int64_t batch = 0, qHeads = 0, kvHeads = 0, qLen = 0, kvLen = 0;
};

struct BlockMaskShape {
  int64_t batch = 1, heads = 1, qLen = 0, kvLen = 0;
  int qBlock = 128, kvBlock = 128;
  int64_t qBlocks() const { return (qLen + qBlock - 1) / qBlock; }
  int64_t kvBlocks() const { return (kvLen + kvBlock - 1) / kvBlock; }
};

struct BlockMaskColumns {
  const int32_t *partialCount = nullptr, *partialIndex = nullptr, *fullCount = nullptr, *fullIndex = nullptr;
  int64_t indexStride = 0;
};

struct BlockMaskView : BlockMaskColumns {
  BlockMaskShape shape;
  BlockMaskColumns columns;
};

} // namespace attnc

namespace attnc::plan {

/// The kernels count tiles and positions in 32 bits.
constexpr int64_t kMostTiles = (int64_t(1) << 31) - (1 << 20), kMostPositions = int64_t(1) << 24;

struct LaunchOperands {
  ProblemShape problem;
  TensorView q, k, v, out, dOut, dQ, dK, dV;
  float *lse = nullptr, *rowMax = nullptr;
  const float* dLse = nullptr;
  std::optional<float> scale;
  std::optional<TensorView> pageTable, newK, newV, kScales, vScales, cuSeqlensQ, cuSeqlensKv;
  std::optional<BlockMaskView> lists;
};

struct Device {
  int multiprocessors = 0;
  int64_t l2Bytes = 0;

  static int current(Device& device) {
    int number = 0, l2 = 0, error = cudaGetDevice(&number);
    if (!error) error = cudaDeviceGetAttribute(&device.multiprocessors, cudaDevAttrMultiProcessorCount, number);
    if (!error) error = cudaDeviceGetAttribute(&l2, cudaDevAttrL2CacheSize, number);
    device.l2Bytes = l2;
    return error;
  }
};

/// What a stage of the kernel was compiled for.
struct Config {
  DType dtype = DType::BF16;
  int headDimQk = 0, headDimV = 0, blockM = 0, blockN = 0, warps = 0, pageSize = 0;
  std::optional<bool> takesTurns;
};

struct Stage {
  Config config;
  int64_t (*ctas)(const Stage& stage, const LaunchOperands& operands, const Device& device);
};

inline int64_t ctasOf(const Stage& stage, const LaunchOperands& operands, const Device& device) {
  return stage.ctas(stage, operands, device);
}

/// CTAs that take one tile after another are at most one per multiprocessor.
template <int64_t (*count)(const Stage&, const LaunchOperands&, const Device&)>
int64_t persistent(const Stage& stage, const LaunchOperands& operands, const Device& device) {
  return std::min<int64_t>(count(stage, operands, device), device.multiprocessors);
}

template <int64_t (*count)(const Stage&, const LaunchOperands&, const Device&)>
int64_t twice(const Stage& stage, const LaunchOperands& operands, const Device& device) {
  return 2 * count(stage, operands, device);
}

/// The uses of the workspace, which lie one after another.
enum class Use {
  Counters,
  Parts,
  StepLists,
  Delta,
  RowSums,
  LargeRows,
  DqSums,
  DqTurns,
  KvSums,
  KvArrivals,
  DqVisits,
  DiagonalSums
};
enum class Zeroed { Never, Once, EveryLaunch };

struct WorkspaceView {
  struct Part {
    Use use;
    Zeroed zeroed;
    size_t offset, bytes;
  };
  std::array<Part, 8> parts{};
  int count = 0;
  size_t end = 0;
  void* memory = nullptr;

  void add(Use use, Zeroed zeroed, size_t bytes) {
    if (bytes == 0) return;
    const size_t offset = (end + 255) / 256 * 256;
    parts[size_t(count++)] = {use, zeroed, offset, bytes};
    end = offset + bytes;
  }
  void* at(Use use) const {
    for (int i = 0; memory && i < count; ++i)
      if (parts[size_t(i)].use == use) return static_cast<char*>(memory) + parts[size_t(i)].offset;
    return nullptr;
  }
  int zero(Zeroed when, cudaStream_t stream) const {
    int error = 0;
    for (int i = 0; memory && i < count && !error; ++i)
      if (const Part& part = parts[size_t(i)]; part.zeroed == when)
        error = cudaMemsetAsync(static_cast<char*>(memory) + part.offset, 0, part.bytes, stream);
    return error;
  }
};

inline int launch(const void* kernel, int64_t ctas, int threads, int sharedBytes, void* params, uint64_t* args,
                  cudaStream_t stream) {
  if (ctas > INT32_MAX) return cudaErrorInvalidConfiguration;
  if (int error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sharedBytes)) return error;
  void* arguments[] = {params, args};
  return cudaLaunchKernel(kernel, dim3(unsigned(ctas)), dim3(unsigned(threads)), arguments, size_t(sharedBytes),
                          stream);
}

} // namespace attnc::plan
