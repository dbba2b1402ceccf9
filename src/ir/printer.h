// IR as text. print() writes it, reader.h reads it back; print(read(print(m))) == print(m).
//
//   source "alibi.py"                      file name of the mod, for messages
//   dim DOCS                               a free extent, besides B H HKV Q_LEN KV_LEN
//   tensor slopes: f32[H]
//   tensor which: i32[B] chooses 3         its elements are 0 to 2
//   scalar window: i32
//   grid [@HEIGHT, 128] before 77          grid0; numbers are constants, scalars and extents
//   %0 = sub i32 %kv_idx, %q_idx !7        !7: made by line 7 of the mod's text
//   %1 = le i32 %0, @window                a comparison names its operands' type
//   %2 = load f32 slopes[%h]
//   %3 = load f32 weights[%h, %i0:16]      %i0:16: index of loop 0, which has 16 rounds
//   %4 = sum f32 %i0:16, %3                sum over that index
//   %5 = coord i32 grid0.1, %q_idx         the coordinate along axis 1 of grid0
//   %6 = in_grid bool grid0, %q_idx
//   output score(score, b, h, q_idx, kv_idx) -> %4      an output, with the parameters it may depend on
//   output mask(b, h, q_idx, kv_idx) -> %1
//   output condition_00() -> %5 else "N is too small" !3    a condition of every launch, and its error message
//
// Leaves stand where they are used: %score %b %h %q_idx %kv_idx; %i0:16; @name, a run-time scalar; #NAME, an extent;
// true, false; 7 (i32), 7L (i64), 0.5, inf, nan, nan:0x7fc00001 (f32, always with a point, an exponent or a name). All
// other nodes of the arena are written, in order, including dead ones. `;` starts a comment.
#pragma once

#include "ir/ir.h"

#include <string>

namespace attnc::ir {

std::string print(const Module& module);

/// The spellings of values as operands in print(): "%3", "%q_idx", "@window", "0.5".
class OperandNames {
public:
  /// Numbers the nodes that are not leaves, in arena order. `module` must outlive this object.
  explicit OperandNames(const Module& module);
  std::string of(Value value) const;

private:
  const Module& module;
  std::vector<uint32_t> number;
};

/// Returns a float's text that reads back to the same bits: shortest digits, always with '.', 'e', "inf" or "nan".
std::string printF32(float value);

} // namespace attnc::ir
