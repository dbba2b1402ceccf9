// What `attnc serve` answers: the page, to who knows its address, and newer states of it.
#pragma once

#include "show/html_report.h"
#include "show/http/http_server.h"

#include <memory>
#include <mutex>
#include <string>

namespace attnc::cli {

/// Returns 32 hexadecimal digits that nobody can guess. Errors (environment): the system has no random bytes.
Expected<std::string> unguessable();

/// The page at http://127.0.0.1:PORT/TOKEN/. Thread-safe, apart from setPort().
class ServedPage {
public:
  explicit ServedPage(std::string token) : token(std::move(token)) {}
  void setPort(int number) { port = number; }

  /// Replaces the data. The page that shows older data asks for it.
  void publish(JsonReport data);
  /// Answers GET of the page, and of `state`: 204 if the page has the newest data. Refuses requests with another Host,
  /// so that no foreign name leads here, and with the Origin of another page. Without the token there is nothing.
  HttpReply answer(const HttpRequest& request) const;

private:
  struct State {
    int revision = 0;
    std::string page, json;
  };
  const std::string token;
  int port = 0;
  mutable std::mutex mutex;
  std::shared_ptr<const State> state = std::make_shared<State>();
};

} // namespace attnc::cli
