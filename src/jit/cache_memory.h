// The most recently used kernels of this process, by key. Not thread-safe: its owner locks.
#pragma once

#include "jit/compile_job.h"
#include "jit/sha256.h"

#include <list>
#include <map>
#include <memory>

namespace attnc::jit {

class CacheMemory {
public:
  using Kernel = std::shared_ptr<const CompileResult>;

  explicit CacheMemory(size_t capacity) : capacity(capacity) {}

  /// nullptr: not here.
  Kernel find(const Digest& key) {
    auto found = index.find(key);
    if (found == index.end()) return nullptr;
    order.splice(order.begin(), order, found->second);
    return order.front().second;
  }

  /// Forgets the least recently used kernel when there are too many. Its users keep it alive.
  void put(const Digest& key, Kernel kernel) {
    if (find(key)) {
      order.front().second = std::move(kernel);
      return;
    }
    order.emplace_front(key, std::move(kernel));
    index[key] = order.begin();
    if (order.size() <= capacity) return;
    index.erase(order.back().first);
    order.pop_back();
  }

private:
  using Order = std::list<std::pair<Digest, Kernel>>; ///< most recently used first
  size_t capacity;
  Order order;
  std::map<Digest, Order::iterator> index;
};

} // namespace attnc::jit
