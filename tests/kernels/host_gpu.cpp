// The machine of host_gpu.h.
#include "kernels/host_gpu.h"

#include <deque>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <ucontext.h>
#include <vector>

Index threadIdx, blockIdx, blockDim, gridDim;

namespace host {

unsigned char* shared;
bool vote = false;

namespace {

/// The 128-byte swizzle: three bits of an address are mixed with those above them.
inline unsigned swizzled(unsigned address) { return address ^ (address >> 7 & 7) << 4; }

struct Fiber {
  ucontext_t context;
  std::function<bool()> ready;
  bool done = false;
  unsigned index;
  std::vector<char> stack;
  unsigned votes = 0; // warp operations so far
  uint64_t products = 0;
  std::vector<Product> open;
  std::deque<std::vector<Product>> groups;
  std::vector<std::function<void()>> copies; // of cp.async, in no group yet
  std::deque<std::vector<std::function<void()>>> copyGroups;
};
struct Warp {
  unsigned arrived[2] = {0, 0}; // of even and odd operations
  unsigned completed = 0;
  uint64_t words[2][32];
  std::map<uint64_t, unsigned[32][4]> operands;
};
struct NamedBarrier {
  int arrived = 0;
  unsigned generation = 0;
};
struct Mbarrier {
  int expected = 0, pending = 0;
  int64_t bytes = 0;
  unsigned phase = 0;
  void check() {
    if (pending == 0 && bytes == 0) ++phase, pending = expected;
  }
};

struct Machine {
  std::vector<Fiber> fibers;
  std::vector<Warp> warps;
  std::map<int, NamedBarrier> barriers;
  std::map<unsigned, Mbarrier> mbarriers;
  std::vector<std::function<void()>> events; // copies in flight
  std::mt19937 random;
  ucontext_t main;
  Fiber* current = nullptr;
  std::function<void()> body;
  std::string error;

  unsigned draw(unsigned count) { return unsigned(random()) % count; }
  Fiber& fiber() { return *current; }
  Warp& warp() { return warps[current->index / 32]; }

  void wait(std::function<bool()> ready) {
    if (ready() && draw(4)) return;
    current->ready = std::move(ready);
    swapcontext(&current->context, &main);
  }
  [[noreturn]] void exit() {
    current->done = true;
    swapcontext(&current->context, &main);
    std::abort(); // nobody resumes it
  }
  void runEvent() {
    const size_t i = draw(unsigned(events.size()));
    auto event = std::move(events[i]);
    events.erase(events.begin() + long(i));
    event();
  }
  static void enter();

