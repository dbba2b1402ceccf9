// Test cases that are skipped where something is missing.
#pragma once

#include <catch2/catch.hpp>

#define ATTNC_UNIQUE_NAME_OF(number) attncTestCase##number
#define ATTNC_UNIQUE_NAME(number) ATTNC_UNIQUE_NAME_OF(number)
#define ATTNC_TEST_CASE_NAMED(name, need, ...)                                                                         \
  static void name();                                                                                                  \
  TEST_CASE(__VA_ARGS__) {                                                                                             \
    need;                                                                                                              \
    name();                                                                                                            \
  }                                                                                                                    \
  static void name()

/// A TEST_CASE whose body follows `need`, which says SKIPPED and returns where the test cannot run.
#define ATTNC_TEST_CASE(need, ...) ATTNC_TEST_CASE_NAMED(ATTNC_UNIQUE_NAME(__COUNTER__), need, __VA_ARGS__)
