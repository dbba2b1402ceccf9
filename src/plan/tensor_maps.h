// What the families of Hopper share: tensor maps of operands, and sections of heads that fit into L2.
#pragma once

#include "jit/tensor_map.h"
#include "plan/launch_operands.h"
#include "templates/params_sm90.cuh"

#include <string_view>

namespace attnc::plan {

/// A map over (head_dim, rows, heads, batch) and the step of its batch coordinate: 0 where the batch is broadcast.
struct Mapped {
  TensorMap map;
  int batchStep;
};

using jit::L2Promotion;

/// An address for maps of empty tensors, which the copy engine never goes to: that of a tensor that is not empty.
/// Callers give empty ones with null. Null: all are.
void* somewhereIn(const LaunchOperands& operands);

/// Precondition: checkMappable() accepted the tensor. `somewhere`: any address that is aligned to 16 bytes. `promotion`: of 256
/// bytes costs 10 % where all bytes come from memory, and are read once (bench/NOTES.md).
Expected<Mapped> mapOf(std::string_view name, const TensorView& tensor, int boxRows, void* somewhere,
                       L2Promotion promotion = L2Promotion::Bytes256);

/// Whether the copy engine can describe the tensor; the driver, which encodes the maps, may still refuse one. An empty
/// tensor always fits. `isPool`: of pages, where other tensors have a batch.
Status checkMappable(std::string_view name, const TensorView& tensor, bool isPool = false);

/// A map over (head_dim, axes of a grid, the fastest first, heads of all batch entries) of a tensor whose rows from
/// `first` on are the tokens of a grid; a head of the next batch entry is batchStep heads on. One of no tokens is never
/// asked for. Precondition: checkMappableOnGrid() accepted the tensor.
Expected<Mapped> mapOnGrid(std::string_view name, const TensorView& tensor, const std::array<int64_t, 3>& extents,
                           const std::array<int, 3>& box, void* somewhere, int64_t first = 0);

/// Maps of the tokens beside a grid, of those before it and of those behind, each as a grid of 1 x 1 x `tokens` of
/// them; their batch steps are that of the grid. `maps`: two. Precondition as of mapOnGrid().
Status mapRuns(std::string_view name, const TensorView& tensor, const std::array<int64_t, 3>& extents,
               const std::array<int64_t, 2>& tokens, int boxTokens, void* somewhere, TensorMap* maps);

/// checkMappable(), and that the stride of the batch is a multiple of that of heads.
Status checkMappableOnGrid(std::string_view name, const TensorView& tensor);

/// Heads of a section: as many of `heads` as keep what CTAs share of each, `headBytes`, in about half of L2; sections are
/// of equal size.
int64_t sectionOf(int64_t heads, int64_t headBytes, int64_t l2Bytes);

} // namespace attnc::plan
