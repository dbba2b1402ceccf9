// Pipelines: rings of slots in shared memory, through which one role of a CTA hands tiles to others (sm_90).
//
// A slot is a tile, a short message about it, and two mbarriers. Each role has a Ring of its own, which is its
// position: a slot, and the parity of its barriers' phase.
//
//   producer   acquire(), fills the slot, commit() or arrivals of copies at full(), advance()
//   consumer   wait(), uses the slot, release() or an arrival at empty(), advance()
#pragma once

#include "ptx/mbarrier.cuh"
#include "ptx/shared_memory.cuh"
#include "tile/shared_memory.cuh"

namespace attnc {

/// One lane of each warp arrives at `barrier` once the whole warp is done. Does nothing unless `really`.
ATTNC_DEVICE void arrive_by_warp(unsigned barrier, bool really = true) {
  __syncwarp();
  if (really && threadIdx.x % 32 == 0) ptx::mbarrier_arrive(barrier);
}

/// How many arrivals complete a phase of a slot's barriers.
struct Arrivals {
  int full, empty;
};

/// A ring's shared memory: `Slots` and `Control` are parts for SharedMemory. `Name` tells rings apart. SlotBytes: those
/// of a tile, or more.
template <class Name, class Tile_, int Count, int MessageWords, Arrivals Expected, int SlotBytes = Tile_::kBytes>
struct RingParts {
  using Tile = Tile_;
  static constexpr int kCount = Count;
  static constexpr int kSlotBytes = SlotBytes;
  static constexpr int kMessageWords = MessageWords;
  struct Slots {
    static constexpr int kBytes = Count * SlotBytes;
    static constexpr int kAlign = 1024;
  };
  struct Control {
    static constexpr int kBarriers = Count * 4 * MessageWords; ///< where barriers begin: full ones, then empty ones
    static constexpr int kBytes = kBarriers + Count * 16;
    static constexpr int kAlign = 16;
    ATTNC_DEVICE static void initialise(unsigned at) {
      for (int i = 0; i < Count; ++i) {
        ptx::mbarrier_init(at + kBarriers + 8 * i, Expected.full);
        ptx::mbarrier_init(at + kBarriers + 8 * (Count + i), Expected.empty);
      }
    }
  };
};

template <class Memory, class Parts> struct Ring {
  using Tile = typename Parts::Tile;
  using Message = int[Parts::kMessageWords ? Parts::kMessageWords : 1];

  unsigned base; ///< of the CTA's shared memory
  int slot = 0;
  unsigned parity = 0;

  /// Advances by 1 or 0 slots, without a branch.
  ATTNC_DEVICE void advance(int by = 1) {
    const bool wrap = slot + by == Parts::kCount;
    slot = wrap ? 0 : slot + by;
    parity ^= wrap;
  }

  ATTNC_DEVICE Tile tile() const { return tile_of(slot); }
  ATTNC_DEVICE Tile tile_of(int i) const {
    return {base + Memory::template offset_of<typename Parts::Slots>() + i * Parts::kSlotBytes};
  }
  ATTNC_DEVICE unsigned full() const { return full_of(slot); }
  ATTNC_DEVICE unsigned empty() const { return empty_of(slot); }
  /// Returns the slot before this one.
  ATTNC_DEVICE int slot_before() const { return slot ? slot - 1 : Parts::kCount - 1; }
  ATTNC_DEVICE unsigned empty_before() const { return empty_of(slot_before()); }

  ATTNC_DEVICE void wait() const { ptx::mbarrier_wait(full(), parity); }
  /// In the first round every slot is empty.
  ATTNC_DEVICE void acquire() const { ptx::mbarrier_wait(empty(), parity ^ 1); }
  /// Whether wait() would return at once. May itself wait briefly.
  ATTNC_DEVICE bool try_wait() const { return ptx::mbarrier_test(full(), parity); }

  /// Called by all lanes of each warp that uses a slot, after the products that read it and all reads of its message.
  ATTNC_DEVICE void release(bool really = true) const { arrive_by_warp(empty(), really); }
  ATTNC_DEVICE void release_before(bool really = true) const { arrive_by_warp(empty_before(), really); }
  /// Called by all lanes of each warp that fills a slot.
  ATTNC_DEVICE void commit(bool really = true) const { arrive_by_warp(full(), really); }

  /// The slot's message: written before the arrival at `full`, read after waiting for it.
  ATTNC_DEVICE void write_message(const Message& words) const { ptx::st_shared(message(), words); }
  ATTNC_DEVICE void read_message(Message& words) const { ptx::ld_shared(words, message()); }

private:
  ATTNC_DEVICE unsigned control() const { return base + Memory::template offset_of<typename Parts::Control>(); }
  ATTNC_DEVICE unsigned message() const { return control() + 4 * Parts::kMessageWords * slot; }
  ATTNC_DEVICE unsigned empty_of(int i) const { return full_of(Parts::kCount + i); }
  ATTNC_DEVICE unsigned full_of(int i) const { return control() + Parts::Control::kBarriers + 8 * i; }
};

/// Barriers only, for a hand-over whose slots belong to a ring. `Expected`: arrivals that complete a phase.
template <class Name, int Count, int Expected> struct BarrierParts : SharedPart<Name, 8 * Count, 8> {
  ATTNC_DEVICE static void initialise(unsigned at) {
    for (int i = 0; i < Count; ++i) ptx::mbarrier_init(at + 8 * i, Expected);
  }
};
template <class Memory, class Parts> struct Barriers {
  unsigned base;
  ATTNC_DEVICE unsigned operator[](int i) const { return base + Memory::template offset_of<Parts>() + 8 * i; }
};

} // namespace attnc
