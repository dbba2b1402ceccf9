
struct ModArgs {
  alignas(8) float s_cap;
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
    float e7;
    float e9;
  };
  struct Row {};
  struct Col {};
  using Exponents = TanhExponents<true>;
  ATTNC_DEVICE static Head head(const ModArgs& args, int b, int h) {
    Head out;
#line 13 "softcap.py"
    const float e4 = 1.0f / args.s_cap;
#line 13 "softcap.py"
    out.e7 = (args.s_cap < 0.0f) ? (-e4) : e4;
#line 13 "softcap.py"
    out.e9 = max_of(abs_of(args.s_cap), 1.1754944e-38f);
    return out;
  }
  ATTNC_DEVICE static float score(const ModArgs& args, const Head& head, const Row& row, const Col& col, Coord at,
                                  float score) {
#line 13 "softcap.py"
    return tanh_of(score);
  }
  ATTNC_DEVICE static bool mask(const ModArgs& args, const Head& head, const Row& row, const Col& col, Coord at) {
#line 17 "softcap.py"
    return at.kv_idx <= at.q_idx;
  }
  ATTNC_DEVICE static float scale_in(const ModArgs& args, const Head& head) {
#line 13 "softcap.py"
    return head.e7;
  }
  ATTNC_DEVICE static float scale_out(const ModArgs& args, const Head& head) {
#line 13 "softcap.py"
    return head.e9;
  }
  ATTNC_DEVICE static ScoreFactors factors(const ModArgs& args, const Head& head) {
    return {scale_in(args, head), scale_out(args, head), 0.f};
  }
  // The live columns of a row are exactly those from kv_begin to the one before kv_end.
  ATTNC_DEVICE static int kv_begin(const ModArgs& args, const Head& head, int b, int h, int q_idx) {
    return 0;
  }
  ATTNC_DEVICE static int kv_end(const ModArgs& args, const Head& head, int b, int h, int q_idx) {
#line 17 "softcap.py"
    return q_idx + 1;
  }
  ATTNC_DEVICE static TileBounds bounds(const ModArgs& args, const Head& head, int b, int h, int q_begin, int q_end) {
    return {kv_begin(args, head, b, h, q_begin), kv_begin(args, head, b, h, q_end - 1),
            kv_end(args, head, b, h, q_begin), kv_end(args, head, b, h, q_end - 1)};
  }
