// Families of kernels: one per set of templates, each for certain GPUs and layouts.
#pragma once

#include "attnc/features.h"

#include <array>
#include <string_view>
#include <vector>

namespace attnc {

/// Families of kernels.
enum class Family {
  Auto,  ///< The catalogue chooses.
  Naive, ///< Short and obviously right: fp32, for any GPU and layout. Slow.
  Sm80,  ///< Tensor cores of all GPUs since sm_80.
  Sm90,  ///< Tensor cores and copy engines of sm_90a.
  Grid,  ///< Boxes of tokens on the mod's grids.
};

/// All families, including Auto.
inline constexpr std::array kAllFamilies{Family::Auto, Family::Naive, Family::Sm80, Family::Sm90, Family::Grid};

/// Returns the spelling used on the command line and in messages: "auto", "naive", "sm80", "sm90", "grid".
constexpr std::string_view familyName(Family family) {
  switch (family) {
  case Family::Auto: return "auto";
  case Family::Naive: return "naive";
  case Family::Sm80: return "sm80";
  case Family::Sm90: return "sm90";
  case Family::Grid: return "grid";
  }
  return "?";
}

/// A family of kernels for one pass. Strings are static.
struct FamilyInfo {
  Family family = Family::Naive; ///< The family.
  std::string_view arch;         ///< An arch that it runs on, such as "sm_80".
  std::string_view layouts;      ///< Layouts of tensors that it takes, as text for people.
  bool takesAnyLayout = false;   ///< Whether it takes every layout that Operands and BackwardOperands allow.
  Features takes;                ///< Features that its kernels take.
};

/// Returns the families of forward kernels, without Auto. If two serve the same operands, the faster one comes first. A
/// family listed twice has other kernels for the arch of its second entry. Any thread may call it.
std::vector<FamilyInfo> forwardFamilies();

/// Returns the families of backward kernels, as forwardFamilies(). The passes have their own families: not every family
/// has both.
std::vector<FamilyInfo> backwardFamilies();

/// Returns the families of decode kernels, as forwardFamilies().
std::vector<FamilyInfo> decodeFamilies();

} // namespace attnc
