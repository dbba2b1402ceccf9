// Tables: arrays whose elements are written out.
#pragma once

#include "dsl/objects/context.h"

namespace attnc::dsl {

/// `items`: row-major.
const Array* makeArray(Context& context, llvm::ArrayRef<int64_t> shape, std::vector<Object> items);

/// Returns table[index]: a row, or an item of a table with one axis. A traced index chooses by a chain of selects.
Object rowOf(Context& context, const Array& table, Object index);

} // namespace attnc::dsl
