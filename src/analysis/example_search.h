// Counter-examples: a launch and an element for which an index leaves its tensor.
//
// In: a module and indices that are not proven. Out: an example as text, with small extents preferred. Runs the
// interpreter over example problems. Its budget counts operations, not time, so the same mod gets the same answer
// everywhere. Not: proofs; finding no example proves nothing.
#pragma once

#include "ir/bindings.h"
#include "ir/loops.h"
#include "ir/pins.h"

#include <string>
#include <vector>

namespace attnc::analysis {

class ExampleSearch {
public:
  /// Both arguments must outlive this object.
  ExampleSearch(const ir::Module& module, const ir::Pins& pins);

  /// Returns why `index` may lie outside of `extent`: "Q_LEN = 9, q_idx = 8 gives index 8, extent KV_LEN = 8"; or what
  /// the index depends on; or that nothing was found. Spends at most `allowed` operations, apart from a few that are
  /// not counted.
  std::string run(ir::Value index, const ir::Extent& extent, uint64_t allowed);

  /// Operations evaluated or visited so far.
  uint64_t work() const { return spent; }

private:
  struct Sample;

  void meetConditions();
  bool collect(ir::Value index, uint64_t allowed);
  ir::Module needsAlone(bool inRound, bool last);
  std::string tryProblem(const Sample& sample, size_t problem, uint64_t allowed);
  std::string describe(const Sample& sample, llvm::ArrayRef<int64_t> dims, llvm::ArrayRef<int64_t> coordinates,
                       int64_t at) const;
  int64_t shortest(size_t dim, int64_t position, int64_t extent) const;

  const ir::Module& module;
  const ir::Pins& pins;
  std::vector<ir::Bindings> problems; // extents of the example problems; they meet the conditions of the launch
  std::vector<bool> isFixed;          // by dim: whether pins or conditions fix it
  std::vector<ir::LoopSet> open;      // by Value::id: the sums around it
  std::vector<uint32_t> dataOf;       // by Value::id: the first load or scalar that the value needs, if any
  std::vector<ir::ParamSet> params;   // by Value::id: parameters that the value depends on
  std::vector<uint32_t> seen;         // by Value::id: the last search that needed the value
  std::vector<ir::Value> now;         // by Value::id: its copy in the module of the index
  std::vector<uint32_t> needed;
  uint32_t searches = 0;
  uint64_t spent = 0;
  bool triedAny = false;
};

} // namespace attnc::analysis
