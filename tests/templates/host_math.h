// Hardware functions of ptx/math.cuh that the host has not. Include it before the templates.
#pragma once

#include <cmath>

#define ex2 device_ex2
#define lg2 device_lg2
#define rcp device_rcp
#include "ptx/math.cuh"
#undef ex2
#undef lg2
#undef rcp
namespace attnc::ptx {
inline float ex2(float x) { return std::exp2(x); }
inline float lg2(float x) { return std::log2(x); }
inline float rcp(float x) { return 1 / x; }
} // namespace attnc::ptx
