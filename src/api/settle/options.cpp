// What operands ask of a kernel.
#include "api/mod_impl.h"
#include "launch/kernel_options.h"

namespace attnc {

passes::SequenceForm sequenceForm(const Operands& operands, const PrepareOptions& options) {
  const bool lengthsDiffer = operands.kvLengths || operands.cuSeqlensKv;
  const QueryOffsets otherwise = operands.qOffsets ? QueryOffsets::Tensor
                                 : lengthsDiffer   ? QueryOffsets::FromLengths
                                                   : QueryOffsets::None;
  const bool isRagged = operands.cuSeqlensQ.has_value();
  return {operands.kvLengths.has_value(), options.offsets.value_or(otherwise), isRagged,
          isRagged && operands.pageTable};
}

passes::SequenceForm sequenceForm(const KernelOptions& options) {
  const bool isRagged = options.features.has(Feature::Ragged);
  return {options.features.has(Feature::Lengths), options.offsets, isRagged, isRagged && options.pageSize != 0};
}

KernelOptions optionsOf(const Operands& operands, const Outputs& outputs, const PrepareOptions& options) {
  const bool isFp8 = operands.q.dtype == DType::E4M3;
  KernelOptions kernel{.family = options.family,
                       .arch = options.arch,
                       .dtype = !isFp8        ? operands.q.dtype
                                : outputs.out ? outputs.out->dtype
                                              : DType::BF16,
                       .headDim = int(operands.q.shape[3]),
                       .headDimV = int(operands.v.shape[3]),
                       .features = featuresOf(operands) & kOptionFeatures,
                       .offsets = sequenceForm(operands, options).offsets,
                       .pageSize = operands.pageTable ? int(operands.k.shape[2]) : 0,
                       .pins = options.pins,
                       .tile = options.tile};
  copyChoices(options, kernel);
  kernel.features.set(Feature::Fp8Q, isFp8); // scales of others are refused by name
  kernel.features.set(Feature::Fp8Kv, operands.k.dtype == DType::E4M3);
  kernel.features.set(Feature::RowMax, outputs.rowMax.has_value());
  kernel.features.set(Feature::Reductions, outputs.reductions != nullptr);
  const bool appendsInK = !operands.newK || !operands.newV || vIsInK(*operands.newK, *operands.newV);
  kernel.features.set(Feature::VInK, plan::hasWideHeads(kernel) && vIsInK(operands.k, operands.v) && appendsInK);
  if (const BlockMaskView* mask = operands.blockMask) {
    kernel.blockSparse = true;
    kernel.maskQBlock = mask->shape.qBlock;
    kernel.maskKvBlock = mask->shape.kvBlock;
    kernel.maskByBoxes = mask->shape.boxes.has_value();
    kernel.listsOfWholeMod = mask->ofWholeMod;
  }
  return kernel;
}

} // namespace attnc
