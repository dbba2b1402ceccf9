// HTTP on the loopback device, behind an interface without its library. The implementation is a module of its own,
// attnc_http.so, that the command opens for `attnc serve` only: its library needs OpenSSL, which takes longer to load
// than all other commands take.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace attnc::cli {

/// What of a request decides the reply. Absent headers are empty.
struct HttpRequest {
  std::string_view method, path, host, origin;
  std::string_view have; ///< the parameter of the address with this name
};

struct HttpReply {
  int status = 200;
  const char* type = "text/plain; charset=utf-8";
  std::string body = {};
};

/// Called by several threads at once.
using HttpHandler = std::function<HttpReply(const HttpRequest&)>;

class HttpServer {
public:
  virtual ~HttpServer() = default;
  /// Binds 127.0.0.1. `port`: 0 for any free one. Returns the port; -1 if it is taken.
  virtual int bind(int port) = 0;
  /// Serves until stop(). Returns whether it served.
  virtual bool run() = 0;
  /// Ends run(). Any thread may call it.
  virtual void stop() = 0;
};

/// The one function of the module, `attnc_make_http_server`. `policy`: the content security policy of all replies.
using MakeHttpServer = HttpServer* (*)(HttpHandler handler, const char* policy);

} // namespace attnc::cli
