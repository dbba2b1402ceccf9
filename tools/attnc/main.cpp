// The command `attnc`. The subcommands do the work; this file registers them and reports the exceptions that they
// throw.
#include "commands.h"
#include "help.h"
#include "options.h"
#include "terminal.h"
#include "version.h"

#include "attnc/version.h"

#include <cstdio>
#include <exception>
#include <new>
#include <stdexcept>
#include <string_view>

namespace {

constexpr const char* kDescription = R"(attnc: an attention compiler. A mod in, CUDA kernels out.

A mod is a file with a score_mod and/or a mask_mod, written as for FlexAttention, with what it captures declared; or one
expression (--expr). `attnc check --language` prints the language.

    slopes: f32[H]                      # a captured tensor
    window: int                         # a captured number
    SINK = 4                            # a constant

    def score_mod(score, b, h, q_idx, kv_idx):
        return score + slopes[h] * (kv_idx - q_idx)

    def mask_mod(b, h, q_idx, kv_idx):
        near = (q_idx - kv_idx <= window) | (kv_idx < SINK)
        return (q_idx >= kv_idx) & near

  -D SINK=8            overrides a constant
  --set window=9       gives a capture, at launch
  --pin KV_LEN=8192    compiles a value in)";

constexpr const char* kFooter = R"(Examples:
  attnc check alibi.py
  attnc mask alibi.py -o alibi.svg
  attnc emit alibi.py --stage cu --arch sm_90a --dtype bf16 --head-dim 128 -o alibi.cu
  attnc explain alibi.py --head-dim 64 --shape 2,32,8,4096,4096
  attnc explain alibi.py --html alibi.html
  attnc serve alibi.py
  attnc run alibi.py --in qkv.safetensors -o result.safetensors --set window=1024
  attnc run --expr "q_idx >= kv_idx" --random 2,8,2,1024,1024,128 --verify
  attnc run alibi.py --backward --in step.safetensors -o gradients.safetensors
  attnc bench alibi.py --shape 2,16,16,8192,8192 --kernel forward,backward
  attnc pack alibi.py --arch sm_80,sm_90a -o kernels.attnc

Exit codes:
  0  done
  1  the mod is wrong
  2  wrong usage, which gives no --json
  3  the environment: no GPU, unreadable file, shape mismatch, missing capture
  4  a bug in attnc

Results go to stdout, messages to stderr. For a file, - is stdin or stdout.)";

int print(const std::string& text) {
  auto status = attnc::cli::printResult(text);
  return status ? attnc::cli::kDone : attnc::cli::report(status.error());
}

/// Reads --color before all else, because messages about wrong usage have colours.
void chooseColorOf(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    std::string_view word = argv[i];
    if (word == "--color" && i + 1 < argc)
      word = argv[i + 1];
    else if (word.substr(0, 8) == "--color=")
      word.remove_prefix(8);
    else
      continue;
    if (word == "always") attnc::cli::chooseColor(attnc::cli::ColorChoice::Always);
    if (word == "never") attnc::cli::chooseColor(attnc::cli::ColorChoice::Never);
    if (word == "auto") attnc::cli::chooseColor(attnc::cli::ColorChoice::Auto);
  }
}

int run(int argc, char** argv) {
  chooseColorOf(argc, argv);
  int exitCode = attnc::cli::kDone;
  CLI::App app(kDescription, "attnc");
  app.footer(kFooter);
  app.formatter_fn(attnc::cli::helpText);
  app.set_version_flag("-V,--version", attnc::cli::versionText,
                       "Print the versions of attnc, NVRTC and LLVM, and exit");
  app.add_flag_callback("--help-json", [&app] { throw CLI::CallForVersion(attnc::cli::helpJson(app), 0); })->group("");
  app.require_subcommand(1);
  attnc::cli::addCheck(app, exitCode);
  attnc::cli::addMask(app, exitCode);
  attnc::cli::addProbe(app, exitCode);
  attnc::cli::addEmit(app, exitCode);
  attnc::cli::addExplain(app, exitCode);
  attnc::cli::addShard(app, exitCode);
  attnc::cli::addServe(app, exitCode);
  attnc::cli::addRun(app, exitCode);
  attnc::cli::addBench(app, exitCode);
  attnc::cli::addTune(app, exitCode);
  attnc::cli::addCache(app, exitCode);
  attnc::cli::addPack(app, exitCode);
  attnc::cli::addNew(app, exitCode);
  attnc::cli::addGallery(app, exitCode);
  attnc::cli::addDoctor(app, exitCode);
  attnc::cli::addVersion(app, exitCode);
  attnc::cli::addHelp(app, exitCode);
  attnc::cli::addCompletion(app, exitCode);
  attnc::cli::finishCommands(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return print(app.help());
  } catch (const CLI::CallForVersion& version) {
    return print(version.what());
  } catch (const CLI::ParseError& error) {
    return attnc::cli::reportUsage(app, error);
  }
  return exitCode;
}

int outOfMemory() {
  std::fputs("attnc: error: out of memory\n", stderr);
  return attnc::cli::kEnvironmentWrong;
}

} // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::bad_alloc&) {
    return outOfMemory();
  } catch (const std::length_error&) {
    return outOfMemory(); // a size that no container can have
  } catch (const std::exception& error) {
    std::fprintf(stderr, "attnc: error: %s\nthis is a bug in attnc, please report it with the mod\n", error.what());
    return attnc::cli::kInternalError;
  }
}
