// What `attnc bench` measures on a GPU: that each kind of kernel has a time and a rate below what the device can do.
#include "gpu.h"

#include "tools/attnc/commands/measure.h"
#include "tools/device/limits.h"

using namespace attnc;
using gputest::libraryMod;

GPU_TEST_CASE("kernels of each kind are timed and counted", "[gpu]") {
  const device::Stream stream = take(device::Stream::create());
  device::Timer timer = take(device::Timer::create());
  const double bytes = take(timer.copyRate(stream)), flops = take(device::tensorCores()).flops();
  CHECK(bytes > 1e10);
  const Compiler compiler;
  const std::optional<device::Nvml> nvml = device::Nvml::open(take(device::uuid()));
  for (const char* name : {"alibi", "document"})
    for (const char* kind : {"forward", "decode", "backward"}) {
      INFO(name << " " << kind);
      const Mod mod = libraryMod(name);
      cli::ProblemOptions options;
      options.random = cli::RandomProblem{{2, 8, 2, kind == std::string("decode") ? 1 : 2048, 2048}, 64};
      options.backward = kind == std::string("backward");
      options.kernelKind.kind = options.backward ? "auto" : kind;
      const cli::HostOperands operands = take(cli::findOperands(mod, options));
      const cli::Measured measured = take(cli::measure(compiler, timer, nvml, stream, mod, operands, options));
      CHECK((measured.plan.options().kind == KernelKind::Decode) == (kind == std::string("decode")));
      CHECK((measured.plan.options().kind == KernelKind::Backward) == options.backward);
      CHECK(measured.ms > 0);
      if (measured.load) CHECK((measured.load->ms > 0 && measured.load->joules > 0 && measured.load->mhz > 100));
      CHECK(measured.registers > 0);
      CHECK(measured.work.pairs > 0);
      CHECK(measured.bytes() < 2 * bytes); // a read is faster than a copy
      if (flops > 0) CHECK(measured.flops() < flops);
      CHECK(measured.blockMaskMs.has_value() == measured.plan.options().blockSparse);
    }
}

GPU_TEST_CASE("decode kernels of e4m3 count the bytes of their elements", "[gpu]") {
  const device::Stream stream = take(device::Stream::create());
  device::Timer timer = take(device::Timer::create());
  const Mod mod = libraryMod("noop");
  cli::ProblemOptions options;
  options.random = cli::RandomProblem{{2, 8, 2, 1, 2048}, 64};
  options.kernelKind.kind = "decode";
  options.target.fp8.kv = true;
  const cli::HostOperands operands = take(cli::findOperands(mod, options));
  const auto measured = cli::measure(Compiler(), timer, std::nullopt, stream, mod, operands, options);
  if (!measured) { // a GPU without fp8
    CHECK_THAT(measured.error().message, Catch::Contains("e4m3"));
    return;
  }
  CHECK(measured->work.bytes(measured->plan.options()) == 2 * 2 * 2048 * (64 + 64) + 2 * 8 * (64 + 64) * 2);
}

GPU_TEST_CASE("sequences that are not alike are not counted", "[gpu]") {
  const device::Stream stream = take(device::Stream::create());
  device::Timer timer = take(device::Timer::create());
  cli::ProblemOptions options;
  options.random = cli::RandomProblem{{2, 2, 2, 64, 64}, 64};
  options.sequences.kvLengths = true;
  const Mod mod = libraryMod("causal");
  const cli::HostOperands operands = take(cli::findOperands(mod, options));
  CHECK_THAT(refusalOf(cli::measure(Compiler(), timer, std::nullopt, stream, mod, operands, options)).message,
             Catch::Contains("takes no KV lengths"));
}
