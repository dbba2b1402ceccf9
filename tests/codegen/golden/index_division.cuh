
struct ModArgs {
  alignas(8) int s_block;
};

struct Mod {
  static constexpr bool kHasMaskMod = true;
  static constexpr bool kHasBounds = false;
  static constexpr bool kRowsAreIntervals = false;
  static constexpr bool kSharesColumns = false;
  static constexpr bool kAnyOrigin = false;

  struct Head {};
  struct Row { // known once b, h and q_idx are
    int v0;
  };
  struct Col { // known once b, h and kv_idx are
    float v4;
    int v1;
  };
  using Exponents = ScoreExponents;
  ATTNC_DEVICE static Row row(const ModArgs& args, const Head& head, int b, int h, int q_idx, float q_float) {
    Row out;
#line 3 "blocks.py"
    out.v0 = floor_div(q_idx, args.s_block);
    return out;
  }
  ATTNC_DEVICE static Col col(const ModArgs& args, const Head& head, int b, int h, int kv_idx, float kv_base,
                              float kv_offset) {
    Col out;
    const float kv_float = kv_base + kv_offset;
#line 4 "blocks.py"
    out.v4 = kv_float / 3.0f;
#line 3 "blocks.py"
    out.v1 = floor_div(kv_idx, args.s_block);
    return out;
  }
  ATTNC_DEVICE static float score(const ModArgs& args, const Head& head, const Row& row, const Col& col, Coord at,
                                  float score) {
#line 4 "blocks.py"
    return score + col.v4;
  }
  ATTNC_DEVICE static bool mask(const ModArgs& args, const Head& head, const Row& row, const Col& col, Coord at) {
#line 3 "blocks.py"
    return row.v0 == col.v1;
  }
