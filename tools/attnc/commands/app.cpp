// The command line: the description of the command, and all subcommands.
#include "commands/command.h"
#include "commands/help.h"
#include "commands/version.h"
#include "terminal.h"

#include <string>
#include <string_view>

namespace attnc::cli {
namespace {

constexpr const char* kAppDescription = R"(attnc: an attention compiler. A mod in, CUDA kernels out.

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

constexpr const char* kAppFooter = R"(Examples:
  attnc new mine.py
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
    if (word == "always") chooseColor(ColorChoice::Always);
    if (word == "never") chooseColor(ColorChoice::Never);
    if (word == "auto") chooseColor(ColorChoice::Auto);
  }
}

} // namespace

int runApp(int argc, char** argv) {
  chooseColorOf(argc, argv);
  int exitCode = kDone;
  CLI::App app(kAppDescription, "attnc");
  app.footer(kAppFooter);
  app.formatter_fn(helpText);
  app.set_version_flag("-V,--version", versionText, "Print the versions of attnc, NVRTC and LLVM, and exit");
  app.add_flag_callback("--help-json", [&app] { throw CLI::CallForVersion(helpJson(app), 0); })->group("");
  app.require_subcommand(1);
#define ATTNC_COMMAND(name, heading)                                                                                   \
  add##name(app, exitCode);                                                                                            \
  app.get_subcommands([](CLI::App*) { return true; }).back()->group(heading);
#include "commands.def"
  finishCommands(app);
  if (argc < 2) return exitCodeOf(printResult(app.help()), false);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return exitCodeOf(printResult(app.help()), false);
  } catch (const CLI::CallForAllHelp&) {
    return exitCodeOf(printResult(app.help("", CLI::AppFormatMode::All)), false);
  } catch (const CLI::CallForVersion& version) {
    return exitCodeOf(printResult(version.what()), false);
  } catch (const CLI::ParseError& error) {
    return reportUsage(app, error);
  }
  return exitCode;
}

} // namespace attnc::cli
