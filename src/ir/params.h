// The parameters of outputs, and the levels at which values become known.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>

namespace attnc::ir {

enum class Type : uint8_t { Bool, I32, I64, F32 };
constexpr bool isInt(Type type) { return type == Type::I32 || type == Type::I64; }
const char* name(Type type);

/// Where a value becomes known. Row and Column are both outside Element and inside Head.
enum class Level : uint8_t { Launch, Head, Row, Column, Element };
const char* name(Level level);
/// Returns the outermost level at which values of both levels are known.
Level join(Level a, Level b);

/// A named extent. The first five of every module are B, H, HKV, Q_LEN, KV_LEN (BuiltinDim), then free names.
enum class BuiltinDim : uint8_t { B, H, HKV, QLen, KvLen };
constexpr unsigned kBuiltinDims = 5;

/// The parameters, from params.def.
enum class ParamKind : uint8_t {
#define PARAM(Name, ...) Name,
#include "ir/params.def"
};
/// All parameters, in order.
constexpr ParamKind kParams[] = {
#define PARAM(Name, ...) ParamKind::Name,
#include "ir/params.def"
};
constexpr unsigned kParamCount = sizeof(kParams) / sizeof(kParams[0]);

const char* name(ParamKind param);
Type typeOf(ParamKind param);
/// Returns the level at which a parameter is known.
Level levelOf(ParamKind param);
/// Returns the extent along which a parameter counts positions; nullopt if it is not a position.
std::optional<BuiltinDim> extentOf(ParamKind param);

/// A set of parameters.
class ParamSet {
public:
  constexpr ParamSet(std::initializer_list<ParamKind> params = {}) {
    for (ParamKind param : params) bits |= bitOf(param);
  }
  constexpr bool contains(ParamKind param) const { return bits & bitOf(param); }
  constexpr bool containsAll(ParamSet other) const { return (other.bits & ~bits) == 0; }
  constexpr ParamSet& operator|=(ParamSet other) {
    bits |= other.bits;
    return *this;
  }
  friend constexpr bool operator==(ParamSet a, ParamSet b) { return a.bits == b.bits; }

private:
  static constexpr uint32_t bitOf(ParamKind param) { return uint32_t(1) << unsigned(param); }
  uint32_t bits = 0;
};

} // namespace attnc::ir
