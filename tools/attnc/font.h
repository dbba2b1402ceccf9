// A font of 5 x 7 dots for words in pixel pictures.
#pragma once

#include <cstdint>

namespace attnc::cli {

constexpr int kGlyphColumns = 5;

/// Returns the columns of a character, left to right. Each bit is a dot: the lowest bit is the top one, the eighth lies
/// below the base line. Unprintable and non-ASCII characters become '?'.
const uint8_t* glyph(char character);

} // namespace attnc::cli
