// Compares the grids found in a mod, and what box kernels derive from them, with the mod itself, pair by pair.
#pragma once

#include "analysis/grid_box.h"
#include "dsl/frontend.h"
#include "helpers/take.h"
#include "ir/bind.h"
#include "ir/interpreter.h"
#include "ir/printer.h"
#include "passes/grids/grid_kernel.h"

#include <catch2/catch.hpp>
#include <llvm/ADT/STLExtras.h>

#include <map>
#include <string>
#include <vector>

namespace attnc::test {

using Scalars = std::map<std::string, int64_t>;

inline ir::Module traced(const std::string& text) { return take(dsl::trace(text, {.name = "found.py"})); }

inline std::optional<passes::GridKernel> kernelOf(const ir::Module& module) {
  return take(passes::gridKernel(module, module));
}

/// Binds captured tensors to zeros [2, ...].
inline ir::Bindings boundTo(const ir::Module& module, const Scalars& scalars, const ProblemShape& problem) {
  static const std::vector<float> kZeros(1 << 12);
  Captures captures;
  for (const ir::ScalarCapture& scalar : module.scalars) captures.set(scalar.name, scalars.at(scalar.name));
  for (const ir::TensorCapture& tensor : module.tensors)
    captures.set(tensor.name, TensorView::contiguous(const_cast<float*>(kZeros.data()), DType::F32,
                                                     {2, tensor.shape[1].value, tensor.shape[2].value}));
  return take(ir::bind(module, captures, problem));
}

/// Returns "[32, @w] before 77".
inline std::string textOf(const ir::Grid& grid, const ir::Module& module) {
  ir::Module alone = module.declarations();
  alone.grids = {grid};
  const std::string text = ir::print(alone);
  const size_t at = text.find("grid [") + 5;
  return text.substr(at, text.find('\n', at) - at);
}

inline int64_t tokensOf(const ir::Grid& grid, const ir::Bindings& bindings) {
  int64_t product = 1;
  for (int64_t extent : bindings.extentsOf(grid)) product *= extent;
  return product;
}

/// The box that a kernel tests, for two tokens on their grids.
class BoxOfKeys {
public:
  BoxOfKeys(const passes::GridKernel& kernel, const ir::Bindings& bindings) : module(kernel.module) {
    const analysis::GridBox box = take(analysis::gridBox(kernel.module));
    const auto evaluator = [&](std::optional<ir::Value> value) {
      return value ? std::optional(ir::Evaluator(module, bindings, *value)) : std::nullopt;
    };
    for (unsigned axis = 0; axis < box.axes.size(); ++axis) {
      const ir::Value key = module.make(ir::Op::Coord, ir::Type::I32, {module.param(ir::ParamKind::KvIdx)},
                                        ir::GridAxis{box.keys, axis}.attr());
      const analysis::GridBox::Axis& of = box.axes[axis];
      axes.push_back({evaluator(of.begin), evaluator(of.end), evaluator(of.step), evaluator(of.phase), evaluator(key)});
    }
    rest = evaluator(box.rest);
  }

  bool holds(int64_t h, int64_t q, int64_t kv) const {
    const auto at = [&](const ir::Evaluator& of) { return of.evaluate(0, 0, h, q, kv).integer; };
    return (!rest || at(*rest)) && llvm::all_of(axes, [&](const Axis& axis) {
             if (axis.begin && (at(*axis.key) < at(*axis.begin) || at(*axis.key) >= at(*axis.end))) return false;
             return !axis.step || at(*axis.key) % at(*axis.step) == at(*axis.phase);
           });
  }

private:
  struct Axis {
    std::optional<ir::Evaluator> begin, end, step, phase, key;
  };
  ir::Module module;
  std::vector<Axis> axes;
  std::optional<ir::Evaluator> rest;
};

/// Fails if the mod disagrees with the kernel's module, with the box that its kernel tests, or with what it derives
/// about tokens outside the grids. Returns how many pairs live.
inline int checkMeaning(const ir::Module& mod, const passes::GridKernel& kernel, int64_t qLen, int64_t kvLen,
                        const Scalars& scalars = {}) {
  INFO(ir::print(kernel.module));
  const ProblemShape problem{.qHeads = 2, .kvHeads = 1, .qLen = qLen, .kvLen = kvLen};
  const ir::Bindings ofMod = boundTo(mod, scalars, problem), bindings = boundTo(kernel.module, scalars, problem);
  const auto lieOn = [&](const ir::Grid& grid, int64_t length) {
    const int64_t before = bindings.of(grid.before), end = before + tokensOf(grid, bindings);
    REQUIRE((kernel.beside && !grid.hasRest() ? end <= length : end == length));
    REQUIRE((kernel.beside || before == 0));
    std::vector<bool> on(static_cast<size_t>(length));
    for (int64_t i = before; i < end; ++i) on[size_t(i)] = true;
    return on;
  };
  const std::vector<bool> queries = lieOn(kernel.ofQueries, qLen), keys = lieOn(kernel.ofKeys, kvLen);
  const BoxOfKeys box(kernel, bindings);
  const ir::Interpreter want(mod, ofMod), got(kernel.module, bindings);
  int wrong = 0, outsideBox = 0, besideWrong = 0, live = 0;
  for (int64_t h = 0; h < problem.qHeads; ++h)
    for (int64_t q = 0; q < qLen; ++q)
      for (int64_t kv = 0; kv < kvLen; ++kv) {
        const bool lives = want.mask(0, h, q, kv), isQueryOn = queries[size_t(q)], isKeyOn = keys[size_t(kv)];
        live += lives;
        wrong += lives != got.mask(0, h, q, kv);
        if (mod.output(ir::kScore)) wrong += want.score(0.5f, 0, h, q, kv) != got.score(0.5f, 0, h, q, kv);
        if (isQueryOn && isKeyOn) {
          outsideBox += lives != box.holds(h, q, kv);
          continue;
        }
        const analysis::BesideGrid& told = *kernel.beside;
        const analysis::Beside of = isQueryOn ? told.key : isKeyOn ? told.query : told.both;
        besideWrong += of != analysis::Beside::Asks && lives != (of == analysis::Beside::All);
      }
  CHECK(wrong == 0);
  CHECK(outsideBox == 0);
  CHECK(besideWrong == 0);
  return live;
}

} // namespace attnc::test
