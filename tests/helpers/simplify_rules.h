// Every rule of simplify, one a line: what it takes, and what it gives. Operands are run-time scalars, of which the
// analysis knows nothing, and indices, of which it knows the range.
#pragma once

#include "helpers/take.h"
#include "ir/reader.h"

#include <sstream>
#include <string>

namespace attnc::test {

inline const char kScalars[] =
    "tensor L: i64\ntensor M: i64\nscalar x: i32\nscalar y: i32\nscalar z: i32\nscalar a: f32\nscalar c: f32\n"
    "scalar p: bool\nscalar r: bool\n";

struct Rule {
  const char* before; ///< operations, separated by ';', the last one is the value
  const char* after;  ///< the same after simplify; "=" for unchanged; a single leaf is written as "-> leaf"
};

inline const Rule kRules[] = {
    // Sums over an index
    {"sum i32 %i0:5, 3", "-> 15"},
    {"sum i64 %i0:5, 9223372036854775807L", "-> 9223372036854775803L"},
    {"sum f32 %i0:5, -0.0", "-> 0.0"},
    {"sum f32 %i0:5, 0.1", "="},
    {"add i32 %i0:5, @x; sum i32 %i0:5, %0", "="},
    // Integer sums
    {"add i32 @x, 0", "-> @x"},
    {"add i32 0, @x", "-> @x"},
    {"neg i32 @y; add i32 @x, %0", "sub i32 @x, @y"},
    {"neg i32 @x; add i32 %0, @y", "sub i32 @y, @x"},
    {"sub i32 @x, @y; add i32 %0, @y", "-> @x"},
    {"sub i32 @y, @x; add i32 @x, %0", "-> @y"},
    {"add i32 @x, 2147483647; add i32 %0, 5", "add i32 @x, -2147483644"},
    {"sub i32 7, @x; add i32 %0, 5", "sub i32 12, @x"},
    {"sub i32 @x, @x", "-> 0"},
    {"sub i32 0, @x", "neg i32 @x"},
    {"sub i32 @x, 3", "add i32 @x, -3"},
    {"sub i32 @x, -2147483648", "add i32 @x, -2147483648"},
    {"neg i32 @y; sub i32 @x, %0", "add i32 @x, @y"},
    {"add i32 @x, @y; sub i32 %0, @y", "-> @x"},
    {"add i32 @x, @y; sub i32 %0, @x", "-> @y"},
    {"sub i32 @x, @y; sub i32 @x, %0", "-> @y"},
    {"add i32 @x, 3; sub i32 10, %0", "sub i32 7, @x"},
    {"sub i32 3, @x; sub i32 10, %0", "add i32 @x, 7"},
    {"load i64 L; add i64 %0, 0L", "load i64 L"},
    // Products
    {"mul i32 @x, 0", "-> 0"},
    {"mul i32 1, @x", "-> @x"},
    {"mul i32 @x, -1", "neg i32 @x"},
    {"neg i32 @x; neg i32 @y; mul i32 %0, %1", "mul i32 @x, @y"},
    {"neg i32 @x; mul i32 %0, 5", "mul i32 @x, -5"},
    {"mul i32 @x, 65536; mul i32 %0, 65536", "-> 0"},
    {"mul i32 @x, 3; mul i32 %0, 5", "mul i32 @x, 15"},
    // Division and shifts
    {"floor_div i32 @x, 1", "-> @x"},
    {"floor_div i32 @x, -1", "neg i32 @x"},
    {"floor_div i32 @x, 0", "-> 0"},
    {"floor_div i32 @x, 64", "="},
    {"mod i32 @x, 1", "-> 0"},
    {"mod i32 @x, 64", "="},
    {"mod i32 @x, 64; mod i32 %0, 100", "mod i32 @x, 64"},
    {"mod i32 %q_idx, 16777216", "-> %q_idx"},
    {"floor_div i32 %q_idx, 16777216", "-> 0"},
    {"add i32 %q_idx, 192; floor_div i32 %0, 64", "floor_div i32 %q_idx, 64; add i32 %0, 3"},
    {"add i32 %q_idx, 192; mod i32 %0, 64", "mod i32 %q_idx, 64"},
    {"add i32 %q_idx, -192; mod i32 %0, 64", "="},
    {"add i32 %q_idx, 100; floor_div i32 %0, 64", "="},
    {"add i32 @x, 192; floor_div i32 %0, 64", "="},
    {"add i32 @x, 192; mod i32 %0, 60", "="},
    {"shl i32 @x, 32", "-> @x"},
    {"shr i32 @x, 0", "-> @x"},
    // Signs
    {"neg i32 @x; neg i32 %0", "-> @x"},
    {"sub i32 @x, @y; neg i32 %0", "sub i32 @y, @x"},
    {"add i32 @x, 3; neg i32 %0", "sub i32 -3, @x"},
    {"mul i32 @x, 3; neg i32 %0", "mul i32 @x, -3"},
    {"abs i32 @x; abs i32 %0", "abs i32 @x"},
    {"neg i32 @x; abs i32 %0", "abs i32 @x"},
    {"abs i32 %q_idx", "-> %q_idx"},
    {"neg i32 %q_idx; abs i32 %0", "-> %q_idx"},
    // Extremes
    {"min i32 @x, @x", "-> @x"},
    {"min i32 %q_idx, -1", "-> -1"},
    {"max i32 %q_idx, 0", "-> %q_idx"},
    {"min i32 %kv_idx, #KV_LEN", "-> %kv_idx"},
    {"max i32 #KV_LEN, %kv_idx", "-> #KV_LEN"},
    {"min i32 @x, 9; min i32 %0, 5", "min i32 @x, 5"},
    {"min i32 @x, @y; min i32 %0, @y", "min i32 @x, @y"},
    {"max i32 @x, @y; max i32 @x, %0", "max i32 @x, @y"},
    {"min f32 @a, @a", "-> @a"},
    {"min f32 @a, inf", "-> @a"},
    {"max f32 -inf, @a", "-> @a"},
    {"min f32 @a, -inf", "="},
    // f32
    {"add f32 @a, -0.0", "-> @a"},
    {"add f32 @a, 0.0", "="},
    {"neg f32 @c; add f32 @a, %0", "sub f32 @a, @c"},
    {"neg f32 @a; add f32 %0, @c", "sub f32 @c, @a"},
    {"sub f32 @a, 0.0", "-> @a"},
    {"sub f32 @a, -0.0", "="},
    {"sub f32 -0.0, @a", "neg f32 @a"},
    {"sub f32 0.0, @a", "="},
    {"sub f32 @a, @a", "="},
    {"neg f32 @c; sub f32 @a, %0", "add f32 @a, @c"},
    {"mul f32 @a, 1.0", "-> @a"},
    {"mul f32 @a, -1.0", "neg f32 @a"},
    {"mul f32 @a, 0.0", "="},
    {"neg f32 @a; neg f32 @c; mul f32 %0, %1", "mul f32 @a, @c"},
    {"neg f32 @a; mul f32 %0, 3.0", "mul f32 @a, -3.0"},
    {"mul f32 @a, 3.0; neg f32 %0", "mul f32 @a, -3.0"},
    {"div f32 @a, 1.0", "-> @a"},
    {"div f32 @a, -4.0", "mul f32 @a, -0.25"},
    {"div f32 @a, 3.0", "="},
    {"div f32 @a, 0.0", "="},
    {"div f32 @a, 1e-45", "="},
    {"neg f32 @a; neg f32 @c; div f32 %0, %1", "div f32 @a, @c"},
    {"sub f32 @a, @c; neg f32 %0", "="},
    {"ceil f32 @a; floor f32 %0", "ceil f32 @a"},
    {"cast f32 @x; round f32 %0", "cast f32 @x"},
    // Booleans and bits
    {"and bool @p, @p", "-> @p"},
    {"and bool @p, true", "-> @p"},
    {"or bool @p, true", "-> true"},
    {"and i32 @x, -1", "-> @x"},
    {"and i32 @x, 0", "-> 0"},
    {"not bool @p; and bool @p, %0", "-> false"},
    {"not i32 @x; or i32 %0, @x", "-> -1"},
    {"le i32 @x, @y; lt i32 @y, @x; or bool %0, %1", "-> true"},
    {"and bool @p, @r; and bool @p, %0", "and bool @p, @r"},
    {"or bool @p, @r; or bool %0, @r", "or bool @p, @r"},
    {"or bool @p, @r; and bool @p, %0", "-> @p"},
    {"and i32 @x, @y; or i32 %0, @y", "-> @y"},
    {"and i32 @x, 12; and i32 %0, 10", "and i32 @x, 8"},
    {"xor i32 @x, @x", "-> 0"},
    {"xor bool @p, false", "-> @p"},
    {"xor bool @p, true", "not bool @p"},
    {"xor i32 @x, -1", "not i32 @x"},
    {"not i32 @x; not i32 @y; xor i32 %0, %1", "xor i32 @x, @y"},
    {"not bool @p; not bool %0", "-> @p"},
    {"eq f32 @a, @c; not bool %0", "ne f32 @a, @c"},
    {"ne i32 @x, @y; not bool %0", "eq i32 @x, @y"},
    {"lt i32 @x, @y; not bool %0", "le i32 @y, @x"},
    {"le i32 @x, @y; not bool %0", "lt i32 @y, @x"},
    {"lt f32 @a, @c; not bool %0", "="},
    // Comparisons
    {"lt f32 @a, @a", "-> false"},
    {"le f32 @a, @a", "="},
    {"eq f32 @a, @a", "="},
    {"le i32 @x, @x", "-> true"},
    {"ne i32 @x, @x", "-> false"},
    {"lt i32 @x, 5", "le i32 @x, 4"},
    {"lt i32 5, @x", "le i32 6, @x"},
    {"lt i32 @x, -2147483648", "-> false"},
    {"lt i32 2147483647, @x", "-> false"},
    {"le i32 @x, 2147483647", "-> true"},
    {"eq bool @p, true", "-> @p"},
    {"eq bool false, @p", "not bool @p"},
    {"ne bool @p, true", "not bool @p"},
    {"sub i32 @x, @y; eq i32 %0, 0", "eq i32 @x, @y"},
    {"neg i32 @x; neg i32 @y; ne i32 %0, %1", "ne i32 @x, @y"},
    {"add i32 @x, 2147483647; eq i32 %0, -5", "eq i32 @x, 2147483644"},
    {"neg i32 @x; eq i32 %0, -2147483648", "eq i32 @x, -2147483648"},
    {"cast i32 @p; eq i32 %0, 1", "-> @p"},
    {"cast i32 @p; ne i32 %0, 1", "not bool @p"},
    {"cast i32 @p; eq i32 %0, 7", "-> false"},
    {"add i32 %q_idx, 3; le i32 %0, 10", "le i32 %q_idx, 7"},
    {"add i32 %q_idx, 3; le i32 10, %0", "le i32 7, %q_idx"},
    {"add i32 @x, 3; le i32 %0, 10", "="},
    {"sub i32 %q_idx, %kv_idx; le i32 %0, 0", "le i32 %q_idx, %kv_idx"},
    {"sub i32 %q_idx, %kv_idx; lt i32 %0, 0", "lt i32 %q_idx, %kv_idx"},
    {"sub i32 %q_idx, %kv_idx; le i32 0, %0", "le i32 %kv_idx, %q_idx"},
    {"sub i32 %q_idx, %kv_idx; lt i32 0, %0", "lt i32 %kv_idx, %q_idx"},
    {"sub i32 @x, @y; le i32 %0, 0", "="},
    {"neg i32 %q_idx; neg i32 %kv_idx; le i32 %0, %1", "le i32 %kv_idx, %q_idx"},
    {"neg i32 %q_idx; neg i32 %kv_idx; lt i32 %0, %1", "lt i32 %kv_idx, %q_idx"},
    {"neg i32 @x; neg i32 @y; le i32 %0, %1", "="},
    {"lt i32 %q_idx, #Q_LEN", "-> true"},
    {"lt i32 %q_idx, 0", "-> false"},
    // Selects
    {"select i32 @p, @x, @x", "-> @x"},
    {"not bool @p; select f32 %0, @a, @c", "select f32 @p, @c, @a"},
    {"select i32 @p, @x, 3; select i32 @p, %0, @y", "select i32 @p, @x, @y"},
    {"select i32 @p, 3, @y; select i32 @p, @x, %0", "select i32 @p, @x, @y"},
    {"select bool @p, @r, false", "and bool @p, @r"},
    {"select bool @p, true, @r", "or bool @p, @r"},
    {"select bool @p, false, @r", "not bool @p; and bool %0, @r"},
    {"select bool @p, @r, true", "not bool @p; or bool %0, @r"},
    {"select i32 @p, 1, 0", "cast i32 @p"},
    {"le i32 @x, @y; select i32 %0, @x, @y", "min i32 @x, @y"},
    {"lt i32 @x, @y; select i32 %0, @y, @x", "max i32 @x, @y"},
    {"lt f32 @a, @c; select f32 %0, @a, @c", "="},
    {"lt i32 @x, 7; select i32 %0, @x, 7", "min i32 @x, 7"},
    {"lt i32 @x, 7; select i32 %0, 7, @x", "max i32 @x, 7"},
    {"lt i32 7, @x; select i32 %0, @x, 7", "max i32 @x, 7"},
    {"lt i32 7, @x; select i32 %0, 7, @x", "min i32 @x, 7"},
    {"le i32 @x, 7; select i32 %0, @x, 9", "="},
    // Casts
    {"cast i64 @x; cast i32 %0", "-> @x"},
    {"cast i64 @x; cast f32 %0", "cast f32 @x"},
    {"cast i64 @x; cast bool %0", "cast bool @x"},
    {"cast i32 @p; cast i64 %0", "cast i64 @p"},
    {"cast f32 @p; cast bool %0", "-> @p"},
    {"load i64 L; cast i32 %0; cast i64 %1", "="},
    {"cast f32 %q_idx; cast i32 %0", "-> %q_idx"},
    {"cast f32 @x; cast i32 %0", "="},
    {"cast i64 @x; cast i64 @y; add i64 %0, %1; cast i32 %2", "add i32 @x, @y"},
    {"cast i64 @x; cast i64 @y; add i64 %0, %1", "="},
    {"cast i64 %q_idx; cast i64 %kv_idx; sub i64 %0, %1", "sub i32 %q_idx, %kv_idx; cast i64 %0"},
    {"cast i64 @x; cast i64 @y; min i64 %0, %1", "min i32 @x, @y; cast i64 %0"},
    {"cast i64 @x; floor_div i64 %0, 3L", "floor_div i32 @x, 3; cast i64 %0"},
    {"cast i64 @x; mod i64 %0, -3L", "mod i32 @x, -3; cast i64 %0"},
    {"cast i64 @x; cast i64 @y; floor_div i64 %0, %1", "="},
    {"cast i64 @x; cast i64 @y; lt i64 %0, %1", "lt i32 @x, @y"},
    {"cast i64 @x; eq i64 %0, 5000000000L", "-> false"},
    {"cast f32 @x; isnan f32 %0", "-> false"},
    // i64 that fits into 32 bits
    {"cast i64 @x; cast i64 @y; or i64 %0, %1", "or i32 @x, @y; cast i64 %0"},
    {"cast i64 @x; not i64 %0", "not i32 @x; cast i64 %0"},
    {"cast i64 @x; neg i64 %0", "="},
    {"cast i64 @x; abs i64 %0", "="},
    {"cast i64 %q_idx; neg i64 %0", "neg i32 %q_idx; cast i64 %0"},
    {"cast i64 %q_idx; mul i64 %0, 127L", "mul i32 %q_idx, 127; cast i64 %0"},
    {"cast i64 %q_idx; mul i64 %0, 129L", "="},
    {"cast i64 %q_idx; add i64 %0, 2147483647L", "="},
    {"cast i64 %q_idx; cast i64 %kv_idx; add i64 %0, 2147483647L; lt i64 %2, %1", "-> false"},
    {"load i64 L; and i64 %0, 255L", "load i64 L; cast i32 %0; and i32 %1, 255; cast i64 %2"},
    {"load i64 L; and i64 %0, 4294967295L", "="},
    {"load i64 L; max i64 %0, -5L; min i64 %1, 5L; cast f32 %2",
     "load i64 L; max i64 %0, -5L; min i64 %1, 5L; cast i32 %2; cast f32 %3"},
    {"load i64 L; mod i64 %0, 9L; cast i64 @x; le i64 %1, %2",
     "load i64 L; mod i64 %0, 9L; cast i32 %1; le i32 %2, @x"},
    {"cast i64 @x; select i64 @p, %0, 7L", "select i32 @p, @x, 7; cast i64 %0"},
    {"cast i64 @x; select i64 @p, %0, 1000000000000L", "="},
    {"cast i64 %q_idx; shl i64 %0, 4L", "shl i32 %q_idx, 4; cast i64 %0"},
    {"cast i64 %q_idx; shl i64 %0, 68L", "shl i32 %q_idx, 4; cast i64 %0"},
    {"cast i64 %q_idx; shl i64 %0, 10L", "="},
    {"cast i64 %q_idx; cast i64 %kv_idx; shl i64 %0, %1", "="},
    {"cast i64 @x; shr i64 %0, 7L", "shr i32 @x, 7; cast i64 %0"},
    {"cast i64 @x; shr i64 %0, 40L", "shr i32 @x, 31; cast i64 %0"},
    {"cast i64 @x; shr i64 %0, -1L", "shr i32 @x, 31; cast i64 %0"},
    {"cast i64 @x; cast i64 %q_idx; min i64 %1, 63L; shr i64 %0, %2",
     "min i32 %q_idx, 31; shr i32 @x, %0; cast i64 %1"},
    {"cast i64 @x; cast i64 @y; shr i64 %0, %1", "="},
    {"load i64 L; shr i64 %0, 40L; cast f32 %1", "load i64 L; shr i64 %0, 40L; cast i32 %1; cast f32 %2"},
    {"cast i64 %q_idx; sum i64 %i0:5, %0", "sum i32 %i0:5, %q_idx; cast i64 %0"},
    {"cast i64 @x; sum i64 %i0:5, %0", "="},
    {"min f32 @a, 5.0; max f32 %0, 1.0; cast i64 %1", "min f32 @a, 5.0; max f32 %0, 1.0; cast i32 %1; cast i64 %2"},
    {"cast i64 @a", "="},
    {"cast i64 %q_idx; cast i64 #H; floor_div i64 %0, %1; mul i64 %2, %1",
     "floor_div i32 %q_idx, #H; mul i32 %0, #H; cast i64 %1"},
    {"cast i64 %q_idx; cast i64 @x; floor_div i64 %0, %1; mul i64 %2, %1",
     "cast i64 @x; floor_div i32 %q_idx, @x; cast i64 %1; mul i64 %2, %0"},
    {"cast i64 %q_idx; cast i64 @x; mod i64 %0, %1; sub i64 %0, %2",
     "cast i64 %q_idx; mod i32 %q_idx, @x; cast i64 %1; sub i64 %0, %2"},
    // What NaN forbids to decide
    {"min f32 @a, 5.0; max f32 %0, 1.0; cast i32 %1; le i32 %2, 0", "="},
    {"min f32 @a, 5.0; max f32 %0, 1.0; lt f32 %1, 0.5", "-> false"},
    {"min f32 @a, 5.0; max f32 %0, 1.0; le f32 0.5, %1", "="},
    {"min f32 @a, 1.0; max f32 %0, 1.0; ne f32 %1, 1.0", "="},
};

/// IR text of a module whose roots are made from the last value.
inline std::string moduleText(const std::string& operations, ir::Type type) {
  std::string text = kScalars, last;
  int count = 0;
  std::istringstream parts(operations);
  for (std::string part; std::getline(parts, part, ';'); ++count) {
    size_t start = part.find_first_not_of(' ');
    if (part.compare(start, 3, "-> ") == 0) {
      last = part.substr(start + 3);
      break;
    }
    last = "%" + std::to_string(count);
    text += last + " = " + part.substr(start) + "\n";
  }
  if (type == ir::Type::Bool) return text + "output mask(b, h, q_idx, kv_idx) -> " + last + "\n";
  if (type == ir::Type::F32) return text + "output score(score, b, h, q_idx, kv_idx) -> " + last + "\n";
  // Integers become visible through a comparison that no rule touches.
  const char* load =
      type == ir::Type::I64 ? "%m = load i64 M\n%t = lt i64 " : "%m = load i64 M\n%n = cast i32 %m\n%t = lt i32 ";
  return text + load + last + (type == ir::Type::I64 ? ", %m" : ", %n") + "\noutput mask(b, h, q_idx, kv_idx) -> %t\n";
}

inline ir::Type typeOf(const std::string& operations) {
  auto module = take(ir::read(kScalars + std::string("\n")));
  std::istringstream words(
      operations.substr(operations.rfind(';') == std::string::npos ? 0 : operations.rfind(';') + 1));
  std::string op, type;
  words >> op >> type;
  if (op == "le" || op == "lt" || op == "eq" || op == "ne" || op == "isnan") return ir::Type::Bool;
  return type == "bool"  ? ir::Type::Bool
         : type == "f32" ? ir::Type::F32
         : type == "i64" ? ir::Type::I64
                         : ir::Type::I32;
}

} // namespace attnc::test
