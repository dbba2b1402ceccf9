
struct Mod {
  static constexpr bool kHasMaskMod = true;
  static constexpr bool kHasBounds = true;
  static constexpr bool kRowsAreIntervals = true;
  static constexpr bool kBeginFalls = false;
  static constexpr bool kEndFalls = false;
  static constexpr bool kSharesColumns = false;
  static constexpr bool kAnyOrigin = false;
  ATTNC_DEVICE static bool mask(const ModArgs& args, const Head& head, const Row& row, const Col& col, Coord at) {
#line 2 "causal.py"
    return at.kv_idx <= at.q_idx;
  }
  // The live columns of a row are exactly those from kv_begin to the one before kv_end.
  ATTNC_DEVICE static int kv_begin(const ModArgs& args, const Head& head, int b, int h, int q_idx) {
    return 0;
  }
  ATTNC_DEVICE static int kv_end(const ModArgs& args, const Head& head, int b, int h, int q_idx) {
#line 2 "causal.py"
    return q_idx + 1;
  }
  ATTNC_DEVICE static TileBounds bounds(const ModArgs& args, const Head& head, int b, int h, int q_begin, int q_end) {
    return {kv_begin(args, head, b, h, q_begin), kv_begin(args, head, b, h, q_end - 1),
            kv_end(args, head, b, h, q_begin), kv_end(args, head, b, h, q_end - 1)};
  }
