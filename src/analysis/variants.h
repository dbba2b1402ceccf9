// Variants: a mod that chooses between mods by one number of the head, as choice() does, or a chain of where() over
// which[b].
//
// In: a module after the passes. Out: the number, and the values that it is compared with. Each makes a variant, a
// module with that number as a constant (src/passes/variant.h), and a kernel computes one variant for a tile of rows.
#pragma once

#include "ir/ir.h"

#include <llvm/ADT/SmallVector.h>

#include <optional>

namespace attnc::analysis {

/// Each variant has code of its own in a kernel.
constexpr size_t kMostVariants = 8;

struct Variants {
  ir::Value which;                       ///< an int that depends on b only
  llvm::SmallVector<int64_t, 4> numbers; ///< of the variants, ascending
  bool hasRest = false;                  ///< whether other numbers are a variant, the last one; otherwise nothing lives

  size_t size() const { return numbers.size() + hasRest; }
};

/// Returns the variants; nullopt if there are none, or too many.
std::optional<Variants> findVariants(const ir::Module& module);

} // namespace attnc::analysis
