// Families of kernels: the templates that there are, and what each is for.
#pragma once

#include <array>
#include <string_view>
#include <vector>

namespace attnc {

/// Auto: the catalogue chooses.
enum class Family { Auto, Naive, Sm80, Sm90, Grid };

inline constexpr std::array kAllFamilies{Family::Auto, Family::Naive, Family::Sm80, Family::Sm90, Family::Grid};

/// The spelling used on the command line and in messages: "auto", "naive", "sm80", "sm90", "grid".
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

struct FamilyInfo {
  Family family = Family::Naive;
  std::string_view arch;       ///< one that it runs on: "sm_80"
  std::string_view layouts;    ///< of tensors that it takes, for people
  bool takesAnyLayout = false; ///< all that Operands and BackwardOperands allow
};

/// All but Auto. Of two that serve the same operands, the faster one comes first. A family that is listed twice has
/// other kernels for the architecture of its second entry. Any thread may call it.
std::vector<FamilyInfo> forwardFamilies();

/// The same of backward kernels. A pass has its families to itself: not every name has kernels of both.
std::vector<FamilyInfo> backwardFamilies();

/// The same of decode kernels.
std::vector<FamilyInfo> decodeFamilies();

} // namespace attnc