  bool run(unsigned threads, std::function<void()> kernel) {
    body = std::move(kernel);
    fibers.resize(threads);
    warps.assign((threads + 31) / 32, {});
    barriers.clear(), mbarriers.clear();
    std::memset(shared, 0xff, kSharedBytes);
    for (unsigned i = 0; i < threads; ++i) {
      Fiber& fiber = fibers[i];
      if (fiber.stack.empty()) fiber.stack.resize(256 << 10);
      fiber.index = i, fiber.done = false, fiber.votes = 0, fiber.products = 0;
      fiber.ready = [] { return true; };
      getcontext(&fiber.context);
      fiber.context.uc_stack = {fiber.stack.data(), 0, fiber.stack.size()};
      fiber.context.uc_link = &main;
      makecontext(&fiber.context, enter, 0);
    }
    for (unsigned alive = threads; alive > 0;) {
      if (!events.empty() && draw(64) == 0) runEvent();
      unsigned i = draw(threads), tried = 0;
      while (tried < threads && (fibers[i].done || !fibers[i].ready())) i = i + 1 == threads ? 0 : i + 1, ++tried;
      if (tried == threads) {
        if (events.empty()) {
          error = "CTA " + std::to_string(blockIdx.x) + ": all threads wait";
          return false;
        }
        runEvent();
        continue;
      }
      current = &fibers[i];
      threadIdx.x = i;
      swapcontext(&main, &current->context);
      if (fibers[i].done) --alive;
    }
    if (!events.empty()) error = "a CTA ended with copies in flight";
    for (const Fiber& fiber : fibers)
      if (!fiber.groups.empty() || !fiber.copies.empty() || !fiber.copyGroups.empty())
        error = "a thread ended without waiting";
    return error.empty();
  }
};
Machine machine;
void Machine::enter() {
  machine.body();
  machine.current->done = true;
}

unsigned startOf(uint64_t descriptor) { return unsigned(descriptor & 0x3fff) << 4; }
/// Returns the address of an element of a matrix: `outer` counts rows of A, columns of B, and `k` is along K.
unsigned addressOf(uint64_t descriptor, bool isMnMajor, int outer, int k) {
  const unsigned leading = unsigned(descriptor >> 16 & 0x3fff) << 4, stride = unsigned(descriptor >> 32 & 0x3fff) << 4;
  const unsigned linear = isMnMajor ? unsigned(outer / 64) * leading + unsigned(k / 8) * stride +
                                          unsigned(k % 8) * 128 + unsigned(outer % 64) * 2
                                    : unsigned(outer / 8) * stride + unsigned(outer % 8) * 128 + unsigned(k) * 2;
  return swizzled(startOf(descriptor) + linear);
}

void multiply(const Product& p, unsigned thread) {
  const int lane = int(thread % 32), warp = int(thread / 32 % 4), g = lane / 4, t = lane % 4;
  float a[2][16];
  for (int r = 0; r < 2; ++r)
    for (int k = 0; k < 16; ++k) {
      if (!p.hasRegisters) {
        a[r][k] = p.element(at(addressOf(p.a, p.isMnMajorA, 16 * warp + g + 8 * r, k)));
        continue;
      }
      const unsigned word = machine.warps[thread / 32].operands.at(p.number)[lane / 4 * 4 + k % 8 / 2][r + k / 8 * 2];
      const unsigned short half = (unsigned short)(k % 2 ? word >> 16 : word);
      a[r][k] = p.element((const unsigned char*)&half);
    }
  for (int n = 0; n < p.columns / 8; ++n)
    for (int e = 0; e < 2; ++e) {
      float sum[2] = {0, 0};
      for (int k = 0; k < 16; ++k) {
        const float b = p.element(at(addressOf(p.b, p.isMnMajorB, 8 * n + 2 * t + e, k)));
        for (int r = 0; r < 2; ++r) sum[r] += a[r][k] * b;
      }
      for (int r = 0; r < 2; ++r) {
        float& d = p.d[4 * n + 2 * r + e];
        d = (p.accumulates ? d : 0.f) + sum[r];
      }
    }
}

/// A tensor map: what the copy engine of this machine reads of TensorMap.
struct Map {
  const char* data;
  int64_t extent[4], strideBytes[3]; // innermost first; strides of the outer three
  int boxRows, elementBytes;
};
/// Calls each(address in shared memory, element of the tensor; null: none) for the elements of a box.
template <class Each> void eachOfBox(const Map& map, unsigned shared, const int (&c)[4], Each each) {
  for (int r = 0; r < map.boxRows; ++r)
    for (int i = 0; i < 128 / map.elementBytes; ++i) {
      const int64_t at4[4] = {c[0] + i, c[1] + r, c[2], c[3]};
      bool isInside = true;
      for (int axis = 0; axis < 4; ++axis) isInside &= at4[axis] >= 0 && at4[axis] < map.extent[axis];
      const int64_t offset = at4[0] * map.elementBytes + at4[1] * map.strideBytes[0] + at4[2] * map.strideBytes[1] +
                             at4[3] * map.strideBytes[2];
      each(at(swizzled(shared + unsigned(r * 128 + i * map.elementBytes))), isInside ? map.data + offset : nullptr);
    }
}
void copyBox(const Map& map, unsigned to, const int (&c)[4]) {
  const auto bytes = size_t(map.elementBytes);
  eachOfBox(map, to, c, [=](void* element, const char* of) {
    of ? std::memcpy(element, of, bytes) : std::memset(element, 0, bytes);
  });
}

void runProducts(std::vector<Product>& group) {
  for (const Product& product : group) multiply(product, machine.current->index);
  group.clear();
}

} // namespace

const char* run(unsigned ctas, unsigned threads, unsigned seed, unsigned char* shared,
                void (*kernel)(const void* params, const void* args), const void* params, const void* args) {
  machine.error.clear();
  host::shared = shared;
  machine.random.seed(seed);
  blockDim.x = threads, gridDim.x = ctas;
  for (blockIdx.x = 0; blockIdx.x < ctas; ++blockIdx.x)
    if (!machine.run(threads, [=] { kernel(params, args); })) break;
  return machine.error.c_str();
}

const uint64_t* exchange(uint64_t word) {
  Warp& of = machine.warp();
  const unsigned number = machine.current->votes++, side = number % 2;
  of.words[side][machine.current->index % 32] = word;
  if (++of.arrived[side] == 32) of.arrived[side] = 0, of.completed = number + 1;
  machine.wait([&of, number] { return of.completed > number; });
  return of.words[side];
}

void arrive(int barrier, int threads) {
  NamedBarrier& of = machine.barriers[barrier];
  if (++of.arrived == threads) of.arrived = 0, ++of.generation;
  if (of.arrived > threads) machine.error = "too many threads arrive at a barrier";
}
void exitThread() { machine.exit(); }

void sync(int barrier, int threads) {
  NamedBarrier& of = machine.barriers[barrier];
  const unsigned generation = of.generation;
  arrive(barrier, threads);
  machine.wait([&of, generation] { return of.generation != generation; });
}

void add(const Product& product) { machine.fiber().open.push_back(product); }
uint64_t keep(const unsigned (&a)[4]) {
  const uint64_t number = machine.fiber().products++ % 256;
  std::memcpy(machine.warp().operands[number][machine.fiber().index % 32], a, sizeof a);
  return number;
}
void waitForCopies(size_t pending) {
  auto& groups = machine.fiber().copyGroups;
  for (; groups.size() > pending; groups.pop_front())
    for (auto& copy : groups.front()) copy();
}
void waitForProducts(size_t pending) {
  auto& groups = machine.fiber().groups;
  for (; groups.size() > pending; groups.pop_front()) runProducts(groups.front());
}

} // namespace host

