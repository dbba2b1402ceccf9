#include "problem/measured_problems.h"

#include "add_option.h"
#include "problem/operands.h"
#include "text.h"

#include <fmt/format.h>

#include <algorithm>

namespace attnc::cli {

void MeasuredProblems::addTo(CLI::App& command) {
  owner = &command;
  run.mod.addTo(command);
  addRepeated(command, "--shape", shapes, kShapeName,
              "The problem, whose operands are drawn, with or without a head dim; or only Q_LEN,KV_LEN, or one number "
              "for both, of 16 heads. May be given again");
  addHeadDim(command, run.target.headDim, "Of q, k and v");
  addVInK(command, run.target.vInK);
  run.target.fp8.addTo(command, /*draws=*/true);
  addDType(command, run.target.dtype, "Of q, k and v: bf16, fp16, fp32, e4m3");
  excludes(
      addFile(command, "--in", run.input, "Take q, k, v and captures from a safetensors file, as run does; -: stdin"),
      {"--shape", "--dtype", "--fp8-kv", "--row-scales", "--scales", "--head-dim"});
  command.add_option("--seed", run.seed, "Of what is drawn")->capture_default_str()->check(checkSeed);
  addSets(command, run.sets);
  addList(command, "--kernel", kinds, "KERNEL",
          "Which kernels, separated by commas: auto (forward, or decode where that is faster), forward, decode,\n"
          "backward (without the forward pass before it)")
      ->capture_default_str()
      ->transform(oneOf({"auto", {"forward", {"fwd"}}, "decode", {"backward", {"bwd"}}}));
  addChoice(command, "--q-offset", run.sequences.qOffset, "FROM", {"none", "lengths"},
            "Where queries stand. none (default): from 0 on; lengths: the last query at the last key");
  command.add_flag("--no-block-mask", run.noBlockMask, "Evaluate mask_mod everywhere instead of building a block mask");
  run.gradients.addTo(command);
  run.kernel.addTo(command);
}

bool MeasuredProblems::wants(const std::string& kind) const {
  return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
}

Expected<device::Context> MeasuredProblems::gpu(const char* command) {
  auto context = device::Context::create();
  if (context) return context;
  return Error::environment(fmt::format("{} needs a GPU: {}", command, context.error().message),
                            context.error().remedy);
}

Status MeasuredProblems::check(const char* command) const {
  if (run.input.empty() == shapes.empty()) {
    if (auto context = gpu(command); !context) return context.error();
    throw wrongUsage(command, "no problem is given, or two",
                     "give either --in FILE or --shape, e.g. --shape 2,16,16,8192,8192");
  }
  run.gradients.check(wants("backward"));
  if (run.input.empty()) checkFp8(run);
  checkStdin(run);
  return {};
}

std::vector<ProblemOptions> MeasuredProblems::problems() const {
  std::vector<ProblemOptions> all;
  for (const std::string& text : shapes) {
    const ShapeText given = parseShape("--shape", text, kUsualShape);
    const ProblemShape& shape = given.shape;
    if (shape.batch == 0 || shape.qHeads == 0 || shape.qLen == 0 || shape.kvLen == 0)
      throw wrongUsage("--shape", inQuotes(text) + " leaves nothing to compute",
                       "B, H, Q_LEN and KV_LEN are at least 1");
    all.push_back(run);
    all.back().random = randomProblem("--shape", text, shape, headDimOf(given, *owner, run.target.headDim));
  }
  if (all.empty()) all.push_back(run);
  return all;
}

ProblemOptions MeasuredProblems::ofKind(const ProblemOptions& problem, const std::string& kind) {
  ProblemOptions one = problem;
  one.backward = kind == "backward";
  one.kernelKind.kind = one.backward ? "auto" : kind;
  return one;
}

} // namespace attnc::cli
