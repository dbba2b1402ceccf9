// What a launch of a rank runs with, and parts of its memory.
#pragma once

#include "attnc/sharded.h"
#include "shard/machine.h"
#include "support/try.h"

namespace attnc::shard {

/// A launch. Transfers and computation wait for each other where they meet.
struct Run {
  const Machine& machine;
  const ShardEngine& engine;
  void *workspace, *kept;
  Stream stream, transfers;

  /// Begins transfers, of what the stream has computed.
  Status exchange(const std::vector<ShardMessage>& sends, const std::vector<ShardMessage>& receives) const {
    ATTNC_TRY(machine.waitFor(transfers, stream));
    return engine.exchange(sends, receives, transfers);
  }
  /// Lets the stream have what has come.
  Status arrive() const {
    if (engine.wait) ATTNC_TRY(engine.wait());
    return machine.waitFor(stream, transfers);
  }
};

/// Returns where a part of memory begins. Null for none.
inline char* at(void* memory, size_t offset) { return memory ? static_cast<char*>(memory) + offset : nullptr; }

/// A tensor in memory of the caller.
struct Placed {
  TensorView tensor = {};
  size_t offset = 0;
  TensorView in(void* memory) const {
    TensorView view = tensor;
    view.data = at(memory, offset);
    return view;
  }
};

/// Parts of memory, one behind another.
class Parts {
public:
  size_t add(int64_t bytes) {
    const size_t offset = end;
    end += (size_t(bytes) + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
    return offset;
  }
  Placed add(const TensorView& tensor) { return {tensor, add(tensor.elements() * dtypeBytes(tensor.dtype))}; }
  size_t bytes() const { return end; }

private:
  size_t end = 0;
};

/// Returns [B, heads, rows, columns] of memory [B, rows, heads, columns].
inline TensorView rowsFirst(DType dtype, int64_t batch, int64_t heads, int64_t rows, int64_t columns) {
  return {.dtype = dtype,
          .rank = 4,
          .shape = {batch, heads, rows, columns},
          .stride = {rows * heads * columns, columns, heads * columns, 1}};
}

/// Returns rows [first, first + count) of a tensor.
inline TensorView rowsOf(TensorView tensor, int64_t first, int64_t count) {
  tensor.data = at(tensor.data, size_t(first * tensor.stride[2] * dtypeBytes(tensor.dtype)));
  tensor.shape[2] = count;
  return tensor;
}

} // namespace attnc::shard
