#include "show/served_page.h"

#include "support/try.h"

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <sys/random.h>
#include <utility>

namespace attnc::cli {
namespace {

/// Compares in a time that does not tell where the texts differ.
bool areEqual(std::string_view a, std::string_view b) {
  unsigned difference = a.size() != b.size();
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) difference |= unsigned(a[i] ^ b[i]);
  return difference == 0;
}

} // namespace

Expected<std::string> unguessable() {
  std::array<unsigned char, 16> bytes{};
  ssize_t count = -1;
  do count = ::getrandom(bytes.data(), bytes.size(), 0);
  while (count < 0 && errno == EINTR);
  if (count != ssize_t(bytes.size()))
    return Error::environment(fmt::format("no random bytes: {}", std::strerror(errno)));
  std::string text;
  for (unsigned char byte : bytes) text += fmt::format("{:02x}", unsigned(byte));
  return text;
}

void ServedPage::publish(JsonReport data) {
  auto next = std::make_shared<State>();
  next->revision = state->revision + 1; // only this function writes, and one thread at a time calls it
  data["live"] = true;
  data["revision"] = next->revision;
  next->page = htmlPage(data);
  next->json = jsonText(data);
  const std::lock_guard lock(mutex);
  state = std::move(next);
}

HttpReply ServedPage::answer(const HttpRequest& request) const {
  const std::string here[] = {fmt::format("127.0.0.1:{}", port), fmt::format("localhost:{}", port)};
  if (request.host != here[0] && request.host != here[1]) return {403, "text/plain", "another host\n"};
  if (!request.origin.empty() && request.origin != "http://" + here[0] && request.origin != "http://" + here[1])
    return {403, "text/plain", "another origin\n"};
  if (request.method != "GET") return {405, "text/plain", "only GET\n"};
  const std::string_view path = request.path;
  const size_t length = token.size() + 1;
  if (!areEqual(path.substr(0, length), "/" + token)) return {404, "text/plain", "nothing here\n"};
  const std::shared_ptr<const State> now = [&] {
    const std::lock_guard lock(mutex);
    return state;
  }();
  if (path.substr(length) == "/") return {200, "text/html; charset=utf-8", now->page};
  if (path.substr(length) != "/state") return {404, "text/plain", "nothing here\n"};
  if (request.have == std::to_string(now->revision)) return {204};
  return {200, "application/json", now->json};
}

} // namespace attnc::cli
