// The version of attnc, as three numbers and as text. CMake's project version, the package files and `attnc --version`
// are read from this file.
#pragma once

/// The major version.
#define ATTNC_VERSION_MAJOR 0
/// The minor version.
#define ATTNC_VERSION_MINOR 1
/// The patch version.
#define ATTNC_VERSION_PATCH 0

/// The version as a number, for comparisons in the preprocessor: 10203 is 1.2.3.
#define ATTNC_VERSION_NUMBER (ATTNC_VERSION_MAJOR * 10000 + ATTNC_VERSION_MINOR * 100 + ATTNC_VERSION_PATCH)

#define ATTNC_VERSION_TEXT_(major, minor, patch) #major "." #minor "." #patch
/// Three numbers as a string literal, once expanded.
#define ATTNC_VERSION_TEXT(major, minor, patch) ATTNC_VERSION_TEXT_(major, minor, patch)
/// The version as a string literal: "MAJOR.MINOR.PATCH".
#define ATTNC_VERSION ATTNC_VERSION_TEXT(ATTNC_VERSION_MAJOR, ATTNC_VERSION_MINOR, ATTNC_VERSION_PATCH)
