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

  Given(const attnc_tensor* x, const attnc_tensor* out, const attnc_tensor* scales,
        const attnc_quantise_options* options)
      : x(requiredTensor(x, "x")), out(requiredTensor(out, "out")), scales(requiredTensor(scales, "scales")) {
    const attnc_quantise_options all = readStruct(options, "options");
    this->options = {all.rotates != 0, all.seed, int(std::clamp<int64_t>(all.scale_bits, INT_MIN, INT_MAX)),
                     all.reads_scales != 0};
    this->options.cosSin = readTensor(all.cos_sin, {"options", "cos_sin"});
    this->options.positions = readTensor(all.positions, {"options", "positions"});
    this->options.interleaved = all.interleaved != 0;
  }
};

} // namespace
} // namespace attnc::c

using namespace attnc;
using namespace attnc::c;

attnc_status attnc_quantiser_create(const attnc_compiler* compiler, attnc_dtype dtype, int32_t head_dim,
                                    attnc_quantiser** quantiser) {
  return call({{compiler, "compiler"}, {quantiser, "quantiser"}}, [&] {
    const DType elements = readDtype(dtype, "dtype");
    return give(Quantiser::load(compiler->compiler, elements, head_dim), quantiser);
  });
}

void attnc_quantiser_destroy(attnc_quantiser* quantiser) { delete quantiser; }

attnc_status attnc_quantiser_launch(const attnc_quantiser* quantiser, const attnc_tensor* x, const attnc_tensor* out,
                                    const attnc_tensor* scales, const attnc_quantise_options* options,
                                    attnc_stream stream) {
  return call({{quantiser, "quantiser"}}, [&]() -> Status {
    const Given given(x, out, scales, options);
    return quantiser->quantiser.launch(given.x, given.out, given.scales, given.options, static_cast<Stream>(stream));
  });
}

attnc_status attnc_quantise_on_cpu(const attnc_tensor* x, const attnc_tensor* out, const attnc_tensor* scales,
                                   const attnc_quantise_options* options) {
  return call({}, [&]() -> Status {
    const Given given(x, out, scales, options);
    return quantiseOnCpu(given.x, given.out, given.scales, given.options);
  });
}
