
struct ModArgs {
  const float* t_slopes;
  long long t_slopes_stride0;
  alignas(8) int s_window;
};

struct Mod {
  static constexpr bool kHasMaskMod = true;
  static constexpr bool kHasBounds = false;
  static constexpr bool kRowsAreIntervals = false;
  static constexpr bool kSharesColumns = false;
  static constexpr bool kAnyOrigin = false;

  struct Head { // known once b and h are
    float v_slopes;
  };
  struct Row { // known once b, h and q_idx are
    float v4;
  };
  struct Col { // known once b, h and kv_idx are
    float v2;
  };
  using Exponents = ScoreExponents;
  ATTNC_DEVICE static Head head(const ModArgs& args, int b, int h) {
    Head out;
#line 8 "alibi.py"
    out.v_slopes = load_f32(args.t_slopes + step(h, args.t_slopes_stride0));
    return out;
  }
  ATTNC_DEVICE static Row row(const ModArgs& args, const Head& head, int b, int h, int q_idx, float q_float) {
    Row out;
#line 8 "alibi.py"
    out.v4 = head.v_slopes * q_float;
    return out;
  }
  ATTNC_DEVICE static Col col(const ModArgs& args, const Head& head, int b, int h, int kv_idx, float kv_base,
                              float kv_offset) {
    Col out;
    const float kv_float = kv_base + kv_offset;
#line 8 "alibi.py"
    out.v2 = head.v_slopes * kv_float;
    return out;
  }
  ATTNC_DEVICE static float score(const ModArgs& args, const Head& head, const Row& row, const Col& col, Coord at,
                                  float score) {
#line 8 "alibi.py"
    return score - row.v4 + col.v2;
  }
  ATTNC_DEVICE static bool mask(const ModArgs& args, const Head& head, const Row& row, const Col& col, Coord at) {
#line 11 "alibi.py"
    return at.q_idx - at.kv_idx <= args.s_window;
  }
