// Ranks as threads of one process, and an engine that carries bytes between them.
#pragma once

#include "attnc/sharded.h"

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace attnc::test {

/// What is on its way between ranks.
class Post {
public:
  /// Returns the engine of a rank.
  ShardEngine engineOf(int rank) {
    auto coming = std::make_shared<std::vector<ShardMessage>>();
    return {.exchange = [this, rank, coming](const std::vector<ShardMessage>& sends,
                                             const std::vector<ShardMessage>& receives, Stream) -> Status {
              for (const ShardMessage& message : sends) {
                const char* bytes = static_cast<const char*>(message.data);
                std::lock_guard lock(mutex);
                boxes[{rank, message.peer}].emplace_back(bytes, bytes + message.bytes);
              }
              changed.notify_all();
              *coming = receives;
              // An engine may write at once: nobody needs what is there.
              for (const ShardMessage& message : receives) std::memset(message.data, 0xff, message.bytes);
              return {};
            },
            .wait = [this, rank, coming]() -> Status {
              for (const ShardMessage& message : *coming) {
                std::unique_lock lock(mutex);
                std::deque<std::vector<char>>& box = boxes[{message.peer, rank}];
                if (!changed.wait_for(lock, std::chrono::seconds(60), [&] { return !box.empty() || isClosed; }) ||
                    box.empty())
                  return Error::environment("a message did not come");
                if (box.front().size() != message.bytes) return Error::environment("a message has another size");
                std::memcpy(message.data, box.front().data(), message.bytes);
                box.pop_front();
              }
              return {};
            }};
  }

  /// Lets nobody wait longer: a rank has died.
  void close() {
    const std::lock_guard lock(mutex);
    isClosed = true;
    changed.notify_all();
  }

  /// Whether all messages have been taken.
  bool isEmpty() const {
    for (const auto& [ranks, box] : boxes)
      if (!box.empty()) return false;
    return true;
  }

private:
  std::mutex mutex;
  std::condition_variable changed;
  bool isClosed = false;
  std::map<std::pair<int, int>, std::deque<std::vector<char>>> boxes;
};

/// Runs work(rank) for each rank in a thread of its own. Returns the first error.
template <class Work> Status onRanks(int world, Work work) {
  std::vector<Status> results;
  results.resize(size_t(world));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank) threads.emplace_back([&, rank] { results[size_t(rank)] = work(rank); });
  for (std::thread& thread : threads) thread.join();
  for (Status& result : results)
    if (!result) return std::move(result);
  return {};
}

} // namespace attnc::test
