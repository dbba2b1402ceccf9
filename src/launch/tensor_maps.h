// What Hopper's families share: tensor maps of operands, and sections of heads that fit into L2.
#pragma once

#include "jit/tensor_map.h"
#include "launch/launch_operands.h"
#include "templates/params_sm90.cuh"

#include <llvm/ADT/ArrayRef.h>

#include <functional>
#include <string_view>

namespace attnc::plan {

/// A map over (head_dim, rows, heads, batch), and the step of its batch coordinate: 0 if the batch is broadcast.
struct Mapped {
  TensorMap map;
  int batchStep;
};

using jit::L2Promotion;

/// Returns an address for maps of empty tensors, which callers may give with null and the copy engine never reads: that
/// of some tensor that is not empty. Null if all are empty.
void* somewhereIn(const LaunchOperands& operands);

/// Encodes the maps of its thread instead of the driver, while it lives: for launches that are written down, and for
/// kernels that run on the host.
class MapEncoder {
public:
  using Encode = std::function<TensorMap(const jit::TensorMapRequest& request)>;
  explicit MapEncoder(Encode encode);
  MapEncoder(const MapEncoder&) = delete;
  MapEncoder& operator=(const MapEncoder&) = delete;
  ~MapEncoder();
  const Encode encode;
};

/// Where a map and its batch step go, and what they are of. Promotion to 256 bytes costs 10 % if all bytes come from
/// memory and are read once (bench/notes/decode.md).
struct MapPlace {
  const char* name;
  const TensorView* tensor;
  int boxRows;
  TensorMap* map;
  int* batchStep;
  L2Promotion promotion = L2Promotion::Bytes256;
};
/// Encodes maps over (head_dim, rows, heads, batch). Precondition: checkMappable() accepted the tensors.
Status encodeMaps(llvm::ArrayRef<MapPlace> places, const LaunchOperands& operands);

/// Checks that the copy engine can describe the tensor. The driver, which encodes the maps, may still refuse one. An
/// empty tensor always fits. `isPool`: the first axis counts pages, not batch entries.
Status checkMappable(std::string_view name, const TensorView& tensor, bool isPool = false);

/// Makes a map over (head_dim, axes of a grid, the fastest first, heads of all batch entries). The tokens of the grid
/// are the tensor's rows from `first` on. The same head of the next batch entry is batchStep heads further. A map
/// without tokens is never read. Precondition: checkMappableOnGrid() accepted the tensor.
Expected<Mapped> mapOnGrid(std::string_view name, const TensorView& tensor, const std::array<int64_t, 3>& extents,
                           const std::array<int, 3>& box, void* somewhere, int64_t first = 0);

/// Makes two `maps` of off-grid tokens: before the grid and after it, each as a grid of 1 x 1 x `tokens`. Their batch
/// steps are the grid's. Precondition: as for mapOnGrid().
Status mapRuns(std::string_view name, const TensorView& tensor, const std::array<int64_t, 3>& extents,
               const std::array<int64_t, 2>& tokens, int boxTokens, void* somewhere, TensorMap* maps);

/// checkMappable(). Also checks that the batch's stride is a multiple of the heads'.
Status checkMappableOnGrid(std::string_view name, const TensorView& tensor);

/// Returns the heads of a section. Sections have equal sizes, and as many of `heads` as keep the data that CTAs share,
/// `headBytes` per head, within about half of L2.
int64_t sectionOf(int64_t heads, int64_t headBytes, int64_t l2Bytes);

} // namespace attnc::plan
