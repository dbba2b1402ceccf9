// The command `attnc`. The subcommands do the work; here they are put together, and what escapes them is told.
#include "commands.h"
#include "options.h"

#include "attnc/version.h"

#include <cstdio>
#include <exception>
#include <new>

namespace {

constexpr const char* kDescription = R"(attnc: an attention compiler. A mod in, CUDA kernels out.

A mod is a file with a score_mod and/or a mask_mod, written as for FlexAttention, or one expression (--expr).)";

constexpr const char* kFooter = R"(Examples:
  attnc check alibi.py
  attnc emit alibi.py --stage cu --arch sm_90a --dtype bf16 --head-dim 128 -o alibi.cu
  attnc explain alibi.py --head-dim 64 --shape 2,32,8,4096,4096
  attnc run alibi.py --in qkv.safetensors --out result.safetensors --set window=1024
  attnc run --expr "q_idx >= kv_idx" --random 2,8,2,1024,1024,128 --verify

Exit codes: 0 done; 1 the mod is wrong; 2 wrong usage; 3 the environment (no GPU, unreadable file, shape mismatch,
missing capture); 4 a bug in attnc. Results go to stdout, messages to stderr.)";

int run(int argc, char** argv) {
  int exitCode = attnc::cli::kDone;
  CLI::App app(kDescription, "attnc");
  app.footer(kFooter);
  app.set_version_flag("--version", "attnc " ATTNC_VERSION);
  app.require_subcommand(1);
  attnc::cli::addCheck(app, exitCode);
  attnc::cli::addEmit(app, exitCode);
  attnc::cli::addExplain(app, exitCode);
  attnc::cli::addRun(app, exitCode);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? attnc::cli::kDone : attnc::cli::kUsageWrong;
  }
  return exitCode;
}

} // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::bad_alloc&) {
    std::fputs("attnc: error: out of memory\n", stderr);
    return attnc::cli::kEnvironmentWrong;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "attnc: error: %s\nthis is a bug in attnc, please report it with the mod\n", error.what());
    return attnc::cli::kInternalError;
  }
}
