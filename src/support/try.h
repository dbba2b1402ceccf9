// How functions pass on errors of what they call.
#pragma once

#include <utility>

/// Evaluates an Expected or a Status; returns its error from this function if it has one.
#define ATTNC_TRY(...)                                                                                                 \
  if (auto attncStatus = (__VA_ARGS__); !attncStatus) return std::move(attncStatus).error()

/// Declares `name` as the Expected that an expression gives; returns its error from this function if it has one. Below,
/// `*name` is the value.
#define ATTNC_TRY_AS(name, ...)                                                                                        \
  auto name = __VA_ARGS__;                                                                                             \
  if (!name) return std::move(name).error()
