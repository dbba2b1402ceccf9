#include "picture.h"

#include "font.h"

#include <png.h>

#include <algorithm>
#include <csetjmp>
#include <cstdlib>

namespace attnc::cli {
namespace {

constexpr int kScale = 2; // pixels per unit

class Raster {
public:
  Raster(int width, int height)
      : width(width * kScale), height(height * kScale), pixels(size_t(this->width) * size_t(this->height), index(0xffffff)) {}

  void operator()(const PictureRect& rect) {
    fill(int64_t(rect.x) * kScale, int64_t(rect.y) * kScale, int64_t(rect.width) * kScale, int64_t(rect.height) * kScale, rect.colour);
  }

  void operator()(const PictureCells& cells) {
    const int64_t wide = cells.cellWidth * kScale, high = cells.cellHeight * kScale;
    for (size_t i = 0; i < cells.cells.size(); ++i)
      fill(cells.x * kScale + int64_t(i) % cells.columns * wide, cells.y * kScale + int64_t(i) / cells.columns * high, wide,
           high, cells.colours[cells.cells[i]]);
  }

  void operator()(const PictureText& words) {
    const int length = int(words.text.size()) * PictureText::kCharWidth;
    int x = words.x - (words.anchor == PictureText::Anchor::Left     ? 0
                       : words.anchor == PictureText::Anchor::Middle ? length / 2
                                                                     : length);
    for (char c : words.text) {
      const uint8_t* columns = glyph(c);
      for (int column = 0; column < kGlyphColumns; ++column)
        for (int row = 0; row < 8; ++row)
          if (columns[column] >> row & 1)
            fill(int64_t(x + column) * kScale, int64_t(words.y - PictureText::kCharHeight + row) * kScale, kScale, kScale,
                 words.colour);
      x += PictureText::kCharWidth;
    }
  }

  const int width, height;
  std::vector<Rgb> palette;
  std::vector<uint8_t> pixels;

private:
  uint8_t index(Rgb colour) {
    const auto found = std::find(palette.begin(), palette.end(), colour);
    if (found != palette.end()) return uint8_t(found - palette.begin());
    palette.push_back(colour);
    return uint8_t(palette.size() - 1);
  }

  void fill(int64_t x, int64_t y, int64_t wide, int64_t high, Rgb colour) {
    const uint8_t value = index(colour);
    const int64_t left = std::clamp<int64_t>(x, 0, width), right = std::clamp<int64_t>(x + wide, left, width);
    for (int64_t row = std::max<int64_t>(y, 0); row < std::min<int64_t>(y + high, height); ++row)
      std::fill_n(pixels.begin() + row * width + left, right - left, value);
  }
};

extern "C" void appendPng(png_structp png, png_bytep bytes, png_size_t count) {
  static_cast<std::string*>(png_get_io_ptr(png))->append(reinterpret_cast<const char*>(bytes), count);
}
extern "C" void flushPng(png_structp) {}

/// libpng reports errors by longjmp, so nothing with a destructor may live in here.
bool encode(png_structp png, png_infop info, const Raster& raster, const png_color* colours, std::string* bytes) {
  if (setjmp(png_jmpbuf(png))) return false;
  png_set_write_fn(png, bytes, appendPng, flushPng);
  png_set_IHDR(png, info, png_uint_32(raster.width), png_uint_32(raster.height), 8, PNG_COLOR_TYPE_PALETTE,
               PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  png_set_PLTE(png, info, colours, int(raster.palette.size()));
  png_write_info(png, info);
  for (int row = 0; row < raster.height; ++row)
    png_write_row(png, raster.pixels.data() + size_t(row) * size_t(raster.width));
  png_write_end(png, info);
  return true;
}

} // namespace

Expected<std::string> pngOf(const Picture& picture) {
  Raster raster(picture.width, picture.height);
  for (const auto& shape : picture.shapes) std::visit(raster, shape);
  if (raster.palette.size() > 256) return Error::internal("a picture has more than 256 colours");
  std::vector<png_color> colours;
  for (Rgb colour : raster.palette)
    colours.push_back({png_byte(colour >> 16), png_byte(colour >> 8 & 0xff), png_byte(colour & 0xff)});
  std::string bytes;
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png ? png_create_info_struct(png) : nullptr;
  const bool written = info && encode(png, info, raster, colours.data(), &bytes);
  png_destroy_write_struct(&png, &info);
  if (!written) return Error::internal("libpng could not encode the picture");
  return bytes;
}

} // namespace attnc::cli
