// Derivatives by central differences in fp64, to compare gradients with.
#pragma once

#include "helpers/exact_interpreter.h"
#include "ir/printer.h"
#include "ir/verifier.h"
#include "ir/walk.h"
#include "passes/autodiff.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <map>
#include <random>
#include <string>

namespace attnc::test {

using Point = ExactInterpreter::Point;

inline passes::Gradients gradientsOf(const ir::Module& module) {
  auto result = passes::differentiate(module, passes::floatCaptures(module));
  if (!result) FAIL(result.error().message);
  if (auto finding = ir::verify(result->module)) FAIL(*finding << "\n" << ir::print(result->module));
  return std::move(*result);
}

/// Returns the derivative of a function at 0 by central differences if they converge; nullopt at kinks, steps and
/// poles.
inline std::optional<double> central(const std::function<double(double)>& function) {
  const auto slope = [&](double step) { return (function(step) - function(-step)) / (2 * step); };
  const double coarse = slope(0x1p-12), fine = slope(0x1p-13), here = function(0);
  const double right = (function(0x1p-13) - here) * 0x1p13, left = (here - function(-0x1p-13)) * 0x1p13;
  const double scale = std::max({std::fabs(fine), std::fabs(here) * 1e-6, 1e-6});
  const bool isStair = std::fabs(fine) > 1e9; // its steps are finer than those of the differences
  const bool settles = !isStair && std::fabs(here) < 1e5 && std::fabs(coarse - fine) <= 1e-5 * scale &&
                       std::fabs(right - left) <= 2e-2 * scale;
  return settles ? std::optional((4 * fine - coarse) / 3) : std::nullopt;
}

/// Counts of what was compared, so that a test cannot pass by comparing nothing.
struct Judged {
  int compared = 0, left = 0;
  void compare(double got, std::optional<double> want) {
    if (!want) {
      ++left;
      return;
    }
    ++compared;
    INFO("got " << got << ", by differences " << *want);
    const bool isRight = std::fabs(got - *want) <= 1e-5 * std::max(1.0, std::fabs(*want));
    if (!isRight) FAIL();
  }
};

/// A module, its gradients, and captures whose elements can be varied.
class Tried {
public:
  /// Float tensors of `module` must be f32.
  Tried(const ir::Module& module, const ir::Bindings& given)
      : module(module), gradients(gradientsOf(module)), bindings(given), forGradients(reordered()) {}
  Tried(const Tried&) = delete; // interpreters point into it

  double score(const Point& at) const {
    const auto root = module.output(ir::kScore);
    return root ? exact.value(*root, at) : at.score;
  }
  /// Returns what depends on captures: the score, plus the sink of its row.
  double result(const Point& at) const {
    const auto sink = module.output(ir::kSink);
    return score(at) + (sink ? exact.value(*sink, at) : 0);
  }
  double gradient(const std::string& output, Point at) const {
    at.grad = 1;
    return exactGradients.value(*gradients.module.output(output), at);
  }

  /// Whether all intermediate numbers are small enough that fp64 resolves the steps of the differences.
  bool isTame(const Point& at) const {
    const auto root = module.output(ir::kScore);
    if (!root) return true;
    const std::vector<bool> needed = ir::neededBy(module, *root);
    for (uint32_t id = 0; id <= root->id; ++id)
      if (needed[id] && module[{id}].type == ir::Type::F32 && !(std::fabs(exact.value({id}, at)) < 1e5)) return false;
    return true;
  }

  void compareScore(const Point& at, Judged& judged) const {
    INFO("score " << at.score << " at " << at.coordinates[2] << ", " << at.coordinates[3]);
    judged.compare(gradient("d_score", at), central([&](double step) {
                     Point moved = at;
                     moved.score += step;
                     return score(moved);
                   }));
  }

  /// Compares each capture at one element that the mod reads here, and at one that it does not read.
  void compareCaptures(const Point& at, Judged& judged) {
    for (const std::string& name : passes::floatCaptures(module)) {
      INFO(name << " where score is " << at.score);
      compareScalar(name, at, judged);
      compareTensor(name, at, judged);
    }
  }

  const ir::Module& module;
  passes::Gradients gradients;

private:
  /// The module with gradients has its captures in another order.
  ir::Bindings reordered() const {
    ir::Bindings result = bindings;
    const auto place = [&](const auto& from, const auto& values, auto& to, const auto& names, auto nameOf) {
      for (size_t i = 0; i < names.size(); ++i)
        for (size_t j = 0; j < from.size(); ++j)
          if (nameOf(from[j]) == nameOf(names[i])) to[i] = values[j];
    };
    const auto own = [](const auto& capture) { return capture.name; };
    place(module.tensors, bindings.tensors, result.tensors, gradients.module.tensors, own);
    place(module.scalars, bindings.scalars, result.scalars, gradients.module.scalars, own);
    place(module.dims, bindings.dims, result.dims, gradients.module.dims, [](const std::string& name) { return name; });
    return result;
  }

