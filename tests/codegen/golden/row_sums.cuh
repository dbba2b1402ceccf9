
struct ModArgs {
  const unsigned short* t_query;
  long long t_query_stride0;
  long long t_query_stride1;
  long long t_query_stride2;
  const unsigned short* t_key;
  long long t_key_stride0;
  long long t_key_stride1;
  const float* t_grid;
  long long t_grid_stride0;
  long long t_grid_stride1;
  const int* t_ids;
  long long t_ids_stride0;
};

struct Mod {
  static constexpr bool kHasMaskMod = true;
  static constexpr bool kHasBounds = true;
  static constexpr bool kRowsAreIntervals = true;
  static constexpr bool kBeginFalls = false;
  static constexpr bool kEndFalls = false;
  static constexpr bool kSharesColumns = true;
  static constexpr bool kAnyOrigin = false;

  struct Head { // known once b and h are
    const unsigned short* p_query;
    int v13;
    int e20;
  };
  struct Row { // known once b, h and q_idx are
    const unsigned short* p_query;
    float v6;
  };
  struct Col { // known once b, h and kv_idx are
    const unsigned short* p_key;
    float v11;
    bool v14;
  };
  static_assert(sizeof(Col) == 16);
  using Exponents = ScoreExponents;
  ATTNC_DEVICE static Head head(const ModArgs& args, int b, int h) {
    Head out;
#line 3 "latent.py"
    out.p_query = args.t_query + step(h, args.t_query_stride0);
#line 6 "latent.py"
    int v13 = 0;
    ATTNC_UNROLL(4) for (int i0 = 0; i0 < 17; ++i0) {
#line 6 "latent.py"
      const int v_ids = load_i32(args.t_ids + step(i0, args.t_ids_stride0));
#line 6 "latent.py"
      v13 = wrap_add(v13, v_ids);
    }
#line 6 "latent.py"
    out.v13 = v13;
#line 6 "latent.py"
    out.e20 = min_of(max_of(out.v13, -1073741824), 1073741823) + 1;
    return out;
  }
  ATTNC_DEVICE static Row row(const ModArgs& args, const Head& head, int b, int h, int q_idx, float q_float) {
    Row out;
#line 3 "latent.py"
    out.p_query = head.p_query + step(q_idx, args.t_query_stride1);
#line 4 "latent.py"
    float v5 = 0.0f;
    ATTNC_UNROLL(4) for (int i0 = 0; i0 < 64; ++i0) {
#line 3 "latent.py"
      const float v_query = load_bf16(out.p_query + step(i0, args.t_query_stride2));
#line 4 "latent.py"
      v5 += v_query * v_query;
    }
#line 4 "latent.py"
    out.v6 = sqrt_of(v5);
    return out;
  }
  ATTNC_DEVICE static Col col(const ModArgs& args, const Head& head, int b, int h, int kv_idx, float kv_base,
                              float kv_offset) {
    Col out;
#line 3 "latent.py"
    out.p_key = args.t_key + step(kv_idx, args.t_key_stride0);
#line 5 "latent.py"
    const long long o_grid = step(clamp_index(kv_idx, 20), args.t_grid_stride1);
#line 5 "latent.py"
    float v11 = 0.0f;
    ATTNC_UNROLL(4) for (int i1 = 0; i1 < 32; ++i1) {
#line 5 "latent.py"
      const long long o_grid_2 = step(i1, args.t_grid_stride0);
#line 5 "latent.py"
      float v8 = 0.0f;
      ATTNC_UNROLL(4) for (int i0 = 0; i0 < 20; ++i0) {
#line 5 "latent.py"
        const float* p_grid = args.t_grid + o_grid_2 + step(i0, args.t_grid_stride1);
#line 5 "latent.py"
        v8 += load_f32(p_grid);
      }
#line 5 "latent.py"
      v11 += v8 * load_f32(args.t_grid + o_grid + o_grid_2);
    }
#line 5 "latent.py"
    out.v11 = v11;
#line 6 "latent.py"
    out.v14 = kv_idx <= head.v13;
    return out;
  }
  ATTNC_DEVICE static float score(const ModArgs& args, const Head& head, const Row& row, const Col& col, Coord at,
                                  float score) {
#line 3 "latent.py"
    float v3 = 0.0f;
    ATTNC_UNROLL(4) for (int i0 = 0; i0 < 64; ++i0) {
#line 3 "latent.py"
      const float v_query = load_bf16(row.p_query + step(i0, args.t_query_stride2));
#line 3 "latent.py"
      const float v_key = load_bf16(col.p_key + step(i0, args.t_key_stride1));
#line 3 "latent.py"
      v3 += v_query * v_key;
    }
#line 7 "latent.py"
    return score + v3 / row.v6 + col.v11;
  }
  ATTNC_DEVICE static bool mask(const ModArgs& args, const Head& head, const Row& row, const Col& col, Coord at) {
#line 6 "latent.py"
    return col.v14;
  }
  // The live columns of a row are exactly those from kv_begin to the one before kv_end.
  ATTNC_DEVICE static int kv_begin(const ModArgs& args, const Head& head, int b, int h, int q_idx) {
    return 0;
  }
  ATTNC_DEVICE static int kv_end(const ModArgs& args, const Head& head, int b, int h, int q_idx) {
#line 6 "latent.py"
    return head.e20;
  }
  ATTNC_DEVICE static TileBounds bounds(const ModArgs& args, const Head& head, int b, int h, int q_begin, int q_end) {
    return {kv_begin(args, head, b, h, q_begin), kv_begin(args, head, b, h, q_end - 1),
            kv_end(args, head, b, h, q_begin), kv_end(args, head, b, h, q_end - 1)};
  }
