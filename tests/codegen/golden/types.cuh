
struct ModArgs {
  const unsigned char* t_t_bool;
  long long t_t_bool_stride0;
  const unsigned char* t_t_u8;
  long long t_t_u8_stride0;
  const signed char* t_t_i8;
  long long t_t_i8_stride0;
  const short* t_t_i16;
  long long t_t_i16_stride0;
  const long long* t_t_i64;
  long long t_t_i64_stride0;
  const unsigned short* t_t_f16;
  long long t_t_f16_stride0;
  const float* t_zero_d;
};

struct Mod {
  static constexpr bool kHasMaskMod = true;
  static constexpr bool kHasBounds = false;
  static constexpr bool kRowsAreIntervals = false;
  static constexpr bool kSharesColumns = true;
  static constexpr bool kAnyOrigin = false;

  struct Head { // known once b and h are
    float v20;
  };
  struct Row {};
  struct Col { // known once b, h and kv_idx are
    float v24;
    bool v29;
  };
  static_assert(sizeof(Col) == 8);
  using Exponents = ScoreExponents;
  ATTNC_DEVICE static Head head(const ModArgs& args, int b, int h) {
    Head out;
    out.v20 = min_of(load_f32(args.t_zero_d), -infinity()) - f32_bits(0x7fc00000u);
    return out;
  }
  ATTNC_DEVICE static Col col(const ModArgs& args, const Head& head, int b, int h, int kv_idx, float kv_base,
                              float kv_offset) {
    Col out;
    const unsigned char* p_t_bool = args.t_t_bool + step(kv_idx, args.t_t_bool_stride0);
    const int v_t_u8 = load_u8(args.t_t_u8 + step(kv_idx, args.t_t_u8_stride0));
    const int v_t_i8 = load_i8(args.t_t_i8 + step(kv_idx, args.t_t_i8_stride0));
    const short* p_t_i16 = args.t_t_i16 + step(kv_idx, args.t_t_i16_stride0);
    const long long i_t_i64 = clamp_index(i64_of((v_t_u8 + v_t_i8) * load_i16(p_t_i16)), 7ll);
    const long long* p_t_i64 = args.t_t_i64 + step(i_t_i64, args.t_t_i64_stride0);
    const long long v_t_i64 = load_i64(p_t_i64);
    const long long v9 = wrap_neg(min_of(v_t_i64, -9223372036854775807ll - 1));
    const unsigned short* p_t_f16 = args.t_t_f16 + step(kv_idx, args.t_t_f16_stride0);
    const float v_t_f16 = load_f16(p_t_f16);
    const float v17 = float(max_of(i32_of(v9), -2147483647 - 1)) + float(~saturate_i64(v_t_f16));
    out.v24 = load_bool(p_t_bool) ? (v17 + head.v20 + 0.0f) : (-0.0f);
    out.v29 = !((v_t_f16 != 0.0f) ^ (v_t_i64 != 0));
    return out;
  }
  ATTNC_DEVICE static float score(const ModArgs& args, const Head& head, const Row& row, const Col& col, Coord at,
                                  float score) {
    return score + col.v24;
  }
  ATTNC_DEVICE static bool mask(const ModArgs& args, const Head& head, const Row& row, const Col& col, Coord at) {
    return col.v29;
  }
