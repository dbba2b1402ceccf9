// `attnc bench`: how fast a mod's kernels are, and how close they come to the GPU's limits.
#include "commands/command.h"
#include "commands/measure.h"
#include "output_file.h"
#include "problem/measured_problems.h"
#include "progress.h"
#include "show/explanation.h"
#include "show/roofline.h"
#include "terminal.h"
#include "text.h"

#include "support/try.h"
#include "tools/device/limits.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

namespace attnc::cli {
namespace {

struct BenchOptions : MeasuredProblems {
  bool json = false;
  std::string picture;
};

/// The GPU's limits for kernels of one dtype.
struct Limits {
  jit::DeviceInfo info;
  device::TensorCores cores;
  double bytes = 0; ///< per second, as measured by a copy

  /// Returns the peak FLOP/s. Products of e4m3 run at twice the rate of those of 16 bits. An f32 product is three TF32
  /// products, which run at half the rate, or one. `dtype`: of q.
  double flops(DType dtype, bool tf32) const {
    if (dtype == DType::E4M3) return 2 * cores.flops();
    if (dtype != DType::F32) return cores.flops();
    return cores.flops() / (tf32 ? 2 : 6);
  }
};

/// A measured kernel, and its problem.
struct Row {
  Measured measured;
  double limit = 0; ///< FLOP/s that the device allows at this intensity
  bool isMemoryBound = false;

