// Positions that belong together: documents, and trees by ancestors.
#pragma once

#include "infer/problem.h"

namespace attnc::inferred {

/// Returns the condition that a query and a key are of one class, with and without a class of padding.
std::vector<AtomPtr> classes(const Problem& problem);

/// Returns the condition that a key is an ancestor of the query, or the query itself; null if the elements that must
/// live are no forest.
AtomPtr ancestors(const Problem& problem);

} // namespace attnc::inferred