  void compareScalar(const std::string& name, const Point& at, Judged& judged) {
    for (size_t i = 0; i < module.scalars.size(); ++i) {
      if (module.scalars[i].name != name) continue;
      double got = 0;
      for (const passes::CaptureGradient& place : gradients.captures)
        if (place.capture == name) got += gradient(place.output, at);
      const double before = bindings.scalars[i].real;
      judged.compare(got, central([&](double step) {
                       bindings.scalars[i].real = float(before + step);
                       const double moved = result(at);
                       bindings.scalars[i].real = before;
                       return moved;
                     }));
    }
  }

  void compareTensor(const std::string& name, const Point& at, Judged& judged) {
    for (size_t i = 0; i < module.tensors.size(); ++i) {
      if (module.tensors[i].name != name) continue;
      const TensorView& view = bindings.tensors[i];
      std::map<int64_t, double> got; // by offset
      if (view.elements() == 0) continue;
      for (const passes::CaptureGradient& place : gradients.captures)
        if (place.capture == name)
          for (int64_t round = 0; round < place.rounds; ++round) {
            Point here = at;
            here.round = round;
            got[offset(view, place, here)] += gradient(place.output, here);
          }
      got.try_emplace(0, 0);
      int left = 8;
      for (auto [element, sum] : got) {
        if (left-- == 0) break;
        float* moved = const_cast<float*>(static_cast<const float*>(view.data)) + element;
        const float before = *moved;
        INFO("element " << element << " of " << name << ", now " << before);
        judged.compare(sum, central([&](double step) {
                         *moved = float(before + step);
                         const double now = result(at);
                         *moved = before;
                         return now;
                       }));
      }
    }
  }

  int64_t offset(const TensorView& view, const passes::CaptureGradient& place, const Point& at) const {
    int64_t result = 0;
    for (int axis = 0; axis < view.rank; ++axis) {
      const int64_t index = int64_t(gradient(place.indices[size_t(axis)], at));
      result += std::clamp<int64_t>(index, 0, view.shape[axis] - 1) * view.stride[axis];
    }
    return result;
  }

  ir::Bindings bindings, forGradients;
  const ExactInterpreter exact{module, bindings}, exactGradients{gradients.module, forGradients};
};

/// A module whose float tensors are all stored as f32, so that elements can be varied in small steps. Elements that are
/// not finite, or too large for small steps in f32, are replaced by small ones.
struct Widened {
  ir::Module module;
  ir::Bindings bindings;
  std::deque<std::vector<float>> storage;

  Widened(const ir::Module& given, const ir::Bindings& bound) : module(given), bindings(bound) {
    for (size_t i = 0; i < module.tensors.size(); ++i) {
      if (ir::loadedType(module.tensors[i].dtype) != ir::Type::F32) continue;
      TensorView& view = bindings.tensors[i];
      TensorView wide = view;
      wide.dtype = DType::F32;
      for (int64_t axis = view.rank, step = 1; axis-- > 0; step *= view.shape[size_t(axis)])
        wide.stride[size_t(axis)] = step;
      storage.emplace_back(size_t(std::max<int64_t>(1, view.elements())));
      for (int64_t element = 0; element < view.elements(); ++element) {
        int64_t rest = element, offset = 0;
        for (int axis = view.rank; axis-- > 0; rest /= view.shape[axis])
          offset += rest % view.shape[axis] * view.stride[axis];
        const double value = readElement(view.data, view.dtype, offset).real;
        const bool isUsable = std::isfinite(value) && std::fabs(value) < 8;
        // Multiples of 2^-8 are exact in f32 after steps of 2^-13, up to 2^10.
        storage.back()[size_t(element)] = isUsable ? float(std::nearbyint(value * 256) / 256) : float(element % 5) / 4;
      }
      wide.data = storage.back().data();
      module.tensors[i].dtype = DType::F32;
      view = wide;
    }
    for (size_t i = 0; i < module.scalars.size(); ++i)
      if (module.scalars[i].type == ir::Type::F32)
        bindings.scalars[i].real = std::nearbyint(bindings.scalars[i].real * 256) / 256;
  }
};

inline double sampleScore(int i) { return (double(uint32_t(i) * 2654435761u % 4001) - 2000) / 512; }

inline const ProblemShape kProblem{.batch = 2, .qHeads = 4, .kvHeads = 2, .qLen = 13, .kvLen = 17};

inline Point pointOf(int i, const ProblemShape& problem) {
  std::mt19937_64 random{uint64_t(i)};
  return {sampleScore(i),
          {int64_t(random() % uint64_t(problem.batch)), int64_t(random() % uint64_t(problem.qHeads)),
           int64_t(random() % uint64_t(problem.qLen)), int64_t(random() % uint64_t(problem.kvLen))}};
}

} // namespace attnc::test