  std::string_view kind() const { return kindName(measured.plan.options().kind); }
  double share() const { return measured.flops() / limit; }
};

/// "2 x 16 heads x 8192", "8 x 32/8 heads, q 1, kv 16384"
std::string problemText(const ProblemShape& p) {
  const std::string heads =
      p.qHeads == p.kvHeads ? fmt::to_string(p.qHeads) : fmt::format("{}/{}", p.qHeads, p.kvHeads);
  const std::string lengths =
      p.qLen == p.kvLen ? fmt::format(" x {}", p.qLen) : fmt::format(", q {}, kv {}", p.qLen, p.kvLen);
  return fmt::format("{} x {} heads{}", p.batch, heads, lengths);
}

Roofline rooflineOf(const Limits& limits, const BenchOptions& options, const std::vector<Row>& rows,
                    std::string title) {
  Roofline roofline{
      std::move(title), limits.bytes, limits.flops(dtypeOf(options.run.target.dtype), options.run.kernel.tf32), {}};
  for (const Row& row : rows) {
    std::string name(row.kind());
    if (options.shapes.size() > 1) name += ", " + problemText(row.measured.work.problem);
    roofline.points.push_back({name, row.measured.flopsPerByte(), row.measured.flops()});
  }
  return roofline;
}

std::string deviceText(const Limits& limits, const Roofline& roofline) {
  std::string cores = "not known for tensor cores";
  if (roofline.flops > 0)
    cores = fmt::format("{:.0f} TFLOP/s of tensor cores ({} x {} a clock at {:.2f} GHz)", roofline.flops * 1e-12,
                        limits.cores.multiprocessors, limits.cores.flopsPerClock, limits.cores.clockHz * 1e-9);
  return fmt::format("device      {} ({})\nlimits      {}, {:.0f} GB/s (a copy of 512 MiB)\n", limits.info.name,
                     limits.info.arch, cores, limits.bytes * 1e-9);
}

std::string rowText(const Row& row) {
  const Measured& of = row.measured;
  std::string text = fmt::format("{:12}{:.4f} ms, {}{:.1f} TFLOP/s, {:.0f} GB/s", row.kind(), of.ms,
                                 of.work.isEstimate ? "about " : "", of.flops() * 1e-12, of.bytes() * 1e-9);
  text += fmt::format("; {:.1f} % of the limit, which is {}\n", 100 * row.share(),
                      row.isMemoryBound ? "memory" : "the tensor cores");
  text += fmt::format("            family {}{}, tile {}{}, {} registers, {} bytes spilled; {:.4g} FLOP/byte\n",
                      familyName(of.plan.options().family),
                      of.plan.passedOver().empty() ? "" : " (" + of.plan.passedOver() + ")", of.plan.tile(),
                      of.plan.tileFrom() == TileFrom::Tuned ? " (tuned)" : "", of.registers, of.spillBytes,
                      of.flopsPerByte());
  if (of.load)
    text += fmt::format("            under load {:.4f} ms, {:.4g} J/call, {:.0f} MHz\n", of.load->ms, of.load->joules,
                        of.load->mhz);
  if (of.blockMaskMs) text += fmt::format("            building the block mask: {:.4f} ms\n", *of.blockMaskMs);
  return text;
}

JsonReport rowJson(const Row& row) {
  const Measured& of = row.measured;
  JsonReport json{{"kind", row.kind()},
                  {"shape", shapeJson(of.work.problem)},
                  {"dtype", dtypeName(of.plan.options().dtype)},
                  {"headDim", of.plan.options().headDim},
                  {"headDimV", of.plan.options().headDimV},
                  {"family", familyName(of.plan.options().family)},
                  {"tile", of.plan.tile()},
                  {"isTuned", of.plan.tileFrom() == TileFrom::Tuned},
                  {"ms", of.ms},
                  {"tflops", of.flops() * 1e-12},
                  {"gbps", of.bytes() * 1e-9},
                  {"flops", of.work.flops(of.plan.options())},
                  {"bytes", of.work.bytes(of.plan.options())},
                  {"isEstimate", of.work.isEstimate},
                  {"limitTflops", row.limit * 1e-12},
                  {"limitedBy", row.isMemoryBound ? "memory" : "tensorCores"},
                  {"share", row.share()},
                  {"registers", of.registers},
                  {"spillBytes", of.spillBytes}};
  if (!of.plan.passedOver().empty()) json["passedOver"] = of.plan.passedOver();
  if (of.load) json["load"] = {{"ms", of.load->ms}, {"joules", of.load->joules}, {"mhz", of.load->mhz}};
  if (of.blockMaskMs) json["blockMaskMs"] = *of.blockMaskMs;
  return json;
}

Expected<Limits> limitsOf(const device::Context& context, device::Timer& timer, const device::Stream& stream) {
  ATTNC_TRY_AS(cores, device::tensorCores());
  ATTNC_TRY_AS(bytes, timer.copyRate(stream));
  return Limits{context.info(), *cores, *bytes};
}

/// Measures the requested kernels on one problem.
Status measureAll(const Compiler& compiler, device::Timer& timer, const std::optional<device::Nvml>& nvml,
                  const device::Stream& stream, const Mod& mod, const Mod& pinnedMod, const BenchOptions& options,
                  const ProblemOptions& problem, const Limits& limits, std::vector<Row>& rows) {
  ProblemOptions drawn = problem;
  drawn.backward = options.wants("backward");
  ATTNC_TRY_AS(operands, findOperands(mod, drawn));
  for (const std::string& kind : options.kinds) {
    ATTNC_TRY_AS(measured,
                 measure(compiler, timer, nvml, stream, pinnedMod, *operands, MeasuredProblems::ofKind(problem, kind)));
    Row row{*std::move(measured)};
    const KernelOptions& kernel = row.measured.plan.options();
    const double flops = limits.flops(kernel.features.has(Feature::Fp8Q) ? DType::E4M3 : kernel.dtype, kernel.tf32);
    row.limit = attainable({"", limits.bytes, flops, {}}, row.measured.flopsPerByte());
    row.isMemoryBound = flops == 0 || row.limit < flops;
    if (const std::string spills = spillText(row.measured.spillBytes); !spills.empty()) {
      clearProgress();
      printMessage("attnc: warning: " + spills + "\n");
    }
    rows.push_back(std::move(row));
  }
  return {};
}

Expected<std::string> benchText(const BenchOptions& options) {
  ATTNC_TRY(options.check("bench"));
  refuseOntoInput("-o", options.picture, {options.run.input, options.run.mod.path});
  refuseUnlessSvg(options.picture);
  const std::vector<ProblemOptions> problems = options.problems();
  ATTNC_TRY_AS(context, MeasuredProblems::gpu("bench"));
  ATTNC_TRY_AS(mod, loadMod(options.run));
  ATTNC_TRY_AS(pinnedMod, pinned(*mod, options.run.kernel));
  ATTNC_TRY_AS(stream, device::Stream::create());
  ATTNC_TRY_AS(timer, device::Timer::create());
  ATTNC_TRY_AS(limits, limitsOf(*context, *timer, *stream));
  ATTNC_TRY_AS(uuid, device::uuid());
  const std::optional<device::Nvml> nvml = device::Nvml::open(*uuid);
  const Compiler compiler(options.run.kernel.toCompilerOptions());
  std::vector<Row> rows;
  auto progress = std::make_unique<Progress>("measuring");
  for (const ProblemOptions& problem : problems)
    ATTNC_TRY(measureAll(compiler, *timer, nvml, *stream, *mod, *pinnedMod, options, problem, *limits, rows));

  progress.reset();
  const std::string title = fmt::format("{} on {}", mod->name(), limits->info.name);
  const Roofline roofline = rooflineOf(*limits, options, rows, title);
  if (!options.picture.empty()) {
    const std::string svg = svgOf(rooflinePicture(roofline), roofline.title);
    ATTNC_TRY(writeWholeFile(options.picture, {svg}));
  }
  if (options.json) {
    JsonReport device{{"name", limits->info.name}, {"arch", limits->info.arch}, {"copyGbps", limits->bytes * 1e-9}};
    if (roofline.flops > 0) device["tensorCoreTflops"] = roofline.flops * 1e-12;
    JsonReport json{
        {"ok", true}, {"mod", mod->name()}, {"device", std::move(device)}, {"kernels", JsonReport::array()}};
    for (const Row& row : rows) json["kernels"].push_back(rowJson(row));
    return jsonText(json);
  }
  std::string text = fmt::format("mod         {}\n", mod->name()) + deviceText(*limits, roofline);
  std::string shape;
  for (const Row& row : rows) {
    const KernelOptions& kernel = row.measured.plan.options();
    if (std::string own = shapeText(row.measured.work.problem); own != shape)
      text += fmt::format("problem     {}, head dims {} and {}, {}\n", shape = own, kernel.headDim, kernel.headDimV,
                          dtypeName(kernel.dtype));
    text += rowText(row);
  }
  if (!options.picture.empty() && options.picture != "-") text += "wrote       " + options.picture + "\n";
  return text;
}

int runBench(const BenchOptions& options) {
  const auto text = benchText(options);
  const Status told = text ? printBeside(options.picture, *text) : text.error();
  return exitCodeOf(told, options.json && options.picture != "-"); // stdout may carry the picture
}

} // namespace

void addBench(CLI::App& app, int& exitCode) {
  auto [command, options] = addCommand<BenchOptions>(
      app, exitCode, "bench", "Time a mod's kernels on the GPU, and hold them against its limits", runBench);
  options.addTo(command);
  addOption(command, "--arch", options.run.target.arch, "ARCH",
            "Compile kernels for an architecture that the GPU runs as well, e.g. compute_90 where it is sm_90a; "
            "default: its own")
      ->transform(architecture());
  command.add_flag("--json", options.json, "For programs");
  addFile(command, "-o,--output", options.picture,
          "Draw a roofline, as SVG: limits of the device, and where the kernels stand. -: stdout; all else then goes\n"
          "to stderr");
  command.footer(R"(Times are medians by device events, with the L2 cache overwritten before each run. Needs a GPU.
Where NVML is, a second line tells of launches in a row for a second, under load: their time, energy and SM
clock. A GPU under load is bound by its limit of power, so clocks are lower.
TFLOP/s count the products of query-key pairs that the mask lets live, two forward and five backward.
GB/s count the least that must be read and written: each tensor once, and of K and V, for a decode kernel, the
columns that some query sees.
The limit is the lower of two. One is the tensor cores' rate at their highest clock, which no kernel holds under
load. The other is what memory gives a kernel of that many FLOP/byte, as a copy measures it.

Examples:
  attnc bench alibi.py --shape 2,16,16,8192,8192 --kernel forward,backward -o roofline.svg
  attnc bench alibi.py --shape 8,32,8,1,16384 --q-offset lengths --json)");
}

} // namespace attnc::cli
