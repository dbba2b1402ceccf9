// The command `attnc`. The subcommands do the work; this file reports the exceptions that they throw.
#include "commands.h"

#include <cstdio>
#include <exception>
#include <new>
#include <stdexcept>

namespace {

int outOfMemory() {
  std::fputs("attnc: error: out of memory\n", stderr);
  return attnc::cli::kEnvironmentWrong;
}

} // namespace

int main(int argc, char** argv) {
  try {
    return attnc::cli::runApp(argc, argv);
  } catch (const std::bad_alloc&) {
    return outOfMemory();
  } catch (const std::length_error&) {
    return outOfMemory(); // a size that no container can have
  } catch (const std::exception& error) {
    std::fprintf(stderr, "attnc: error: %s\nthis is a bug in attnc, please report it with the mod\n", error.what());
    return attnc::cli::kInternalError;
  }
}
