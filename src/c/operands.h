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

void checkRank(int32_t rank, const Place& place);

/// Unset for NULL.
std::optional<TensorView> readTensor(const attnc_tensor* given, const Place& place);

/// Reads a tensor that must be given.
TensorView requiredTensor(const attnc_tensor* given, const Place& place);

/// Adds `count` captures, which lie one after another. NULL is allowed if `count` is 0.
void readCaptures(const attnc_capture* given, size_t count, const Place& place, Captures& captures);

std::map<std::string, int64_t> readPins(const attnc_pin* given, size_t count, const Place& place);
std::vector<std::string> readTexts(const char* const* given, size_t count, const Place& place);
std::set<std::string> readNames(const char* const* given, size_t count, const Place& place);

/// Unset for NULL.
std::optional<BlockMaskView> readLists(const attnc_block_mask_view* given, const Place& place);
attnc_block_mask_view toC(const BlockMaskView& view);

/// Operands with what they point to, so they must be neither copied nor moved.
struct GivenOperands {
  GivenOperands() = default;
  GivenOperands(const GivenOperands&) = delete;
  void read(const attnc_operands* given, const Place& place, Operands& operands);

private:
  Captures captures;
  std::optional<BlockMaskView> lists;
};

struct GivenForward : GivenOperands {
  GivenForward(const attnc_operands* operands, const attnc_outputs* outputs);
  Operands operands;
  Outputs outputs;

private:
  Captures reductions;
};

/// `reductions`: receives those that are given, and outlives the result.
Outputs readOutputs(const attnc_outputs* given, const Place& place, Captures& reductions);

struct GivenBackward : GivenOperands {
  /// `outputs` may be NULL if `optionalOutputs`.
  GivenBackward(const attnc_backward_operands* operands, const attnc_backward_outputs* outputs,
                bool optionalOutputs = false);
  BackwardOperands operands;
  BackwardOutputs outputs;

private:
  Captures gradients;
};

} // namespace attnc::c
