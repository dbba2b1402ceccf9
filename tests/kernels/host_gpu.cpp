// The machine of host_gpu.h.
#include "kernels/host_gpu.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <ucontext.h>
#include <vector>

Index threadIdx, blockIdx, blockDim, gridDim;

namespace host {

unsigned char *shared, *dynamicShared;
bool vote = false;
unsigned resident = 1;

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
  std::pair<const int*, int> polled = {}; // the last load_acquire() since a barrier of the CTA
  std::map<unsigned, uint64_t> waits;     // of mbarriers so far
};
struct Warp {
  unsigned arrived[2] = {0, 0}; // of even and odd operations
  unsigned completed = 0;
  uint64_t words[2][32];
  std::map<uint64_t, unsigned[32][4]> operands;
  std::map<unsigned, uint64_t> passed; // waits of mbarriers that some lane has behind it
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

struct Cta {
  unsigned index;
  std::vector<Fiber> fibers;
  std::vector<Warp> warps;
  std::map<int, NamedBarrier> barriers;
  std::map<unsigned, Mbarrier> mbarriers;
  std::vector<std::function<void()>> events; // copies in flight
  std::vector<unsigned char> memory;         // shared memory, if several CTAs are resident
  bool vote = false;
  unsigned alive = 0;
};

struct Machine {
  std::vector<Cta> ctas; // the resident ones
  Cta* cta = nullptr;
  std::mt19937 random;
  ucontext_t main;
  Fiber* current = nullptr;
  std::function<void()> body;
  std::string error;

  unsigned draw(unsigned count) { return unsigned(random()) % count; }
  Fiber& fiber() { return *current; }
  Warp& warp() { return cta->warps[current->index / 32]; }

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
    auto& events = cta->events;
    const size_t i = draw(unsigned(events.size()));
    auto event = std::move(events[i]);
    events.erase(events.begin() + long(i));
    event();
  }
  static void enter();

  void select(Cta& next) {
    if (cta) cta->vote = vote;
    cta = &next, vote = next.vote, blockIdx.x = next.index;
    shared = next.memory.empty() ? dynamicShared : next.memory.data();
  }
  void begin(Cta& next, unsigned index) {
    next.index = index, next.vote = false, next.alive = blockDim.x;
    if (ctas.size() > 1) next.memory.resize(kSharedBytes);
    select(next);
    vote = false;
    next.fibers.resize(blockDim.x);
    next.warps.assign((blockDim.x + 31) / 32, {});
    next.barriers.clear(), next.mbarriers.clear(), next.events.clear();
    std::memset(shared, 0xff, kSharedBytes);
    for (unsigned i = 0; i < blockDim.x; ++i) {
      Fiber& fiber = next.fibers[i];
      if (fiber.stack.empty()) fiber.stack.resize(256 << 10);
      fiber.index = i, fiber.done = false, fiber.votes = 0, fiber.products = 0, fiber.polled = {};
      fiber.waits.clear();
      fiber.ready = [] { return true; };
      getcontext(&fiber.context);
      fiber.context.uc_stack = {fiber.stack.data(), 0, fiber.stack.size()};
      fiber.context.uc_link = &main;
      makecontext(&fiber.context, enter, 0);
    }
  }
  /// Runs a thread of the CTA, or a copy in flight. Returns whether there was one that need not wait.
  bool step() {
    auto& fibers = cta->fibers;
    auto& events = cta->events;
    const unsigned threads = blockDim.x;
    if (!events.empty() && draw(64) == 0) runEvent();
    unsigned i = draw(threads), tried = 0;
    while (tried < threads && (fibers[i].done || !fibers[i].ready())) i = i + 1 == threads ? 0 : i + 1, ++tried;
    if (tried == threads) {
      if (events.empty()) return false;
      runEvent();
      return true;
    }
    current = &fibers[i];
    threadIdx.x = i;
    swapcontext(&main, &current->context);
    if (fibers[i].done) --cta->alive;
    return true;
  }
  void end() {
    if (!cta->events.empty()) error = "a CTA ended with copies in flight";
    for (const Fiber& fiber : cta->fibers)
      if (!fiber.groups.empty() || !fiber.copies.empty() ||
          !std::all_of(fiber.copyGroups.begin(), fiber.copyGroups.end(), [](const auto& of) { return of.empty(); }))
        error = "a thread ended without waiting";
  }

