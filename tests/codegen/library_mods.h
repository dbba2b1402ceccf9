// The library of mods, dsl/mods/*.py, as the compiler sees it, and captures to run each with.
#pragma once

#include "attnc/problem.h"
#include "ir/bindings.h"
#include "ir/ir.h"

#include <memory>
#include <string>
#include <vector>

namespace attnc::test {

struct LibraryMod {
  std::string name; ///< file name without ".py"
  ir::Module module;
  ProblemShape problem;
  ir::Bindings bindings;                                   ///< views of `storage`
  std::vector<std::shared_ptr<std::vector<char>>> storage; ///< random data; copies of this object share it
};

/// All library mods, after the front end and the passes, by name.
std::vector<LibraryMod> libraryMods(const ProblemShape& problem = {
                                        .batch = 2, .qHeads = 6, .kvHeads = 2, .qLen = 300, .kvLen = 300});

} // namespace attnc::test
