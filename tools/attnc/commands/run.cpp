// `attnc run`: computes attention, and its gradients, over tensors of a file or drawn at random, on the GPU or with the
// fp64 reference.
#include "commands/command.h"
#include "commands/digest.h"
#include "commands/gpu.h"
#include "commands/result.h"
#include "commands/verify.h"
#include "problem/operands.h"
#include "problem/oracle.h"
#include "problem/pages.h"
#include "problem/problem_options.h"
#include "problem/ragged.h"
#include "problem/random.h"
#include "problem/save_operands.h"
#include "problem/shapes.h"
#include "progress.h"
#include "terminal.h"
#include "text.h"

#include "attnc/version.h"
#include "support/try.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <set>
#include <tuple>
#include <variant>
#include <vector>

namespace attnc::cli {
namespace {

struct RunOptions : ProblemOptions {
  std::string drawn;               ///< as --random says it
  const CLI::App* owner = nullptr; ///< the command
};

HostTensor stored(const std::vector<double>& values, HostTensor tensor) {
  reference::store(values, tensor.view());
  return tensor;
}

Expected<RunResult> runOnCpu(const Mod& mod, const HostOperands& operands, const ProblemOptions& options) {
  auto start = std::chrono::steady_clock::now();
  ATTNC_TRY_AS(computed, runReference(mod, operands, options));
  double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  std::vector<int64_t> rows = rowsOf(operands);
  RunResult result;
  const reference::AttentionResult& forward = computed->forward;
  result.lse = stored(forward.lse, HostTensor::make(DType::F32, rows));
  result.rowMax = stored(forward.rowMax, HostTensor::make(DType::F32, rows));
  rows.push_back(forward.headDimV);
  result.out = stored(forward.out, HostTensor::make(options.target.fp8.outOf(operands.q.dtype), rows));
  for (const auto& [what, shape, values] : forward.reduced)
    result.gradients[what.name] = stored(values, HostTensor::make(DType::F32, shape));
  if (options.backward)
    for (auto [name, values, like] : {std::tuple("dq", &computed->dQ, &operands.q),
                                      {"dk", &computed->dK, &operands.k},
                                      {"dv", &computed->dV, &operands.v}})
      result.gradients[name] = stored(*values, HostTensor::make(like->dtype, like->shape));
  if (const auto& cache = operands.cache; cache && operands.newK)
    for (auto [name, before, rows, scales] : {std::tuple("k", &cache->k, &*operands.newK, &operands.kScales),
                                              {"v", &cache->v, &*operands.newV, &operands.vScales}}) {
      HostTensor& after = result.cache[name] = *before;
      const HostTensor* table = operands.pageTable ? &*operands.pageTable : nullptr;
      appendRows(after, *rows, table, *operands.kvLengths, operands.cuSeqlensQ, *scales);
    }
  for (const auto& [name, values] : computed->captures)
    result.gradients["d_" + name] =
        stored(values, HostTensor::like(std::get<TensorView>(*operands.gradients.find(name))));
  result.facts = {{"device", {{"name", "CPU, fp64 reference"}}}, {"ms", ms}};
  result.summary = fmt::format("device      CPU, fp64 reference; {:.1f} ms\n", ms);
  return result;
}

std::string describeOperands(const HostOperands& operands) {
  const DType ofQ = operands.q.dtype, ofK = operands.k.dtype;
  return fmt::format("operands    q {} k {} v {}, {}{}\n", shapeText(operands.q.shape), shapeText(operands.k.shape),
                     shapeText(operands.v.shape), dtypeName(ofQ),
                     ofK == ofQ ? "" : fmt::format(", k and v {}", dtypeName(ofK)));
}

Status writeResult(RunResult& result, const ProblemOptions& options, bool isRagged) {
  NamedTensors tensors;
  tensors["out"] = std::move(result.out);
  if (options.lse || (options.backward && result.hasSoftmax)) tensors["lse"] = std::move(result.lse);
  if (options.rowMax) tensors["row_max"] = std::move(result.rowMax);
  tensors.merge(result.gradients);
  tensors.merge(result.cache);
  if (isRagged)
    for (const char* name : {"out", "lse", "row_max", "dq", "dk", "dv"})
      if (auto found = tensors.find(name); found != tensors.end()) found->second = toPacked(found->second);
  return writeSafetensors(options.output, tensors, {{"producer", "attnc " ATTNC_VERSION}});
}

/// Returns the GPU's context; null for the CPU. Sets `whyNoGpu` if a GPU was wanted and is missing.
Expected<std::unique_ptr<device::Context>> chooseDevice(const ProblemOptions& options, std::string& whyNoGpu) {
  if (options.device == "cpu") return std::unique_ptr<device::Context>();
  auto context = device::Context::create();
  if (context) return std::make_unique<device::Context>(std::move(*context));
  if (options.verify)
    return Error::environment("--verify compares a GPU with the CPU, and there is none: " + context.error().message,
                              "without --verify, --device cpu computes the fp64 reference");
  if (options.device == "cuda") return std::move(context).error();
  whyNoGpu = context.error().message;
  return std::unique_ptr<device::Context>();
}

/// Rejects on the CPU what a kernel would reject. `pinned` is the mod with its pins folded in.
Status checkServed(const Mod& pinned, const HostOperands& operands, const ProblemOptions& options) {
  PrepareOptions prepare = prepareOptions(options);
  prepare.arch = archThatTakes(operands);
  for (const FamilyInfo& info : forwardFamilies())
    if (info.family == prepare.family && prepare.arch == "sm_80") prepare.arch = info.arch;
  const Shapes shapes = shapesOf(operands, options);
  auto served = settle(Compiler(), pinned, shapes, prepare, options.backward);
  if (served) return {};
  prepare.arch = "sm_90a"; // which has all families
  if (settle(Compiler(), pinned, shapes, prepare, options.backward)) return {};
  return std::move(served).error();
}

Status tell(const ProblemOptions& options, const std::string& summary, const JsonReport& facts) {
  const bool isPlain = options.json || options.output == "-";
  return printBeside(options.output, options.json ? jsonText(facts) : isPlain ? summary : reportText(summary));
}

JsonReport operandsJson(const HostOperands& operands) {
  JsonReport all = JsonReport::object();
  for (const auto& [name, tensor] : {std::pair("q", &operands.q), {"k", &operands.k}, {"v", &operands.v}})
    all[name] = {{"shape", tensor->shape}, {"dtype", dtypeName(tensor->dtype)}};
  return all;
}

/// Does the work, once the command line is parsed. Returns the exit code, if it told what happened.
Expected<int> runSteps(ProblemOptions options) {
  ATTNC_TRY_AS(mod, loadMod(options));
  options.hasSoftmax = !mod->hasWeightMod();
  for (auto [flag, isSet, what] :
       {std::tuple("--lse", options.lse, "lse"), {"--row-max", options.rowMax, "row maximum"}})
    if (isSet && !options.hasSoftmax)
      throw wrongUsage(flag,
                       fmt::format("{} has a weight_mod in place of the softmax, so there is no {}", mod->name(), what),
                       fmt::format("leave {} out", flag));
  ATTNC_TRY_AS(pinnedMod, pinned(*mod, options.kernel));
  std::string whyNoGpu;
  ATTNC_TRY_AS(context, chooseDevice(options, whyNoGpu));
  ATTNC_TRY_AS(operands, withProgress(options.random ? "drawing operands" : "reading operands",
                                      [&] { return findOperands(*mod, options); }));
  if (auto served = checkServed(*pinnedMod, *operands, options); !served) {
    if (options.random && served.error().remedy.empty() && !options.kernel.pins.empty())
      throw wrongUsage("run", served.error().message, "give --random the pinned value, or leave the pin out");
    if (options.random) throwUsage("run", served.error()); // only the options decide this
    return std::move(served).error();
  }
  if (!options.savedOperands.empty()) ATTNC_TRY(saveOperands(*mod, *operands, options));
  if (!whyNoGpu.empty())
    printMessage("attnc: note: there is no GPU, so the fp64 reference computes on the CPU: " + whyNoGpu + "\n");
  ATTNC_TRY_AS(result, withProgress(*context ? "compiling and computing" : "computing on the CPU", [&] {
                 return *context ? runOnGpu(**context, *pinnedMod, *operands, options)
                                 : runOnCpu(*mod, *operands, options);
               }));
  result->hasSoftmax = options.hasSoftmax;
  if (!result->warning.empty()) printMessage("attnc: warning: " + result->warning + "\n");
  std::string summary = describeOperands(*operands) + result->summary;
  if (!options.savedOperands.empty()) summary += savedText(options);
  JsonReport facts{{"ok", true},
                   {"mod", mod->name()},
                   {"problem", problemJson(operands->problem)},
                   {"values", valuesJson(operands->captures)},
                   {"operands", operandsJson(*operands)}};
  facts.update(result->facts);
  if (options.json) facts["results"] = digestJson(*result);
  if (options.output.empty()) summary += digestText(*result);
  if (options.verify) {
    ATTNC_TRY_AS(want, withProgress("computing the reference", [&] { return runReference(*mod, *operands, options); }));
    ATTNC_TRY_AS(verification, withProgress("comparing with the reference",
                                            [&] { return verify(*mod, *operands, options, *result, *want); }));
    summary += verification->text();
    facts["verification"] = verification->json();
    if (!verification->holds()) {
      facts["ok"] = false;
      ATTNC_TRY(tell(options, summary, facts));
      return report(Error::internal("the GPU's result differs from the fp64 reference; nothing is written"));
    }
  }
  if (!options.output.empty()) {
    ATTNC_TRY(writeResult(*result, options, operands->cuSeqlensQ.has_value()));
    summary += "wrote       " + (options.output == "-" ? "<stdout>" : options.output) + "\n";
    facts["output"] = options.output;
  }
  ATTNC_TRY(tell(options, summary, facts));
  return kDone;
}

int runRun(RunOptions& options) {
  if (!options.drawn.empty()) {
    const ShapeText given = parseShape("--random", options.drawn, kUsualShape);
    options.random =
        randomProblem("--random", options.drawn, given.shape, headDimOf(given, *options.owner, options.target.headDim));
  }
  if (options.input.empty() == !options.random)
    throw wrongUsage("run", options.random ? "--in FILE and --random are given" : "no operands are given",
                     options.random ? "give either --in FILE or --random: leave one of them out"
                                    : "give either --in FILE or --random, e.g. --random 1,4,4,512,512,64");
  if (options.device == "cpu" && options.verify)
    throw wrongUsage("--verify", "compares the GPU with the CPU, and --device cpu leaves the GPU out",
                     "leave --device cpu out, or --verify");
  if (options.large && !options.scale) // keeps scores as exact as products
    options.scale = std::exp2(std::round(std::log2(double(options.random->headDim)) / -2));
  options.gradients.check(options.backward);
  options.sequences.check(!options.backward);
  if (options.random) checkFp8(options);
  if (options.backward && options.kernelKind.decode().value_or(false))
    throw wrongUsage("--kernel", "decode kernels have no backward pass", "leave --kernel decode out, or --backward");
  if (options.sequences.pageSize && !options.random)
    throw wrongUsage("--page-size", "is of --random",
                     "leave it out: a file has pages where it has a tensor page_table, i32 [B, N]");
  if (options.random) options.sequences.checkPages(options.random->shape.kvLen);
  checkStdin(options);
  refuseOntoTerminal("-o", options.output);
  checkSaveOperands(options);
  refuseOntoInput("-o", options.output, {options.input, options.mod.path});
  return exitCodeOf(runSteps(options), options.json && options.output != "-");
}

} // namespace

void addRun(CLI::App& app, int& exitCode) {
  auto [command, options] =
      addCommand<RunOptions>(app, exitCode, "run", "Compute attention over tensors of a file, or random ones", runRun);
  options.owner = &command;
  options.mod.addTo(command);
  addFile(command, "--in", options.input,
          "safetensors file with q, k, v [B, H, S, D] and the captured tensors, and dout with --backward; -: stdin. A "
          "tensor that the mod needs and does not declare is taken as it is");
  addFile(command, "-o,--output,--out", options.output,
          "safetensors file for out (and lse, row_max, outputs of the mod, and gradients); appears whole or not at "
          "all. -: stdout, and all "
          "other lines go to stderr. Without it a digest of the result is printed. --out is the same");
  addOption(command, "--random,--shape", options.drawn, kShapeName,
            "Draw the operands of this problem instead, with or without a head dim; or only Q_LEN,KV_LEN, or one "
            "number for both, of 16 heads. --shape is the same");
  addHeadDim(command, options.target.headDim, "Of random operands")->needs("--random");
  addParsed(
      command, "--large", [&large = options.large](const std::string& text) { large = LargeScores::parse(text); },
      "SIZE[,PATTERN]", "Draw scores of this size: -1e9, as masks are often written, or 1e9,tiles")
      ->needs("--random");
  addFile(command, "--save-operands", options.savedOperands,
          "Write the random operands to a safetensors file, from which --in computes the same");
  addVInK(command, options.target.vInK);
  options.target.fp8.addTo(command, /*draws=*/true);
  for (const char* option : {"--fp8-kv", "--row-scales", "--scales"}) command.get_option(option)->needs("--random");
  addDType(command, options.target.dtype, "Of random q, k, v: bf16, fp16, fp32, e4m3")->needs("--random");
  command.add_option("--seed", options.seed, "Of the random operands")->capture_default_str()->check(checkSeed);
  addSets(command, options.sets);
  command.add_option("--scale", options.scale, "Factor of q k^T; default 1 / sqrt(D)")->check(checkScale);
  addChoice(command, "--device", options.device, "DEVICE", {"auto", {"cuda", {"gpu"}}, "cpu"},
            "auto: the GPU, or the fp64 reference where there is none; cuda; cpu");
  options.kernelKind.addTo(command, /*takesBackward=*/false);
  command.add_flag("--backward", options.backward,
                   "Also gradients, of a loss whose gradients by out and lse are dout [B, H, Q_LEN, DV] and dlse f32\n"
                   "[B, H, Q_LEN], and by a sum of the mod <sum>_gradient, f32 like it; all but dout may be missing.\n"
                   "Writes dq, dk, dv, d_<capture>, and lse");
  options.sequences.addTo(
      command,
      "Each sequence has a KV length. --random draws them; a file with the i32 tensor\n"
      "kv_lengths [B] has them without the flag",
      "Forward, decode: K and V of --random lie in pages of N rows, in any order: 1, 2, 4, 8, 16, 32, 64,\n"
      "128, 256. A file with the i32 tensor page_table [B, N] has pages without the flag");
  options.sequences.addRagged(
      command,
      "Sequences are packed: q, k, v and results are [total, H, D], lse [H, total]. --random draws lengths up\n"
      "to Q_LEN and KV_LEN; a file with the i32 tensor cu_seqlens_q [B + 1], and cu_seqlens_kv if keys have\n"
      "other lengths, is ragged without the flag");
  options.gradients.addTo(command);
  command.add_flag("--verify", options.verify,
                   "Compare the GPU's result with the fp64 reference; exit code 4 if it differs");
  command.add_flag("--lse", options.lse, "Also write lse: f32 [B, H, Q_LEN], natural log");
  command.add_flag("--row-max", options.rowMax, "Also write row_max: f32 [B, H, Q_LEN]");
  command.add_flag("--no-block-mask", options.noBlockMask,
                   "Evaluate mask_mod everywhere instead of building a block mask");
  options.kernel.addTo(command);
  command.add_flag("--json", options.json,
                   "For programs: device, kernels, times, verification, a digest of the result");
  command.footer(std::string(kRandomHelp) +
                 "\n\nFiles (--in): q, k and v may be F8_E4M3, with q_scales, k_scales and v_scales f32 of heads, "
                 "blocks of 128\nrows, rows or pages. For few queries, also only k and v, with scales of heads, rows "
                 "or pages.\n\n"
                 "Examples:\n"
                 "  attnc run window_alibi.py --in qkv.safetensors -o result.safetensors --set window=1024\n"
                 "  attnc run --expr \"q_idx >= kv_idx\" --random 2,8,2,1024,1024,128 --verify\n"
                 "  attnc run learned_bias.py --random 1,4,4,512,512,64 --large -1e9,tiles --verify\n"
                 "  attnc run alibi.py --kernel decode --random 4,32,8,1,16384,128 --q-offset lengths --verify\n"
                 "  attnc run alibi.py --backward --in step.safetensors -o gradients.safetensors");
}

} // namespace attnc::cli
