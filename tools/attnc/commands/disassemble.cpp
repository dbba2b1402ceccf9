#include "commands/disassemble.h"

#include "support/readable.h"
#include "text.h"

#include <fmt/format.h>
#include <llvm/Support/FileSystem.h>
#include <llvm/Support/FileUtilities.h>
#include <llvm/Support/Program.h>
#include <llvm/Support/raw_ostream.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <vector>

namespace attnc::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRemedy =
    "install the CUDA toolkit, or `pip install nvidia-cuda-nvcc triton`; set CUDA_HOME if it lies elsewhere";

/// Returns the program's path in one of the folders, or an empty string.
std::string findIn(const std::string& program, const std::vector<std::string>& folders) {
  for (const std::string& folder : folders) {
    const std::string path = folder + "/" + program;
    if (llvm::sys::fs::can_execute(path)) return path;
  }
  return {};
}

/// Returns the folders of toolkits, then those where pip puts Triton, which brings both programs.
std::vector<std::string> toolFolders() {
  std::vector<std::string> folders;
  for (const char* name : {"CUDA_HOME", "CUDA_PATH"})
    if (const char* home = std::getenv(name); home && *home) folders.push_back(std::string(home) + "/bin");
  folders.push_back("/usr/local/cuda/bin");
  std::vector<std::string> prefixes{"/usr/local", "/usr"};
  if (const char* active = std::getenv("VIRTUAL_ENV")) prefixes.insert(prefixes.begin(), active);
  std::error_code failure;
  for (const std::string& prefix : prefixes)
    for (const auto& python : fs::directory_iterator(prefix + "/lib", failure))
      if (python.path().filename().string().rfind("python3", 0) == 0)
        for (const char* site : {"site-packages", "dist-packages"})
          folders.push_back(python.path().string() + "/" + site + "/triton/backends/nvidia/bin");
  return folders;
}

/// Returns the command: a program and its arguments before the file. Empty if neither is found.
std::vector<std::string> disassembler() {
  const std::vector<std::string> folders = toolFolders();
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"nvdisasm", "-c"}, std::vector<std::string>{"cuobjdump", "-sass"}}) {
    std::vector<std::string> found = command;
    const auto onPath = llvm::sys::findProgramByName(command[0]);
    found[0] = onPath ? *onPath : findIn(command[0], folders);
    if (!found[0].empty()) return found;
  }
  return {};
}

} // namespace

Expected<std::string> disassembled(const std::string& cubin) {
  const std::vector<std::string> command = disassembler();
  if (command.empty())
    return Error::environment("neither nvdisasm nor cuobjdump is found on PATH, in CUDA_HOME/bin or in Triton",
                              kRemedy);
  llvm::SmallString<128> path;
  int file = -1;
  if (std::error_code failure = llvm::sys::fs::createTemporaryFile("attnc", "cubin", file, path))
    return Error::environment(fmt::format("cannot make a temporary file: {}", failure.message()));
  const llvm::FileRemover remover(path);
  llvm::raw_fd_ostream stream(file, /*shouldClose=*/true);
  stream << cubin;
  stream.close();
  if (std::error_code failure = stream.error()) {
    stream.clear_error();
    return Error::environment(fmt::format("cannot write a temporary file: {}", failure.message()));
  }
  std::string line = "exec";
  for (const std::string& word : command) line += " " + inShell(word);
  FILE* pipe = ::popen((line + " " + inShell(path.str().str())).c_str(), "r");
  if (!pipe) return Error::environment(fmt::format("cannot run {}", readable(command[0])));
  std::string text;
  char chunk[1 << 14];
  for (size_t count; (count = std::fread(chunk, 1, sizeof chunk, pipe)) > 0;) text.append(chunk, count);
  if (::pclose(pipe) == 0) return text;
  return Error::environment(fmt::format("{} fails", readable(command[0])), "its own message is above");
}

} // namespace attnc::cli
