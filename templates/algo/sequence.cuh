// The sequences of a batch, which may differ if the mod says so: their rows of Q, K and V, and the positions of their
// queries. Each helper folds to a constant for mods without the hook, so unused features cost nothing.
//
// Sequences of a ragged batch lie end to end. Only the device knows how many tiles each has, so tiles are dealt by
// slots: rows / Size + batch of them, whatever the lengths. Sequence b has the slots from start / Size + b on: as many
// as its rows take, and perhaps one more. No table is needed. Slots times Size is also where a sequence has room of its
// own in an array of whole tiles.
#pragma once

#include "attnc_config.cuh"

#include "mod/contract.cuh"
#include "params.cuh"

namespace attnc {

template <class M> constexpr bool kHasLengths = requires { M::kHasLengths; };
template <class M> constexpr bool kHasOffsets = requires { M::kHasOffsets; };
template <class M> constexpr bool kIsRagged = requires { M::kIsRagged; };
/// Whether rows of K and V behind a sequence's length are padding.
template <class M> constexpr bool kIsPadded = kHasLengths<M> && !kIsRagged<M>;
/// Whether sequences have different mods, and a kernel computes one of them for a tile.
template <class M> constexpr bool kChooses = requires { M::kVariants; };

/// Returns the live rows of K and V: 0 to p.kv_len.
template <class M, class Args, class Head>
ATTNC_DEVICE int kv_length(const ForwardParams& p, const Args& args, const Head& head) {
  if constexpr (kHasLengths<M>)
    return min(M::kv_length(args, head), p.kv_len); // SEAM(kv_length)
  else
    return p.kv_len;
}

/// The same if no Head is at hand.
template <class M, class Args> ATTNC_DEVICE int kv_length_of(const ForwardParams& p, const Args& args, int b, int h) {
  if constexpr (kHasLengths<M>)
    return kv_length<M>(p, args, M::head(args, b, h)); // SEAM(head)
  else
    return p.kv_len;
}

/// Returns the position of row 0 of Q. A mod's q_idx is this plus the row.
template <class M, class Args, class Head> ATTNC_DEVICE int q_offset(const Args& args, const Head& head) {
  if constexpr (kHasOffsets<M>)
    return M::q_offset(args, head); // SEAM(q_offset)
  else
    return 0;
}

/// Returns the position of a row of Q.
template <class M, class Args, class Head> ATTNC_DEVICE int position_of(const Args& args, const Head& head, int row) {
  if constexpr (kHasOffsets<M>) return q_offset<M>(args, head) + row;
  return row;
}

/// Returns the position of row 0 if no Head is at hand.
template <class M, class Args> ATTNC_DEVICE int q_offset_of(const Args& args, int b, int h) {
  if constexpr (kHasOffsets<M>)
    return q_offset<M>(args, M::head(args, b, h)); // SEAM(head)
  else
    return 0;
}

/// For ragged batches: a sequence's first row in Q, and its first row in K and V, as the caller says.
template <class M, class Args> ATTNC_DEVICE int q_start_of(const Args& args, int b) {
  return M::q_start(args, M::head(args, b, 0)); // SEAM(q_start) SEAM(head)
}
template <class M, class Args> ATTNC_DEVICE int kv_start_of(const Args& args, int b) {
  return M::kv_start(args, M::head(args, b, 0)); // SEAM(kv_start) SEAM(head)
}
/// The same within the tensors, which a caller's cumulative lengths may exceed: what is stored at these is inside.
template <class M, class Args> ATTNC_DEVICE int q_start_of(const ForwardParams& p, const Args& args, int b) {
  return min(max(q_start_of<M>(args, b), 0), p.rows.q);
}
template <class M, class Args> ATTNC_DEVICE int kv_start_of(const ForwardParams& p, const Args& args, int b) {
  return min(max(kv_start_of<M>(args, b), 0), p.rows.kv);
}
/// Returns a sequence's rows of Q, from q_start_of(p, ...) on.
template <class M, class Args> ATTNC_DEVICE int q_length_of(const ForwardParams& p, const Args& args, int b) {
  const int length = min(M::q_length(args, M::head(args, b, 0)), p.q_len); // SEAM(q_length) SEAM(head)
  return min(length, p.rows.q - q_start_of<M>(p, args, b));
}

/// Returns the bytes of a Mod::Col, of that of any variant, if columns are shared; otherwise 0.
template <class M> constexpr int largest_column() {
  if constexpr (kChooses<M>)
    return M::kColumnBytes;
  else
    return M::kSharesColumns ? int(sizeof(typename M::Col)) : 0;
}

/// Returns which of its variants a mod is for b and h; -1 if no score of these lives. 0 if it has none.
template <class M, class Args> ATTNC_DEVICE int variant_of(const Args& args, int b, int h) {
  if constexpr (kChooses<M>)
    return M::variant(args, M::head(args, b, h)); // SEAM(variant) SEAM(head)
  else
    return 0;
}
/// Returns the variant to compute: where nothing lives, the last one, of which there are no steps.
template <class M, class Args> ATTNC_DEVICE int computed_variant(const Args& args, int b, int h) {
  if constexpr (kChooses<M>)
    return int(min(unsigned(variant_of<M>(args, b, h)), M::kVariants - 1u));
  else
    return 0;
}
/// Calls function(m) with the mod itself as m, or with this one of its variants, and returns the result.
template <class M, class Function> ATTNC_DEVICE auto with_variant(int variant, Function function) {
  if constexpr (kChooses<M>)
    return M::visit_variant(variant, function); // SEAM(visit_variant)
  else
    return function(M());
}

/// Returns the index of a batch entry's row among the tensor's rows.
template <class M, class Args> ATTNC_DEVICE int q_row_of(const Args& args, int b, int row) {
  if constexpr (kIsRagged<M>) return q_start_of<M>(args, b) + row;
  return row;
}
template <class M, class Args> ATTNC_DEVICE int kv_row_of(const Args& args, int b, int row) {
  if constexpr (kIsRagged<M>) return kv_start_of<M>(args, b) + row;
  return row;
}

/// The index of row 0, looked up once. Empty if batches are not ragged.
template <class M, bool IsRagged = kIsRagged<M>> struct SequenceStart {
  SequenceStart() = default;
  template <class Args> ATTNC_DEVICE SequenceStart(const ForwardParams&, const Args&, int) {}
  ATTNC_DEVICE static constexpr int q() { return 0; }
  ATTNC_DEVICE static constexpr int kv() { return 0; }
};
template <class M> struct SequenceStart<M, true> {
  int of_q = 0, of_kv = 0;
  SequenceStart() = default;
  template <class Args>
  ATTNC_DEVICE SequenceStart(const ForwardParams& p, const Args& args, int b)
      : of_q(q_start_of<M>(p, args, b)), of_kv(kv_start_of<M>(p, args, b)) {}
  ATTNC_DEVICE int q() const { return of_q; }
  ATTNC_DEVICE int kv() const { return of_kv; }
};

/// Returns the lists of the block mask: for a ragged batch, of a sequence's own rows and columns.
template <class M> ATTNC_DEVICE decltype(auto) lists_of(const ForwardParams& p) {
  if constexpr (kIsRagged<M>) {
    const RaggedRows& of = p.rows;
    return BlockLists{of.partial_count, of.partial_index, of.full_count,   of.full_index,   of.batch_stride,
                      of.head_stride,   of.index_stride,  int(of.q_block), int(of.kv_block)};
  } else {
    return (p.lists);
  }
}

/// Returns the parameters of batch entry b only. For a ragged batch they describe its sequence, as if tensors and
/// lengths were its own; strides over the batch are 0 there. Input: the type of q, k and v.
template <class M, class Input = Element, class Args>
ATTNC_DEVICE decltype(auto) params_of(const ForwardParams& p, const Args& args, int b) {
  if constexpr (kIsRagged<M>) {
    const long long q_start = q_start_of<M>(p, args, b), kv_start = kv_start_of<M>(p, args, b);
    ForwardParams own = p;
    own.q = (const Input*)p.q + q_start * p.q_stride.row;
    own.k = (const Input*)p.k + kv_start * p.k_stride.row;
    own.v = (const Input*)p.v + kv_start * p.v_stride.row;
    own.out = (Element*)p.out + q_start * p.out_stride.row;
    own.lse = p.lse ? p.lse + q_start : nullptr;
    own.row_max = p.row_max ? p.row_max + q_start : nullptr;
    own.q_len = q_length_of<M>(p, args, b);
    own.kv_len = min(kv_length_of<M>(p, args, b, 0), p.rows.kv - int(kv_start));
    return own;
  } else {
    return (p);
  }
}

/// Returns those of a backward kernel's forward pass. K and V of a padded batch also end with the sequence.
template <class M, class Args>
ATTNC_DEVICE decltype(auto) forward_params_of(const BackwardParams& p, const Args& args, int b) {
  if constexpr (kIsPadded<M>) {
    ForwardParams own = p.forward;
    own.kv_len = kv_length_of<M>(p.forward, args, b, 0);
    return own;
  } else {
    return params_of<M>(p.forward, args, b);
  }
}

template <class M, class Args> ATTNC_DEVICE decltype(auto) params_of(const BackwardParams& p, const Args& args, int b) {
  if constexpr (kIsRagged<M>) {
    const long long q_start = q_start_of<M>(p.forward, args, b), kv_start = kv_start_of<M>(p.forward, args, b);
    BackwardParams own = p;
    own.forward = params_of<M>(p.forward, args, b);
    own.d_out = (const Element*)p.d_out + q_start * p.d_out_stride.row;
    own.d_lse = p.d_lse ? p.d_lse + q_start : nullptr;
    own.delta = p.delta + q_start;
    own.row_sums = p.row_sums + q_start;
    own.d_q = (Element*)p.d_q + q_start * p.d_q_stride.row;
    own.d_k = (Element*)p.d_k + kv_start * p.d_k_stride.row;
    own.d_v = (Element*)p.d_v + kv_start * p.d_v_stride.row;
    return own;
  } else if constexpr (kIsPadded<M>) {
    BackwardParams own = p;
    own.forward = forward_params_of<M>(p, args, b);
    return own;
  } else {
    return (p);
  }
}

/// Returns how many batch entries share the rows of K and V from `start` on: none if these are padding. p: as
/// params_of() returns it.
template <class M> ATTNC_DEVICE int batches_of_kv(const BackwardParams& p, int start) {
  if constexpr (kIsPadded<M>)
    if (start >= p.forward.kv_len) return 0;
  return p.kv_batch == p.forward.batch ? 1 : p.forward.batch;
}

/// Returns the parameters by which rows of dK and dV are dealt and written: those of padding are 0. own: the ones that
/// params_of(launch, ...) returns.
template <class M>
ATTNC_DEVICE const ForwardParams& with_padding(const ForwardParams& launch, const ForwardParams& own) {
  if constexpr (kIsPadded<M>)
    return launch;
  else
    return own;
}

/// Returns where rows of (b, h) begin in lse, row_max and similar arrays: [batch, q_heads, q_len]. For a ragged batch
/// [q_heads, rows], counted from the first row of b's sequence.
template <class M> ATTNC_DEVICE long long row_of_head(const ForwardParams& p, int b, int h) {
  if constexpr (kIsRagged<M>)
    return (long long)h * p.rows.q;
  else
    return ((long long)b * p.q_heads + h) * p.q_len;
}

/// Returns the last sequence of a ragged batch for which `holds` is true; 0 if none. It must hold for a prefix of the
/// sequences.
template <class Predicate> ATTNC_DEVICE int last_sequence(int batch, Predicate holds) {
  int low = 0, high = batch - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (holds(middle))
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

/// A tile of rows of Q, or of K and V, of a batch entry.
struct RowTile {
  int b, start;
};

/// Returns the tile of `Size` rows in a slot of a ragged batch. An unused slot's tile begins before 0, or at or behind
/// the sequence's end. first_row(b): the first row of sequence b.
template <int Size, class FirstRow> ATTNC_DEVICE RowTile tile_in_slot(int slot, int batch, FirstRow first_row) {
  const int b = last_sequence(batch, [&](int b) { return first_row(b) / Size + b <= slot; });
  return {b, (slot - b - first_row(b) / Size) * Size};
}
template <class M, int Size, class Args> ATTNC_DEVICE RowTile q_tile_in_slot(const Args& args, int slot, int batch) {
  return tile_in_slot<Size>(slot, batch, [&](int b) { return q_start_of<M>(args, b); });
}
template <class M, int Size, class Args> ATTNC_DEVICE RowTile kv_tile_in_slot(const Args& args, int slot, int batch) {
  return tile_in_slot<Size>(slot, batch, [&](int b) { return kv_start_of<M>(args, b); });
}
/// Returns how many slots `rows` rows of all sequences take.
template <int Size> ATTNC_DEVICE int slots_of(int rows, int batch) { return rows / Size + batch; }
/// Returns the tiles of Q of one head; for a ragged batch, the slots.
template <class M, int Size> ATTNC_DEVICE int q_tiles_of(const ForwardParams& p) {
  if constexpr (kIsRagged<M>)
    return slots_of<Size>(p.rows.q, p.batch);
  else
    return (p.q_len + Size - 1) / Size;
}
/// The same for K and V.
template <class M, int Size> ATTNC_DEVICE int kv_tiles_of(const ForwardParams& p) {
  if constexpr (kIsRagged<M>)
    return slots_of<Size>(p.rows.kv, p.batch);
  else
    return (p.kv_len + Size - 1) / Size;
}
/// Returns the slot of a sequence's rows from `start` on, a multiple of Size.
template <class M, int Size, class Args>
ATTNC_DEVICE int q_slot_of(const ForwardParams& p, const Args& args, int b, int start) {
  return q_start_of<M>(p, args, b) / Size + b + start / Size;
}

/// Returns the index of a tile of Q over all heads, for arrays of whole tiles.
template <class M, int Size, class Args>
ATTNC_DEVICE int head_tile_of(const ForwardParams& p, const Args& args, int b, int h, int start) {
  if constexpr (kIsRagged<M>)
    return h * q_tiles_of<M, Size>(p) + q_slot_of<M, Size>(p, args, b, start);
  else
    return (b * p.q_heads + h) * q_tiles_of<M, Size>(p) + start / Size;
}

/// A row of Q, or of K and V, of a ragged batch, by its index in [heads, rows].
struct RaggedRow {
  int b, h, row;
  bool exists; ///< whether a sequence has the row
};
template <class M, class Args>
ATTNC_DEVICE RaggedRow ragged_q_row(const ForwardParams& p, const Args& args, long long index) {
  const int at = int(index % p.rows.q), h = int(index / p.rows.q);
  const int b = last_sequence(p.batch, [&](int b) { return q_start_of<M>(args, b) <= at; }),
            row = at - q_start_of<M>(args, b);
  return {b, h, row, h < p.q_heads && unsigned(row) < unsigned(q_length_of<M>(p, args, b))};
}
template <class M, class Args>
ATTNC_DEVICE RaggedRow ragged_kv_row(const ForwardParams& p, const Args& args, long long index) {
  const int at = int(index % p.rows.kv), h = int(index / p.rows.kv);
  const int b = last_sequence(p.batch, [&](int b) { return kv_start_of<M>(args, b) <= at; }),
            row = at - kv_start_of<M>(args, b);
  return {b, h, row, h < p.kv_heads && unsigned(row) < unsigned(kv_length_of<M>(p, args, b, 0))};
}

/// Whether a tile has rows of its sequence, of `length` rows. Always true if the batch is not ragged.
template <class M> ATTNC_DEVICE bool has_rows(int start, int length) {
  return !kIsRagged<M> || unsigned(start) < unsigned(length);
}

/// A tile of rows of one head: of Q, or of K and V.
struct HeadTile {
  int b, h, start;
};

/// Returns tile `index` of Q over all heads, as a grid in one dimension counts them; for a ragged batch, the slots.
// NOTE: unsigned, because then a division takes fewer instructions.
template <class M, int Size, class Args>
ATTNC_DEVICE HeadTile q_tile_at(const ForwardParams& p, const Args& args, unsigned index) {
  const unsigned tiles = q_tiles_of<M, Size>(p), head = index / tiles, i = index % tiles;
  if constexpr (kIsRagged<M>) {
    const RowTile tile = q_tile_in_slot<M, Size>(args, i, p.batch);
    return {tile.b, int(head), tile.start};
  } else {
    return {int(head / p.q_heads), int(head % p.q_heads), int(i) * Size};
  }
}
/// The same, the last rows of a head first: under causal masks they see the most keys.
template <class M, int Size, class Args>
ATTNC_DEVICE HeadTile q_tile_from_end(const ForwardParams& p, const Args& args, unsigned index) {
  const unsigned tiles = q_tiles_of<M, Size>(p), head = index / tiles;
  return q_tile_at<M, Size>(p, args, head * tiles + (tiles - 1 - index % tiles));
}
/// The same for tiles of K and V over all KV heads.
template <class M, int Size, class Args>
ATTNC_DEVICE HeadTile kv_tile_at(const ForwardParams& p, const Args& args, unsigned index) {
  const unsigned tiles = kv_tiles_of<M, Size>(p), head = index / tiles, i = index % tiles;
  if constexpr (kIsRagged<M>) {
    const RowTile tile = kv_tile_in_slot<M, Size>(args, i, p.batch);
    return {tile.b, int(head), tile.start};
  } else {
    return {int(head / p.kv_heads), int(head % p.kv_heads), int(i) * Size};
  }
}

} // namespace attnc