namespace attnc::ptx {

void cp_async_16(unsigned to, const void* from, int bytes) {
  std::memset(host::at(to), 0xff, 16);
  host::machine.fiber().copies.push_back([=] {
    std::memset(host::at(to), 0, 16);
    std::memcpy(host::at(to), from, size_t(bytes));
  });
}
void cp_async_commit_group() {
  host::Fiber& fiber = host::machine.fiber();
  fiber.copyGroups.push_back(std::move(fiber.copies));
  fiber.copies.clear();
}

void mbarrier_init(unsigned barrier, int arrivals) { host::machine.mbarriers[barrier] = {arrivals, arrivals}; }
void mbarrier_arrive(unsigned barrier) {
  host::Mbarrier& of = host::machine.mbarriers.at(barrier);
  --of.pending;
  of.check();
}
void mbarrier_expect_tx(unsigned barrier, int bytes) { host::machine.mbarriers.at(barrier).bytes += bytes; }
void mbarrier_arrive_expect_tx(unsigned barrier, int bytes) {
  mbarrier_expect_tx(barrier, bytes);
  mbarrier_arrive(barrier);
}
void mbarrier_wait(unsigned barrier, unsigned parity) {
  host::Mbarrier& of = host::machine.mbarriers.at(barrier);
  host::machine.wait([&of, parity] { return (of.phase & 1) != parity; });
}

bool mbarrier_test(unsigned barrier, unsigned parity) {
  return (host::machine.mbarriers.at(barrier).phase & 1) != parity;
}

void tma_load_4d(unsigned to, const TensorMap& map, unsigned barrier, int c0, int c1, int c2, int c3) {
  const host::Map of = *(const host::Map*)&map;
  const unsigned bytes = unsigned(of.boxRows) * 128;
  std::memset(host::at(to), 0xff, bytes);
  host::machine.events.push_back([=] {
    host::copyBox(of, to, {c0, c1, c2, c3});
    host::Mbarrier& done = host::machine.mbarriers.at(barrier);
    done.bytes -= bytes;
    done.check();
  });
}

void tma_store_4d(const TensorMap& map, unsigned from, int c0, int c1, int c2, int c3) {
  const host::Map& to = *(const host::Map*)&map;
  host::eachOfBox(to, from, {c0, c1, c2, c3}, [&](const void* element, const char* of) {
    if (of) std::memcpy((char*)of, element, size_t(to.elementBytes));
  });
}

void wgmma_commit_group() {
  host::exchange(0); // the operands of all lanes are there
  host::Fiber& fiber = host::machine.fiber();
  fiber.groups.push_back(std::move(fiber.open));
  fiber.open.clear();
  if (fiber.groups.size() == 1 && host::machine.draw(2)) host::runProducts(fiber.groups.back());
}

} // namespace attnc::ptx
