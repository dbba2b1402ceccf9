
struct ModArgs {
  const unsigned short* t_bias;
  long long t_bias_stride0;
  long long t_bias_stride1;
  long long t_bias_stride2;
};

  struct Head { // known once b and h are
    const unsigned short* p_bias;
  };
  struct Row { // known once b, h and q_idx are
    const unsigned short* p_bias;
  };
  struct Col { // known once b, h and kv_idx are
    long long o_bias;
  };
  using Exponents = ScoreExponents;
  ATTNC_DEVICE static Head head(const ModArgs& args, int b, int h) {
    Head out;
#line 4 "learned_bias.py"
    out.p_bias = args.t_bias + step(h, args.t_bias_stride0);
    return out;
  }
  ATTNC_DEVICE static Row row(const ModArgs& args, const Head& head, int b, int h, int q_idx, float q_float) {
    Row out;
#line 4 "learned_bias.py"
    out.p_bias = head.p_bias + step(q_idx, args.t_bias_stride1);
    return out;
  }
  ATTNC_DEVICE static Col col(const ModArgs& args, const Head& head, int b, int h, int kv_idx, float kv_base,
                              float kv_offset) {
    Col out;
#line 4 "learned_bias.py"
    out.o_bias = step(kv_idx, args.t_bias_stride2);
    return out;
  }
  ATTNC_DEVICE static float score(const ModArgs& args, const Head& head, const Row& row, const Col& col, Coord at,
                                  float score) {
#line 4 "learned_bias.py"
    return score + load_bf16(row.p_bias + col.o_bias);
  }
