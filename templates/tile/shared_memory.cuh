// A CTA's dynamic shared memory as the list of its parts.
//
//   using Memory = SharedMemory<A, B>;        A and B have kBytes and kAlign
//   Memory::kBytes                            of all parts; the host requests it: kSharedBytes in attnc_config.cuh
//   Memory::offset_of<B>()                    where a part begins
//   Memory::initialise_barriers(shared)       calls initialise(address) of all parts that have barriers
#pragma once

#include "tile/element.cuh"

namespace attnc {

template <class... Parts> struct SharedMemory {
  template <class Part> ATTNC_DEVICE static constexpr int offset_of() {
    int offset = 0;
    bool found = false;
    (..., (found || (offset = round_up(offset, Parts::kAlign), found = Same<Part, Parts>::value,
                     offset += found ? 0 : Parts::kBytes, false)));
    return offset;
  }
  static constexpr int kBytes = [] {
    int offset = 0;
    (..., (offset = round_up(offset, Parts::kAlign) + Parts::kBytes));
    return offset;
  }();

  /// Called by one thread, before fence_mbarrier_init().
  ATTNC_DEVICE static void initialise_barriers(unsigned shared) {
    (..., initialise_part<Parts>(shared + offset_of<Parts>()));
  }

private:
  template <class Part> ATTNC_DEVICE static void initialise_part(unsigned at) {
    if constexpr (requires { Part::initialise(at); }) Part::initialise(at);
  }
};

/// A part of plain bytes.
template <class Name, int Bytes, int Align = 16> struct SharedPart {
  static constexpr int kBytes = Bytes;
  static constexpr int kAlign = Align;
};

} // namespace attnc