  void run(unsigned count, std::function<void()> kernel) {
    body = std::move(kernel);
    if (ctas.size() != resident) ctas = std::vector<Cta>(resident);
    cta = nullptr;
    unsigned begun = 0, stuck = 0;
    std::vector<Cta*> running;
    for (Cta& each : ctas)
      if (begun < count) begin(each, begun++), running.push_back(&each);
    while (!running.empty() && error.empty()) {
      const bool moved = step();
      stuck = moved ? 0 : stuck + 1;
      if (stuck > 64 * running.size()) error = "CTA " + std::to_string(blockIdx.x) + ": all threads wait";
      if (cta->alive == 0) {
        end();
        if (begun < count)
          begin(*cta, begun++);
        else
          running.erase(std::find(running.begin(), running.end(), cta));
      }
      if (running.size() > 1 ? !moved || cta->alive == 0 || draw(256) == 0 : cta->alive == 0 && !running.empty())
        select(*running[draw(unsigned(running.size()))]);
    }
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
      const unsigned word =
          machine.cta->warps[thread / 32].operands.at(p.number)[lane / 4 * 4 + k % 8 / 2][r + k / 8 * 2];
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
  int64_t extent[5], strideBytes[4]; // innermost first; strides of the outer ones
  int box[3], elementBytes;          // box: along axes 1 to 3
  int rows() const { return box[0] * box[1] * box[2]; }
};
/// Calls each(address in shared memory, element of the tensor; null: none) for the elements of a box.
template <class Each> void eachOfBox(const Map& map, unsigned shared, const int (&c)[5], Each each) {
  for (int r = 0; r < map.rows(); ++r)
    for (int i = 0; i < 128 / map.elementBytes; ++i) {
      const int64_t place[5] = {c[0] + i, c[1] + r % map.box[0], c[2] + r / map.box[0] % map.box[1],
                                c[3] + r / map.box[0] / map.box[1], c[4]};
      bool isInside = true;
      int64_t offset = place[0] * map.elementBytes;
      for (int axis = 0; axis < 5; ++axis) {
        isInside &= place[axis] >= 0 && place[axis] < map.extent[axis];
        if (axis > 0) offset += place[axis] * map.strideBytes[axis - 1];
      }
      each(at(swizzled(shared + unsigned(r * 128 + i * map.elementBytes))), isInside ? map.data + offset : nullptr);
    }
}
void copyBox(const Map& map, unsigned to, const int (&c)[5]) {
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
  dynamicShared = shared;
  machine.random.seed(seed);
  blockDim.x = threads, gridDim.x = ctas;
  machine.run(ctas, [=] { kernel(params, args); });
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
  NamedBarrier& of = machine.cta->barriers[barrier];
  if (++of.arrived == threads) of.arrived = 0, ++of.generation;
  if (of.arrived > threads) machine.error = "too many threads arrive at a barrier";
}
void exitThread() { machine.exit(); }

void sync(int barrier, int threads) {
  machine.fiber().polled = {}; // what it reads behind it, it reads anew
  NamedBarrier& of = machine.cta->barriers[barrier];
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

void mbarrier_init(unsigned barrier, int arrivals) { host::machine.cta->mbarriers[barrier] = {arrivals, arrivals}; }
void mbarrier_arrive(unsigned barrier) {
  host::Mbarrier& of = host::machine.cta->mbarriers.at(barrier);
  --of.pending;
  of.check();
}
void mbarrier_expect_tx(unsigned barrier, int bytes) { host::machine.cta->mbarriers.at(barrier).bytes += bytes; }
void mbarrier_arrive_expect_tx(unsigned barrier, int bytes) {
  mbarrier_expect_tx(barrier, bytes);
  mbarrier_arrive(barrier);
}
void mbarrier_wait(unsigned barrier, unsigned parity) {
  host::Mbarrier& of = host::machine.cta->mbarriers.at(barrier);
  // Lanes of a warp wait together: one that comes late does not miss a phase that the others have seen.
  uint64_t &passed = host::machine.warp().passed[barrier], number = ++host::machine.fiber().waits[barrier];
  host::machine.wait([&, parity, number] { return passed >= number || (of.phase & 1) != parity; });
  passed = std::max(passed, number);
}

bool mbarrier_test(unsigned barrier, unsigned parity) {
  return (host::machine.cta->mbarriers.at(barrier).phase & 1) != parity;
}

int load_acquire(const int* from) {
  auto& polled = host::machine.fiber().polled;
  if (polled == std::pair(from, *from)) host::machine.wait([=, x = *from] { return *from != x; });
  polled = {from, *from};
  return *from;
}

void tma_load_5d(unsigned to, const TensorMap& map, unsigned barrier, int c0, int c1, int c2, int c3, int c4) {
  const host::Map of = *(const host::Map*)&map;
  const unsigned bytes = unsigned(of.rows()) * 128;
  std::memset(host::at(to), 0xff, bytes);
  host::machine.cta->events.push_back([=] {
    host::copyBox(of, to, {c0, c1, c2, c3, c4});
    host::Mbarrier& done = host::machine.cta->mbarriers.at(barrier);
    done.bytes -= bytes;
    done.check();
  });
}
void tma_load_4d(unsigned to, const TensorMap& map, unsigned barrier, int c0, int c1, int c2, int c3) {
  tma_load_5d(to, map, barrier, c0, c1, c2, c3, 0);
}

void tma_store_4d(const TensorMap& map, unsigned from, int c0, int c1, int c2, int c3) {
  const host::Map& to = *(const host::Map*)&map;
  host::eachOfBox(to, from, {c0, c1, c2, c3, 0}, [&](const void* element, const char* of) {
    if (of) std::memcpy((char*)of, element, size_t(to.elementBytes));
  });
}
void tma_add_5d(const TensorMap& map, unsigned from, int c0, int c1, int c2, int c3, int c4) {
  host::eachOfBox(*(const host::Map*)&map, from, {c0, c1, c2, c3, c4}, [&](const void* element, const char* of) {
    if (of) *(float*)of += *(const float*)element;
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
