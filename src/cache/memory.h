// The most recently used values of this process, by key. Not thread-safe: its owner locks.
#pragma once

#include "cache/sha256.h"

#include <list>
#include <map>
#include <memory>
#include <string>

namespace attnc::cache {

class Memory {
public:
  using Bytes = std::shared_ptr<const std::string>;

  explicit Memory(size_t capacity) : capacity(capacity) {}

  /// Returns the value; nullptr if not found.
  Bytes find(const Digest& key) {
    auto found = index.find(key);
    if (found == index.end()) return nullptr;
    order.splice(order.begin(), order, found->second);
    return order.front().second;
  }

  /// Adds a value; forgets the least recently used one if there are too many. Holders of its pointer keep the bytes
  /// alive.
  void put(const Digest& key, Bytes bytes) {
    if (find(key)) {
      order.front().second = std::move(bytes);
      return;
    }
    order.emplace_front(key, std::move(bytes));
    index[key] = order.begin();
    if (order.size() <= capacity) return;
    index.erase(order.back().first);
    order.pop_back();
  }

private:
  using Order = std::list<std::pair<Digest, Bytes>>; ///< most recently used first
  size_t capacity;
  Order order;
  std::map<Digest, Order::iterator> index;
};

} // namespace attnc::cache
