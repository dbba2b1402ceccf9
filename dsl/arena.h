// Owns objects that point at one another: syntax nodes, and objects of the tracer. All are freed together, one by one
// and without recursion, so that a structure of any depth or shape (cycles included) is freed safely.
#pragma once

#include <memory>
#include <utility>
#include <vector>

namespace attnc::dsl {

class Arena {
public:
  /// Makes an object. The arena owns it; it is valid as long as the arena lives.
  template <class T, class... Args> T* make(Args&&... args) {
    auto object = std::make_shared<T>(T{std::forward<Args>(args)...});
    T* raw = object.get();
    objects.push_back(std::move(object));
    return raw;
  }

private:
  std::vector<std::shared_ptr<void>> objects;
};

} // namespace attnc::dsl
