// `attnc serve`: a page that follows a mod while it is edited.
//
// One thread watches the file and evaluates it, so that there is one evaluation at a time. The server's threads only
// hand out what it found. The first thread waits for Ctrl-C.
#include "commands/command.h"
#include "problem/explain_options.h"
#include "show/served_page.h"
#include "text.h"

#include "attnc/version.h"
#include "support/try.h"

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <dlfcn.h>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <sys/stat.h>
#include <thread>
#include <tuple>

namespace attnc::cli {
namespace {

namespace fs = std::filesystem;

constexpr auto kPause = std::chrono::milliseconds(150); // between looks at the file
constexpr int64_t kMostTextBytes = int64_t(1) << 20;

struct ServeOptions {
  ExplainOptions explain;
  int port = 0;

  const std::string& path() const { return explain.mod.path; }
};

#ifdef ATTNC_HTTP_FOLDER
/// Opens attnc_http.so next to this program, or where it is installed. It stays open.
Expected<MakeHttpServer> httpModule() {
  std::error_code error;
  const fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  std::string why;
  for (const fs::path& path : {folder / "attnc_http.so", folder / ATTNC_HTTP_FOLDER / "attnc_http.so"}) {
    if (!fs::exists(path, error)) continue;
    if (void* module = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL))
      if (void* function = ::dlsym(module, "attnc_make_http_server")) return reinterpret_cast<MakeHttpServer>(function);
    why = ::dlerror();
  }
  return Error::environment(why.empty() ? "attnc_http.so is not installed" : "cannot open attnc_http.so: " + why,
                            "it needs cpp-httplib: the package libcpp-httplib-dev");
}
#else
Expected<MakeHttpServer> httpModule() {
  return Error::environment("this attnc was built without `serve`: cpp-httplib was not installed",
                            "install libcpp-httplib-dev and pkg-config, then build again; `attnc explain --html FILE` "
                            "writes the page without a server");
}
#endif

/// What tells whether a file has changed: inode, bytes, seconds, nanoseconds. Nothing: there is no file.
using FileStamp = std::optional<std::tuple<ino_t, off_t, time_t, long>>;

FileStamp stampOf(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return {};
  return std::tuple(status.st_ino, status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec);
}

/// Reads the file to show it. A device or a pipe is no file here.
Expected<std::string> textOf(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode))
    return Error::environment(fmt::format("{} is no file that can be read", inQuotes(path)));
  if (status.st_size > kMostTextBytes)
    return Error::environment(fmt::format("{} has more than {} bytes", inQuotes(path), kMostTextBytes));
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (file.bad()) return Error::environment(fmt::format("cannot read {}", inQuotes(path)));
  return text;
}

Expected<JsonReport> evaluate(const ServeOptions& options, const Target& target) {
  ATTNC_TRY_AS(loaded, options.explain.mod.load());
  ATTNC_TRY_AS(mod, pinned(*loaded, options.explain.kernel));
  ATTNC_TRY_AS(all, explanationOf(*mod, options.explain, target));
  return pageData(*mod, *all);
}

/// The same, with everything that is thrown as an error: after an edit, options may not fit the mod.
Expected<JsonReport> tryToEvaluate(const ServeOptions& options, const Target& target) {
  try {
    return evaluate(options, target);
  } catch (const CLI::Error& error) {
    return Error::environment(error.what(), "the options of `attnc serve` do not fit this text");
  } catch (const std::bad_alloc&) {
    return Error::environment("out of memory");
  } catch (const std::exception& error) {
    return Error::internal(error.what());
  }
}

/// Evaluates the file whenever it changes.
class Follower {
public:
  Follower(const ServeOptions& options, Target target, ServedPage& page)
      : options(options), target(std::move(target)), page(page) {
    good["title"] = fs::path(options.path()).filename().string();
    good["version"] = ATTNC_VERSION;
    good["text"] = "";
    page.publish(good);
  }

