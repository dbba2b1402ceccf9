// A font of 5 x 7 dots for words in pictures of pixels.
#pragma once

#include <cstdint>

namespace attnc::cli {

constexpr int kGlyphColumns = 5;

/// The columns of a character, left to right, a bit a dot, the lowest the topmost; the eighth lies below the base line.
/// '?' for what is not printable ASCII.
const uint8_t* glyph(char character);

} // namespace attnc::cli
