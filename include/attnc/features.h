// Features of launches: what one asks for, and what a family of kernels takes.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>

namespace attnc {

/// What a launch may have beyond q, k, v and out (features.def).
enum class Feature : uint8_t {
#define ATTNC_FEATURE(name, text) name,
#include "attnc/features.def"
};

/// Returns what completes "takes no ...", such as "pages".
constexpr std::string_view featureText(Feature feature) {
  constexpr std::string_view kTexts[] = {
#define ATTNC_FEATURE(name, text) text,
#include "attnc/features.def"
  };
  return kTexts[int(feature)];
}

/// A set of features.
class Features {
public:
  constexpr Features() = default;
  constexpr Features(std::initializer_list<Feature> features) {
    for (Feature feature : features) set(feature);
  }
  /// Adds a feature, or removes it if `has` is false.
  constexpr void set(Feature feature, bool has = true) { bits = has ? bits | bit(feature) : bits & ~bit(feature); }
  /// Whether the set has a feature.
  constexpr bool has(Feature feature) const { return bits & bit(feature); }
  constexpr bool empty() const { return bits == 0; }
  /// Returns the features of this set that `other` lacks.
  constexpr Features without(Features other) const { return Features(bits & ~other.bits); }
  constexpr Features operator|(Features other) const { return Features(bits | other.bits); }
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

private:
  constexpr explicit Features(uint32_t bits) : bits(bits) {}
  static constexpr uint32_t bit(Feature feature) { return uint32_t(1) << int(feature); }
  uint32_t bits = 0;
};

} // namespace attnc