  /// Looks once.
  void look() {
    const FileStamp now = stampOf(options.path());
    if (now == seen && !isFirst) return;
    // Some editors remove a file and write it anew: it counts as gone at the second look.
    if (!now && !std::exchange(isGone, true)) return;
    isGone = false;
    isFirst = false;
    seen = now;
    isBusy = true;
    update();
    isBusy = false;
  }

  std::atomic<bool> isBusy = false;

private:
  void update() {
    auto text = textOf(options.path());
    auto found = text ? tryToEvaluate(options, target) : Expected<JsonReport>(text.error());
    if (found) {
      good = *found;
      page.publish(good);
      return;
    }
    JsonReport stale = good; // what was right last, with the new text and what is wrong
    stale["text"] = text ? *text : "";
    stale["error"] = JsonReport::parse(toJson(found.error()));
    page.publish(std::move(stale));
  }

  const ServeOptions& options;
  const Target target;
  ServedPage& page;
  FileStamp seen;
  bool isFirst = true, isGone = false;
  JsonReport good; ///< the data of the last text that was right
};

/// Blocks the signals that end the server, in this thread and those that it starts, and returns them.
sigset_t blockedSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&signals, signal);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return signals;
}

Status serve(const ServeOptions& options, const Target& target) {
  ATTNC_TRY_AS(make, httpModule());
  ATTNC_TRY_AS(token, unguessable());
  ServedPage page(*token);
  const std::unique_ptr<HttpServer> server(
      (*make)([&page](const HttpRequest& request) { return page.answer(request); }, pagePolicy().c_str()));
  const int port = server->bind(options.port);
  if (port < 0)
    return Error::environment(fmt::format("port {} of 127.0.0.1 cannot be had", options.port),
                              "--port 0 takes a free one");
  page.setPort(port);
  const sigset_t signals = blockedSignals();
  Follower follower(options, target, page);
  std::atomic<bool> isOver = false;
  std::thread watching([&] {
    for (; !isOver; std::this_thread::sleep_for(kPause)) follower.look();
  });
  std::thread serving([&] { (void)server->run(); });
  auto told = printResult(fmt::format("http://127.0.0.1:{}/{}/\n", port, *token));
  if (told) {
    std::fputs(fmt::format("attnc: following {}; Ctrl-C ends\n", inQuotes(options.path())).c_str(), stderr);
    int signal = 0;
    sigwait(&signals, &signal);
  }
  isOver = true;
  server->stop();
  serving.join();
  if (follower.isBusy) std::_Exit(kDone); // NVRTC cannot be stopped; files appear whole or not at all
  watching.join();
  return told;
}

Status runServe(ServeOptions& options) {
  TargetOptions& target = options.explain.target;
  target.headDim = headDimOf(options.explain.given, *options.explain.owner, target.headDim);
  target.check();
  const ModOptions& mod = options.explain.mod;
  if (!mod.expression.empty() || mod.path.empty() || mod.path == "-")
    throw wrongUsage("MOD", "serve follows a file", "give one: attnc serve alibi.py");
  ATTNC_TRY_AS(arch, target.archAsked());
  return serve(options, targetFor(*arch));
}

} // namespace

void addServe(CLI::App& app, int& exitCode) {
  auto [command, options] = addCommand<ServeOptions>(
      app, exitCode, "serve", "Show a mod, its code, IR and mask in a browser while you edit it", runServe);
  ExplainOptions& explain = options.explain;
  explain.mod.addTo(command);
  addOption(command, "--port", options.port, "N", "Port on 127.0.0.1; 0 takes a free one")
      ->capture_default_str()
      ->check(CLI::Range(0, 65535));
  addKernel(command, explain);
  command.add_option("--seed", explain.seed, "Of captures that are drawn")->capture_default_str()->check(checkSeed);
  addSets(command, explain.sets);
  explain.kernel.addTo(command);
  command.footer(
      R"(Prints the address of the page, which changes when the file does. Only this machine reaches it, and only
who knows the address. Ctrl-C ends. `attnc explain --html FILE` writes the page once.

Examples:
  attnc serve alibi.py --head-dim 64 --shape 2,32,8,4096,4096)");
}

} // namespace attnc::cli
