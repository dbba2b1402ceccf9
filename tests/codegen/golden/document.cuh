
struct ModArgs {
  const int* t_document_id;
  long long t_document_id_stride0;
  alignas(8) int t_document_id_size1;
  long long t_document_id_stride1;
};

struct Mod {
  static constexpr bool kHasMaskMod = true;
  static constexpr bool kHasBounds = false;
  static constexpr bool kRowsAreIntervals = false;
  static constexpr bool kSharesColumns = true;
  static constexpr bool kAnyOrigin = false;

  struct Head { // known once b and h are
    const int* p_document_id;
  };
  struct Row { // known once b, h and q_idx are
    int v_document_id;
  };
  struct Col { // known once b, h and kv_idx are
    int v_document_id;
  };
  static_assert(sizeof(Col) == 4);
  using Exponents = ProductExponents;
  ATTNC_DEVICE static Head head(const ModArgs& args, int b, int h) {
    Head out;
#line 5 "document.py"
    out.p_document_id = args.t_document_id + step(b, args.t_document_id_stride0);
    return out;
  }
  ATTNC_DEVICE static Row row(const ModArgs& args, const Head& head, int b, int h, int q_idx, float q_float) {
    Row out;
#line 5 "document.py"
    const long long o_document_id = step(clamp_index(q_idx, args.t_document_id_size1), args.t_document_id_stride1);
#line 5 "document.py"
    out.v_document_id = load_i32(head.p_document_id + o_document_id);
    return out;
  }
  ATTNC_DEVICE static Col col(const ModArgs& args, const Head& head, int b, int h, int kv_idx, float kv_base,
                              float kv_offset) {
    Col out;
#line 5 "document.py"
    const long long o_document_id = step(clamp_index(kv_idx, args.t_document_id_size1), args.t_document_id_stride1);
#line 5 "document.py"
    out.v_document_id = load_i32(head.p_document_id + o_document_id);
    return out;
  }
  ATTNC_DEVICE static bool mask(const ModArgs& args, const Head& head, const Row& row, const Col& col, Coord at) {
#line 5 "document.py"
    return row.v_document_id == col.v_document_id;
  }
