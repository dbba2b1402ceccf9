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

/// Copies messages from and to the memory of tensors.
struct MessageMemory {
  std::function<Status(void* host, const void* data, size_t bytes, Stream)> read = [](void* host, const void* data,
                                                                                      size_t bytes, Stream) -> Status {
    std::memcpy(host, data, bytes);
    return {};
  };
  std::function<Status(void* data, const void* host, size_t bytes, Stream)> write = [](void* data, const void* host,
                                                                                       size_t bytes, Stream) -> Status {
    std::memcpy(data, host, bytes);
    return {};
  };
};

/// What is on its way between ranks.
class Post {
public:
  explicit Post(MessageMemory memory = {}) : memory(std::move(memory)) {}

  /// Returns the engine of a rank. It refuses messages that change while they are on their way.
  ShardEngine engineOf(int rank) {
    auto going = std::make_shared<std::vector<Sent>>();
    auto coming = std::make_shared<std::vector<ShardMessage>>();
    auto stream = std::make_shared<Stream>();
    return {.exchange = [=, this](const std::vector<ShardMessage>& sends, const std::vector<ShardMessage>& receives,
                                  Stream on) -> Status {
              going->clear();
              *stream = on, *coming = receives;
              for (const ShardMessage& message : sends) {
                going->push_back({message.data, std::vector<char>(message.bytes)});
                std::vector<char>& content = going->back().content;
                if (Status read = memory.read(content.data(), message.data, message.bytes, on); !read) return read;
                std::lock_guard lock(mutex);
                boxes[{rank, message.peer}].push_back(content);
              }
              changed.notify_all();
              // An engine may write at once: nobody needs what is there.
              for (const ShardMessage& message : receives) {
                const std::vector<char> nothing(message.bytes, char(0xff));
                if (Status done = memory.write(message.data, nothing.data(), message.bytes, on); !done) return done;
              }
              return {};
            },
            .wait = [=, this]() -> Status {
              for (const Sent& sent : *going) {
                std::vector<char> now(sent.content.size());
                if (Status read = memory.read(now.data(), sent.data, now.size(), *stream); !read) return read;
                if (now != sent.content) return Error::environment("a message has changed");
              }
              for (const ShardMessage& message : *coming) {
                std::unique_lock lock(mutex);
                std::deque<std::vector<char>>& box = boxes[{message.peer, rank}];
                if (!changed.wait_for(lock, std::chrono::seconds(60), [&] { return !box.empty() || isClosed; }) ||
                    box.empty())
                  return Error::environment("a message did not come");
                const std::vector<char> content = std::move(box.front());
                box.pop_front();
                lock.unlock();
                if (content.size() != message.bytes) return Error::environment("a message has another size");
                if (Status done = memory.write(message.data, content.data(), message.bytes, *stream); !done)
                  return done;
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
  struct Sent {
    const void* data;
    std::vector<char> content;
  };
  const MessageMemory memory;
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
