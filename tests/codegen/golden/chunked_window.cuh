
struct ModArgs {
  alignas(8) int s_window;
};

struct Mod {
  static constexpr bool kHasMaskMod = true;
  static constexpr bool kHasBounds = true;
  static constexpr bool kRowsAreIntervals = true;
  static constexpr bool kBeginFalls = false;
  static constexpr bool kEndFalls = false;
  static constexpr bool kSharesColumns = false;
  static constexpr bool kAnyOrigin = false;

  struct Head { // known once b and h are
    int v1;
  };
  struct Row { // known once b, h and q_idx are
    int v2;
    int v4;
  };
  struct Col { // known once b, h and kv_idx are
    int v5;
  };
  using Exponents = ProductExponents;
  ATTNC_DEVICE static Head head(const ModArgs& args, int b, int h) {
    Head out;
#line 5 "chunked.py"
    out.v1 = min_of(max_of(args.s_window, -16777216), 16777216);
    return out;
  }
  ATTNC_DEVICE static Row row(const ModArgs& args, const Head& head, int b, int h, int q_idx, float q_float) {
    Row out;
#line 5 "chunked.py"
    out.v2 = q_idx - head.v1;
#line 6 "chunked.py"
    out.v4 = q_idx >> 6;
    return out;
  }
  ATTNC_DEVICE static Col col(const ModArgs& args, const Head& head, int b, int h, int kv_idx, float kv_base,
                              float kv_offset) {
    Col out;
#line 6 "chunked.py"
    out.v5 = kv_idx >> 6;
    return out;
  }
  ATTNC_DEVICE static bool mask(const ModArgs& args, const Head& head, const Row& row, const Col& col, Coord at) {
#line 7 "chunked.py"
    return (row.v2 <= at.kv_idx) & (row.v4 == col.v5);
  }
  // The live columns of a row are exactly those from kv_begin to the one before kv_end.
  ATTNC_DEVICE static int kv_begin(const ModArgs& args, const Head& head, int b, int h, int q_idx) {
#line 6 "chunked.py"
    return max_of(q_idx - head.v1, (q_idx >> 6) * 64);
  }
  ATTNC_DEVICE static int kv_end(const ModArgs& args, const Head& head, int b, int h, int q_idx) {
#line 6 "chunked.py"
    return ((q_idx >> 6) + 1) * 64;
  }
  ATTNC_DEVICE static TileBounds bounds(const ModArgs& args, const Head& head, int b, int h, int q_begin, int q_end) {
    return {kv_begin(args, head, b, h, q_begin), kv_begin(args, head, b, h, q_end - 1),
            kv_end(args, head, b, h, q_begin), kv_end(args, head, b, h, q_end - 1)};
  }
