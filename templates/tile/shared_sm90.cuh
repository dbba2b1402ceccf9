// Shared memory of a kernel with a producer and consumers: rings of tiles, their barriers, what the one tells the
// others, and what it computes for them. Addresses and bookkeeping only; who waits for what is up to the kernel.
#pragma once

#include "attnc_config.cuh"

#include "attnc_mod.cuh"

#include "mod/hooks.cuh"
#include "tile/tile_sm90.cuh"

namespace attnc {

constexpr int kQBytes = tile_bytes(kBlockM, kHeadDimQk);
constexpr int kOutBytes = tile_bytes(kBlockM, kHeadDimV);
/// Whether O leaves through shared memory: in the slot of its Q, which with a second one at hand is not missed yet.
constexpr bool kOutInQSlot = kQStages == 2;
static_assert(kQStages <= 2, "no more than two slots");
constexpr int kQSlotBytes = kOutInQSlot && kOutBytes > kQBytes ? kOutBytes : kQBytes;
constexpr int kKBytes = tile_bytes(kBlockN, kHeadDimQk);
constexpr int kVBytes = tile_bytes(kBlockN, kHeadDimV);

/// Bytes of the columns of one tile, where the producer computes them for all.
constexpr int kColumnBytes = kColumnsLoad<Mod> ? kBlockN * sizeof(Mod::Col) : 0;

/// What the producer tells the consumers about a tile of Q rows.
struct Work {
  int b, h, q_start, valid; // not valid: no more work
};

/// A place in a ring of `Stages` slots: which slot, and the parity of its barriers' phase.
template <int Stages> struct RingPlace {
  int slot = 0;
  unsigned parity = 0;
  /// By 1 or 0 slots, without a branch.
  ATTNC_DEVICE void advance(int by = 1) {
    const bool wrap = slot + by == Stages;
    slot = wrap ? 0 : slot + by;
    parity ^= wrap;
  }
};

/// The layout of shared memory, as addresses.
struct Shared {
  unsigned base;

  ATTNC_DEVICE unsigned q(int slot) const { return base + slot * kQSlotBytes; }
  ATTNC_DEVICE unsigned k(int slot) const { return base + kQStages * kQSlotBytes + slot * kKBytes; }
  ATTNC_DEVICE unsigned v(int slot) const { return base + kQStages * kQSlotBytes + kStages * kKBytes + slot * kVBytes; }

  ATTNC_DEVICE unsigned work(int slot) const { return base + kControl + 16 * slot; }
  ATTNC_DEVICE unsigned step(int slot) const { return base + kControl + 16 * kQStages + 8 * slot; }
  /// Mod::Col of each column of a step: kBlockN of them.
  ATTNC_DEVICE unsigned columns(int slot) const { return base + kColumns + slot * kColumnBytes; }
  ATTNC_DEVICE unsigned q_full(int slot) const { return barrier(slot); }
  ATTNC_DEVICE unsigned q_empty(int slot) const { return barrier(kQStages + slot); }
  ATTNC_DEVICE unsigned out_full(int slot) const { return barrier(2 * kQStages + slot); }
  ATTNC_DEVICE unsigned k_full(int slot) const { return barrier(3 * kQStages + slot); }
  ATTNC_DEVICE unsigned k_empty(int slot) const { return barrier(3 * kQStages + kStages + slot); }
  ATTNC_DEVICE unsigned v_full(int slot) const { return barrier(3 * kQStages + 2 * kStages + slot); }
  ATTNC_DEVICE unsigned v_empty(int slot) const { return barrier(3 * kQStages + 3 * kStages + slot); }

private:
  static constexpr int kControl = kQStages * kQSlotBytes + kStages * (kKBytes + kVBytes);
  static constexpr int kColumns = round_up(kControl + 40 * kQStages + 40 * kStages, 16);
  ATTNC_DEVICE unsigned barrier(int i) const { return base + kControl + 16 * kQStages + 8 * (kStages + i); }
};

} // namespace attnc
