
struct ModArgs {
  const float* t_slopes;
  long long t_slopes_stride0;
};

struct Mod {
  static constexpr bool kHasMaskMod = true;
  static constexpr bool kHasBounds = true;
  static constexpr bool kRowsAreIntervals = true;
  static constexpr bool kBeginFalls = false;
  static constexpr bool kEndFalls = false;
  static constexpr bool kSharesColumns = false;
  static constexpr bool kAnyOrigin = true;

  struct Head { // known once b and h are
    float v_slopes;
    float e8;
  };
  struct Row { // known once b, h and q_idx are
    float e9;
  };
  struct Col { // known once b, h and kv_idx are
    float e7;
  };
  using Exponents = LinearExponents;
  ATTNC_DEVICE static Head head(const ModArgs& args, int b, int h) {
    Head out;
#line 8 "alibi.py"
    out.v_slopes = load_f32(args.t_slopes + step(h, args.t_slopes_stride0));
#line 8 "alibi.py"
    out.e8 = -out.v_slopes;
    return out;
  }
  ATTNC_DEVICE static Row row(const ModArgs& args, const Head& head, int b, int h, int q_idx, float q_float) {
    Row out;
#line 8 "alibi.py"
    out.e9 = head.e8 * q_float;
    return out;
  }
  ATTNC_DEVICE static Col col(const ModArgs& args, const Head& head, int b, int h, int kv_idx, float kv_base,
                              float kv_offset) {
    Col out;
    const float kv_float = kv_base;
#line 8 "alibi.py"
    out.e7 = head.v_slopes * kv_float;
    out.e7 += kv_slope(args, head) * kv_offset;
    return out;
  }
  ATTNC_DEVICE static float score(const ModArgs& args, const Head& head, const Row& row, const Col& col, Coord at,
                                  float score) {
#line 8 "alibi.py"
    return score + col.e7;
  }
  ATTNC_DEVICE static bool mask(const ModArgs& args, const Head& head, const Row& row, const Col& col, Coord at) {
#line 12 "alibi.py"
    return at.kv_idx <= at.q_idx;
  }
  ATTNC_DEVICE static float kv_slope(const ModArgs& args, const Head& head) {
#line 8 "alibi.py"
    return head.v_slopes;
  }
  ATTNC_DEVICE static ScoreFactors factors(const ModArgs& args, const Head& head) {
    return {1.f, 1.f, kv_slope(args, head)};
  }
  ATTNC_DEVICE static float row_shift(const ModArgs& args, const Head& head, const Row& row) {
#line 8 "alibi.py"
    return row.e9;
  }
  // The live columns of a row are exactly those from kv_begin to the one before kv_end.
  ATTNC_DEVICE static int kv_begin(const ModArgs& args, const Head& head, int b, int h, int q_idx) {
    return 0;
  }
  ATTNC_DEVICE static int kv_end(const ModArgs& args, const Head& head, int b, int h, int q_idx) {
#line 12 "alibi.py"
    return q_idx + 1;
  }
  ATTNC_DEVICE static TileBounds bounds(const ModArgs& args, const Head& head, int b, int h, int q_begin, int q_end) {
    return {kv_begin(args, head, b, h, q_begin), kv_begin(args, head, b, h, q_end - 1),
            kv_end(args, head, b, h, q_begin), kv_end(args, head, b, h, q_end - 1)};
  }
