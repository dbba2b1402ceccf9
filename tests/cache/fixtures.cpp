#include "cache/fixtures.h"

#include <chrono>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <thread>
#include <unistd.h>

namespace attnc::cache::test {

namespace fs = std::filesystem;

void SharedCounter::increment() const {
  int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (::write(fd, "x", 1) != 1) std::abort();
  ::close(fd);
}

int SharedCounter::value() const {
  std::error_code error;
  auto size = fs::file_size(path, error);
  return error ? 0 : int(size);
}

Expected<std::string> FakeCompiler::identity() {
  ++identityCalls;
  return build;
}

Expected<std::string> FakeCompiler::compile(int number) {
  ++compiles;
  if (counter) counter->increment();
  if (compileMs) std::this_thread::sleep_for(std::chrono::milliseconds(compileMs));
  if (number == kBad) return Error::internal("bad source");
  return bytesOf(number);
}

Expected<CachedBytes> NumberCache::get(int number) {
  return cache.getOrCompile(contentOf(number), "number " + std::to_string(number),
                            [&] { return compiler->compile(number); });
}

Digest contentOf(int number) { return sha256(std::to_string(number)); }

std::string bytesOf(int number) { return "what the compiler makes of " + contentOf(number).hex(); }

int ScriptedOps::open(int directory, const char* path, int flags, unsigned mode) {
  if (int error = failure("open")) return error;
  return FileOps::open(directory, path, flags, mode);
}
int ScriptedOps::close(int fd) {
  int real = FileOps::close(fd);
  if (int error = failure("close")) return error;
  return real;
}
int ScriptedOps::status(int fd, struct stat& out) {
  if (int error = failure("status")) return error;
  return FileOps::status(fd, out);
}
int ScriptedOps::statusAt(int directory, const char* name, struct stat& out) {
  if (int error = failure("statusAt")) return error;
  return FileOps::statusAt(directory, name, out);
}
int64_t ScriptedOps::read(int fd, void* buffer, size_t bytes) {
  if (int error = failure("read")) return error;
  return FileOps::read(fd, buffer, bytes);
}
int64_t ScriptedOps::write(int fd, const void* buffer, size_t bytes) {
  if (int error = failure("write")) {
    // A disk that fills up takes a part first.
    if (bytes > 1) (void)FileOps::write(fd, buffer, bytes / 2);
    return error;
  }
  return FileOps::write(fd, buffer, bytes);
}
int ScriptedOps::sync(int fd) {
  if (int error = failure("sync")) return error;
  return FileOps::sync(fd);
}
int ScriptedOps::makeDirectory(int directory, const char* path, unsigned mode) {
  if (int error = failure("makeDirectory")) return error;
  return FileOps::makeDirectory(directory, path, mode);
}
int ScriptedOps::rename(int directory, const char* from, const char* to) {
  if (int error = failure("rename")) return error;
  return FileOps::rename(directory, from, to);
}
int ScriptedOps::remove(int directory, const char* name) {
  if (int error = failure("remove")) return error;
  return FileOps::remove(directory, name);
}
int ScriptedOps::lock(int fd, int operation) {
  if (int error = failure("lock")) return error;
  return FileOps::lock(fd, operation);
}
int ScriptedOps::touch(int fd) {
  if (int error = failure("touch")) return error;
  return FileOps::touch(fd);
}
int ScriptedOps::list(int directory, std::vector<std::string>& names) {
  if (int error = failure("list")) return error;
  return FileOps::list(directory, names);
}
void ScriptedOps::sleep(int milliseconds) { FileOps::sleep(milliseconds); }

Options optionsFor(const std::string& directory) {
  Options options;
  options.directory = directory;
  return options;
}

std::vector<std::string> entryFiles(const std::string& directory) {
  std::vector<std::string> paths;
  std::error_code error;
  for (const auto& entry : fs::recursive_directory_iterator(directory, error))
    if (entry.path().extension() == kEntrySuffix) paths.push_back(entry.path());
  return paths;
}

} // namespace attnc::cache::test
