// Converts a C caller's launch arguments to C++.
#pragma once

#include "attnc/c/operands.h"
#include "attnc/operands.h"
#include "attnc/problem.h"
#include "c/arguments.h"

#include <map>
#include <optional>
#include <set>
#include <string>

namespace attnc::c {

/// Unset for NULL, and for a refused tensor.
std::optional<TensorView> readTensor(Arguments& arguments, const attnc_tensor* given, const Place& place);

/// Reads a tensor that must be given. Empty if it is refused.
TensorView requiredTensor(Arguments& arguments, const attnc_tensor* given, const Place& place);

/// Adds `count` captures, which lie one after another. NULL is allowed if `count` is 0.
void readCaptures(Arguments& arguments, const attnc_capture* given, size_t count, const Place& place,
                  Captures& captures);

std::map<std::string, int64_t> readPins(Arguments& arguments, const attnc_pin* given, size_t count, const Place& place);
std::vector<std::string> readTexts(Arguments& arguments, const char* const* given, size_t count, const Place& place);
std::set<std::string> readNames(Arguments& arguments, const char* const* given, size_t count, const Place& place);

/// Unset for NULL, and for refused lists.
std::optional<BlockMaskView> readLists(Arguments& arguments, const attnc_block_mask_view* given, const Place& place);
attnc_block_mask_view toC(const BlockMaskView& view);

/// Operands with what they point to, so they must be neither copied nor moved.
struct GivenOperands {
  GivenOperands() = default;
  GivenOperands(const GivenOperands&) = delete;
  void read(Arguments& arguments, const attnc_operands* given, const Place& place, Operands& operands);

private:
  Captures captures;
  std::optional<BlockMaskView> lists;
};

struct GivenForward : GivenOperands {
  GivenForward(Arguments& arguments, const attnc_operands* operands, const attnc_outputs* outputs);
  Operands operands;
  Outputs outputs;

private:
  Captures reductions;
};

/// `reductions`: receives those that are given, and outlives the result.
Outputs readOutputs(Arguments& arguments, const attnc_outputs* given, const Place& place, Captures& reductions);

struct GivenBackward : GivenOperands {
  /// `outputs` may be NULL if `optionalOutputs`.
  GivenBackward(Arguments& arguments, const attnc_backward_operands* operands, const attnc_backward_outputs* outputs,
                bool optionalOutputs = false);
  BackwardOperands operands;
  BackwardOutputs outputs;

private:
  Captures gradients;
};

} // namespace attnc::c
