
struct ModArgs {
  alignas(8) float s_cap;
};

  struct Head { // known once b and h are
    float r1;
  };
  struct Row {};
  struct Col {};
  using Exponents = ScoreExponents;
  ATTNC_DEVICE static Head head(const ModArgs& args, int b, int h) {
    Head out;
#line 3 "softcap.py"
    out.r1 = reciprocal(args.s_cap);
    return out;
  }
  ATTNC_DEVICE static float score(const ModArgs& args, const Head& head, const Row& row, const Col& col, Coord at,
                                  float score) {
#line 3 "softcap.py"
    return tanh_of(score * 0.33333334f * head.r1) * args.s_cap;
  }
