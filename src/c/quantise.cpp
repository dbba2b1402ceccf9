#include "attnc/c/quantise.h"

#include "attnc/quantise.h"
#include "c/call.h"
#include "c/enumerators.h"
#include "c/handles.h"
#include "c/operands.h"
#include "c/structs.h"

#include <algorithm>
#include <climits>

struct attnc_quantiser {
  attnc::Quantiser quantiser;
};

namespace attnc::c {
namespace {

struct Given {
  TensorView x, out, scales;
  QuantiseOptions options;

  Given(Arguments& arguments, const attnc_tensor* x, const attnc_tensor* out, const attnc_tensor* scales,
        const attnc_quantise_options* options)
      : x(requiredTensor(arguments, x, "x")), out(requiredTensor(arguments, out, "out")),
        scales(requiredTensor(arguments, scales, "scales")) {
    attnc_quantise_options all;
    if (!readStruct(arguments, options, all, "options")) return;
    this->options = {all.rotates != 0, all.seed, int(std::clamp<int64_t>(all.scale_bits, INT_MIN, INT_MAX)),
                     all.reads_scales != 0};
    this->options.cosSin = readTensor(arguments, all.cos_sin, {"options", "cos_sin"});
    this->options.positions = readTensor(arguments, all.positions, {"options", "positions"});
    this->options.interleaved = all.interleaved != 0;
  }
};

} // namespace
} // namespace attnc::c

using namespace attnc;
using namespace attnc::c;

attnc_status attnc_quantiser_create(const attnc_compiler* compiler, attnc_dtype dtype, int32_t head_dim,
                                    attnc_quantiser** quantiser) {
  return call({{compiler, "compiler"}, {quantiser, "quantiser"}}, [&](Arguments& arguments) -> Status {
    const DType elements = readDtype(arguments, dtype, "dtype");
    if (!arguments.ok()) return {};
    return give(Quantiser::load(compiler->compiler, elements, head_dim), quantiser);
  });
}

void attnc_quantiser_destroy(attnc_quantiser* quantiser) { delete quantiser; }

attnc_status attnc_quantiser_launch(const attnc_quantiser* quantiser, const attnc_tensor* x, const attnc_tensor* out,
                                    const attnc_tensor* scales, const attnc_quantise_options* options,
                                    attnc_stream stream) {
  return call({{quantiser, "quantiser"}}, [&](Arguments& arguments) -> Status {
    const Given given(arguments, x, out, scales, options);
    if (!arguments.ok()) return {};
    return quantiser->quantiser.launch(given.x, given.out, given.scales, given.options, static_cast<Stream>(stream));
  });
}

attnc_status attnc_quantise_on_cpu(const attnc_tensor* x, const attnc_tensor* out, const attnc_tensor* scales,
                                   const attnc_quantise_options* options) {
  return call([&](Arguments& arguments) -> Status {
    const Given given(arguments, x, out, scales, options);
    if (!arguments.ok()) return {};
    return quantiseOnCpu(given.x, given.out, given.scales, given.options);
  });
}
