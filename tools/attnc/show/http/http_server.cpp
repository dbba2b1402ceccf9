// The module attnc_http.so: cpp-httplib behind HttpServer. This is the only file that includes it.
#include "show/http/http_server.h"

#include <httplib.h>

#include <sys/socket.h>
#include <utility>

namespace attnc::cli {
namespace {

class LoopbackServer : public HttpServer {
public:
  LoopbackServer(HttpHandler handler, std::string policy) : handler(std::move(handler)), policy(std::move(policy)) {
    server.new_task_queue = [] { return new httplib::ThreadPool(8); };
    server.set_keep_alive_timeout(1); // a connection holds a thread
    server.set_read_timeout(5);
    server.set_write_timeout(5);
    server.set_payload_max_length(1024);
    // Not SO_REUSEPORT, the library's default: a second server could take over the address and its token.
    server.set_socket_options([](socket_t socket) {
      const int yes = 1;
      ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    });
    server.set_pre_routing_handler([this](const httplib::Request& request, httplib::Response& response) {
      answer(request, response);
      return httplib::Server::HandlerResponse::Handled;
    });
  }

  int bind(int port) override {
    if (port == 0) return server.bind_to_any_port("127.0.0.1");
    return server.bind_to_port("127.0.0.1", port) ? port : -1;
  }
  bool run() override { return server.listen_after_bind(); }
  void stop() override { server.stop(); }

private:
  void answer(const httplib::Request& request, httplib::Response& response) {
    // Of several headers of a name, none is believed.
    const auto only = [&](const char* name) {
      return request.get_header_value_count(name) > 1 ? std::string("?") : request.get_header_value(name);
    };
    const std::string host = only("Host"), origin = only("Origin"), have = request.get_param_value("have");
    HttpReply reply = handler({request.method, request.path, host, origin, have});
    response.status = reply.status;
    response.set_header("Content-Security-Policy", policy + "; frame-ancestors 'none'");
    response.set_header("Cross-Origin-Opener-Policy", "same-origin");
    response.set_header("Cross-Origin-Resource-Policy", "same-origin");
    response.set_header("X-Content-Type-Options", "nosniff");
    response.set_header("Referrer-Policy", "no-referrer");
    response.set_header("Cache-Control", "no-store");
    if (reply.status != 204) response.set_content(std::move(reply.body), reply.type);
  }

  const HttpHandler handler;
  const std::string policy;
  httplib::Server server;
};

} // namespace
} // namespace attnc::cli

extern "C" attnc::cli::HttpServer* attnc_make_http_server(attnc::cli::HttpHandler handler, const char* policy) {
  return new attnc::cli::LoopbackServer(std::move(handler), policy);
}
