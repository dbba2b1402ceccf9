// Times attnc's kernels on the workloads of cases.json files, one JSON line a case, in the format of the peers'
// harness: {"id", "peer", "ms", "tflops" or "gbps", "first_call_s", ...}; a case that fails gets "error" instead.
//
// Each result is checked against the naive kernel before it is timed. `ms` is the median of device-event times with the
// L2 cache overwritten between runs; inputs are random normal. "tflops" counts unmasked query-key pairs: 4 * pairs *
// head_dim forward, 10 * pairs * head_dim backward. "gbps", for decode and paged cases, counts the bytes of the columns
// of K and V that some query sees, each read once. "first_call_s" is the wall time from mod text to the first finished
// launch, block mask included. For a backward case it includes the forward and the backward launch.
#include "measure.h"

#include <CLI/CLI.hpp>

#include <fstream>
#include <iostream>
#include <regex>

namespace {

/// Functions by kind of case. Cases of other kinds are skipped.
const std::map<std::string, nlohmann::json (*)(attnc::bench::Bench&, const attnc::bench::Case&)> kMeasures{
    {"forward", attnc::bench::measureForward},
    {"backward", attnc::bench::measureBackward},
    {"decode", attnc::bench::measureDecode},
    {"paged", attnc::bench::measureDecode}};

} // namespace

int main(int argc, char** argv) {
  using namespace attnc;
  std::vector<std::string> files;
  std::string out, only, mods = ATTNC_SOURCE_DIR "/dsl/mods";
  Family family = Family::Auto;
  bool packed = false;
  bool deterministic = false;
  bool settled = false;
  bool again = false;
  double seconds = 1e9;
  CLI::App app("Times attnc's forward, backward and decode kernels on the workloads of cases.json files.");
  app.add_option("--cases", files, "a file of workloads; repeatable, files are taken in order")
      ->required()
      ->allow_extra_args(false)
      ->type_name("FILE");
  app.add_option("--out", out, "file that JSON lines are appended to; they are printed as well");
  app.add_option("--only", only, "regular expression on the case id");
  app.add_option("--mods", mods, "folder of the mods, named as the cases' variants");
  app.add_option("--kernel-family", family, "auto, naive, sm80, sm90 or grid")
      ->transform(CLI::CheckedTransformer(bench::familiesByName()));
  app.add_flag(
      "--packed", packed,
      "forward and backward cases of packed documents once more, as ragged batches under a causal mask: ID-packed");
  app.add_flag("--deterministic", deterministic,
               "backward cases once more, with deterministic gradients: ID-deterministic");
  app.add_flag("--settled", settled,
               "time each case when the clock has settled under the limit of power: 1.4 s a case");
  app.add_flag("--again", again,
               "time results that an earlier run has checked: unchecked, kernels from the disk cache, no first_call_s");
  app.add_option("--seconds", seconds, "stop starting new cases after this long");
  CLI11_PARSE(app, argc, argv);

  // Reads every file before the first case: a bad last file must not cost the run.
  std::vector<bench::Case> cases;
  for (const std::string& path : files) {
    try {
      const std::vector<bench::Case> more = bench::readCases(path);
      for (const bench::Case& c : more) {
        cases.push_back(c);
        if (packed && !c.documentLengths.empty() && (c.kind == "forward" || c.kind == "backward"))
          cases.push_back(bench::packedCase(c));
        if (deterministic && c.kind == "backward") cases.push_back(bench::deterministicCase(c));
      }
    } catch (const std::exception& error) {
      std::cerr << "attnc-bench: " << path << ": " << error.what() << "\n";
      return 3;
    }
  }
  const auto start = bench::Clock::now();
  auto context = device::Context::create();
  if (!context) {
    std::cerr << "attnc-bench: " << context.error().message << "\n";
    return 3;
  }
  bench::Bench bench{.mods = mods, .family = family, .again = again};
  if (settled) bench.timer.settle();
  std::ofstream file(out, std::ios::app);
  for (const bench::Case& c : cases) {
    const auto measure = kMeasures.find(c.kind);
    if (measure == kMeasures.end() || !std::regex_search(c.id, std::regex(only))) continue;
    if (bench::secondsSince(start) > seconds) break;
    nlohmann::json row{{"id", c.id}, {"peer", "attnc"}};
    try {
      row.update(measure->second(bench, c));
    } catch (const std::exception& error) {
      row["error"] = error.what();
    }
    std::cout << row.dump() << std::endl;
    if (!out.empty()) file << row.dump() << std::endl;
  }
}
