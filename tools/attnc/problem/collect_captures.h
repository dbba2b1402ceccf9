// The captures of a run: from --set, a file, --pin, or drawn at random.
#pragma once

#include "problem/host_operands.h"
#include "problem/problem_options.h"
#include "problem/random.h"

#include "attnc/explain.h"

#include <set>
#include <string>

namespace attnc::cli {

/// Whether the value of a capture is needed, or only its presence and a tensor's shape.
class Needed {
public:
  Needed(const Mod& mod, Elements elements) : all(elements == Elements::All), ofMask(capturesOfMask(mod)) {}
  bool operator()(const std::string& capture) const { return all || ofMask.count(capture); }

private:
  bool all;
  std::set<std::string> ofMask;
};

/// Which captures the generator may draw.
enum class Drawn { All, Unneeded };

/// Fills operands.captures, and operands.tensors, to which they point. Takes tensors of captures out of `file`.
/// `generator`: null if nothing may be drawn. Errors: a capture that nothing gives, or one that does not fit.
Status collectCaptures(const Mod& mod, const ProblemOptions& options, NamedTensors& file, Generator* generator,
                       const Needed& needed, Drawn drawn, HostOperands& operands);

} // namespace attnc::cli
