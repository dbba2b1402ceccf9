// Features of launches: what one asks for, and what a family of kernels takes.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>

namespace attnc {

/// What a launch may have beyond q, k, v and out (features.def).
enum class Feature : uint8_t {
#define ATTNC_FEATURE(name, option, text) name,
#include "attnc/features.def"
};

/// Returns what completes "takes no ...", such as "pages".
constexpr std::string_view featureText(Feature feature) {
  constexpr std::string_view kTexts[] = {
#define ATTNC_FEATURE(name, option, text) text,
#include "attnc/features.def"
  };
  return kTexts[int(feature)];
}

/// Returns the member of KernelOptions that asks for a feature, such as "pageSize"; "features" is its set.
constexpr std::string_view featureOption(Feature feature) {
  constexpr std::string_view kOptions[] = {
#define ATTNC_FEATURE(name, option, text) #option,
#include "attnc/features.def"
  };
  return kOptions[int(feature)];
}

/// A set of features.
class Features {
public:
  constexpr Features() = default;
  constexpr Features(std::initializer_list<Feature> features) {
    for (Feature feature : features) set(feature);
  }
  /// One feature, or none if `has` is false.
  constexpr Features(Feature feature, bool has) { set(feature, has); }
  /// Adds a feature, or removes it if `has` is false.
  constexpr void set(Feature feature, bool has = true) { bits = has ? bits | bit(feature) : bits & ~bit(feature); }
  /// Returns whether the set has a feature.
  constexpr bool has(Feature feature) const { return bits & bit(feature); }
  /// Returns whether the set has no feature.
  constexpr bool empty() const { return bits == 0; }
  /// Returns the features of this set that `other` lacks.
  constexpr Features without(Features other) const { return Features(bits & ~other.bits); }
  constexpr Features operator|(Features other) const { return Features(bits | other.bits); }
  constexpr Features operator&(Features other) const { return Features(bits & other.bits); }
  constexpr bool operator==(const Features&) const = default;

  /// Calls visit(feature) for each feature, in the order of features.def.
  template <class Visit> constexpr void forEach(Visit visit) const {
    for (int i = 0; i < 32; ++i)
      if (bits >> i & 1) visit(Feature(i));
  }
  /// Returns the first feature. Precondition: the set is not empty.
  constexpr Feature first() const {
    int i = 0;
    while (!(bits >> i & 1)) ++i;
    return Feature(i);
  }

  /// Converts from and to a mask: bit i is the i-th feature of features.def.
  constexpr explicit Features(uint32_t bits) : bits(bits) {}
  constexpr explicit operator uint32_t() const { return bits; }

private:
  static constexpr uint32_t bit(Feature feature) { return uint32_t(1) << int(feature); }
  uint32_t bits = 0;
};

/// The features that KernelOptions::features holds. The other ones follow from other options.
inline constexpr Features kOptionFeatures = [] {
  Features features;
#define ATTNC_FEATURE(name, option, text) features.set(Feature::name, featureOption(Feature::name) == "features");
#include "attnc/features.def"
  return features;
}();

} // namespace attnc
