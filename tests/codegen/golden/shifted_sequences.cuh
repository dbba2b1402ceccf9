
struct ModArgs {
  const int* t_attnc_kv_lengths;
  long long t_attnc_kv_lengths_stride0;
  alignas(8) int d_KV_LEN;
  alignas(8) int d_Q_LEN;
  const float* t_slopes;
  long long t_slopes_stride0;
  const float* t_bias;
  long long t_bias_stride0;
  alignas(8) int t_bias_size1;
  long long t_bias_stride1;
  long long t_bias_stride2;
};

struct Mod {
  static constexpr bool kHasMaskMod = true;
  static constexpr bool kHasBounds = true;
  static constexpr bool kRowsAreIntervals = true;
  static constexpr bool kBeginFalls = false;
  static constexpr bool kEndFalls = false;
  static constexpr bool kSharesColumns = false;
  static constexpr bool kHasLengths = true;
  static constexpr bool kHasOffsets = true;
  static constexpr bool kAnyOrigin = true;

  struct Head { // known once b and h are
    int v2;
    int v3;
    float v_slopes;
    const float* p_bias;
    float e15;
  };
  struct Row { // known once b, h and q_idx are
    const float* p_bias;
    float e16;
  };
  struct Col { // known once b, h and kv_idx are
    long long o_bias;
    float e14;
  };
  using Exponents = ScoreExponents;
  ATTNC_DEVICE static Head head(const ModArgs& args, int b, int h) {
    Head out;
    const int* p_attnc_kv_lengths = args.t_attnc_kv_lengths + step(b, args.t_attnc_kv_lengths_stride0);
    out.v2 = min_of(max_of(load_i32(p_attnc_kv_lengths), 0), args.d_KV_LEN);
    out.v3 = out.v2 - args.d_Q_LEN;
    out.v_slopes = load_f32(args.t_slopes + step(h, args.t_slopes_stride0));
    out.p_bias = args.t_bias + step(h, args.t_bias_stride0);
    out.e15 = -out.v_slopes;
    return out;
  }
  ATTNC_DEVICE static Row row(const ModArgs& args, const Head& head, int b, int h, int q_idx, float q_float) {
    Row out;
    const long long o_bias = step(clamp_index(q_idx - head.v3, args.t_bias_size1), args.t_bias_stride1);
    out.p_bias = head.p_bias + o_bias;
    out.e16 = head.e15 * q_float;
    return out;
  }
  ATTNC_DEVICE static Col col(const ModArgs& args, const Head& head, int b, int h, int kv_idx, float kv_base,
                              float kv_offset) {
    Col out;
    const float kv_float = kv_base;
    out.o_bias = step(kv_idx, args.t_bias_stride2);
    out.e14 = head.v_slopes * kv_float;
    out.e14 += kv_slope(args, head) * kv_offset;
    return out;
  }
  ATTNC_DEVICE static float score(const ModArgs& args, const Head& head, const Row& row, const Col& col, Coord at,
                                  float score) {
    return score + load_f32(row.p_bias + col.o_bias) + col.e14;
  }
  ATTNC_DEVICE static bool mask(const ModArgs& args, const Head& head, const Row& row, const Col& col, Coord at) {
    return at.kv_idx <= at.q_idx;
  }
  ATTNC_DEVICE static float kv_slope(const ModArgs& args, const Head& head) {
    return head.v_slopes;
  }
  ATTNC_DEVICE static ScoreFactors factors(const ModArgs& args, const Head& head) {
    return {1.f, 1.f, kv_slope(args, head)};
  }
  ATTNC_DEVICE static float row_shift(const ModArgs& args, const Head& head, const Row& row) {
    return row.e16;
  }
  ATTNC_DEVICE static int kv_length(const ModArgs& args, const Head& head) {
    return head.v2;
  }
  ATTNC_DEVICE static int q_offset(const ModArgs& args, const Head& head) {
    return head.v3;
  }
  // The live columns of a row are exactly those from kv_begin to the one before kv_end.
  ATTNC_DEVICE static int kv_begin(const ModArgs& args, const Head& head, int b, int h, int q_idx) {
    return 0;
  }
  ATTNC_DEVICE static int kv_end(const ModArgs& args, const Head& head, int b, int h, int q_idx) {
    return q_idx + 1;
  }
  ATTNC_DEVICE static TileBounds bounds(const ModArgs& args, const Head& head, int b, int h, int q_begin, int q_end) {
    return {kv_begin(args, head, b, h, q_begin), kv_begin(args, head, b, h, q_end - 1),
            kv_end(args, head, b, h, q_begin), kv_end(args, head, b, h, q_end - 1)};
  }
