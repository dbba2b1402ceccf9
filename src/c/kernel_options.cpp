#include "c/kernel_options.h"

#include "c/enumerators.h"
#include "c/operands.h"
#include "c/structs.h"

#include <fmt/format.h>

namespace attnc::c {
namespace {

/// Reads members of KernelOptions, by their types.
struct OptionReader {
  size_t pins = 0, gradients = 0; ///< how many there are

  void read(int& option, int32_t given, const Place& place) const { // 0: the default
    if (given < 0) refuse(place, fmt::format("is {}", given));
    if (given > 0) option = given;
  }
  void read(bool& option, int64_t given, const Place& place) const { option = readFlag(given, place); }
  void read(float& option, double given, const Place&) const { option = float(given); }
  void read(Features& option, uint32_t given, const Place& place) const {
    option = Features(given);
    if (const uint32_t others(option.without(kOptionFeatures)); others)
      refuse(place, fmt::format("has bits {:#x}, which are no ATTNC_FEATURE", others));
  }
  void read(std::string& option, const char* given, const Place&) const {
    if (given) option = given;
  }
  void read(KernelKind& option, attnc_kernel_kind given, const Place& place) const { option = readKind(given, place); }
  void read(Family& option, attnc_family given, const Place& place) const { option = readFamily(given, place); }
  void read(DType& option, attnc_dtype given, const Place& place) const {
    if (given != ATTNC_DTYPE_DEFAULT) option = readDtype(given, place);
  }
  void read(QueryOffsets& option, attnc_query_offsets given, const Place& place) const {
    option = readOffsets(given, place).value_or(option);
  }
  void read(std::map<std::string, int64_t>& option, const attnc_pin* given, const Place& place) const {
    option = readPins(given, pins, place);
  }
  void read(std::set<std::string>& option, const char* const* given, const Place& place) const {
    option = readNames(given, gradients, place);
  }
};

} // namespace

KernelOptions readKernelOptions(const attnc_kernel_options* given, const Place& place) {
  need(given, place);
  const attnc_kernel_options all = readStruct(given, place);
  KernelOptions options;
  const OptionReader reader{all.pin_count, all.gradient_count};
  const auto at = [&](const char* member) { return Place(place.name, member); };
#define ATTNC_OPTION(member, name, label) reader.read(options.member, all.name, at(#name));
#include "attnc/options.def"
  return options;
}

PrepareOptions readPrepareOptions(const attnc_prepare_options* given) {
  const attnc_prepare_options all = readStruct(given, "options");
  PrepareOptions options;
  const auto at = [](const char* member) { return Place("options", member); };
  if (all.arch) options.arch = all.arch;
  options.pins = readPins(all.pins, all.pin_count, at("pins"));
  options.family = readFamily(all.family, at("family"));
  options.offsets = readOffsets(all.offsets, at("offsets"));
  options.deterministic = readFlag(all.deterministic, at("deterministic"));
  options.buildBlockMask = !readFlag(all.no_block_mask, at("no_block_mask"));
  options.decode = readDecode(all.decode, at("decode"));
  if (all.tile) options.tile = all.tile;
  if (all.backward_tile) options.backwardTile = all.backward_tile;
  const OptionReader reader;
#define ATTNC_CHOICE(type, member, c_type, name, limit, flag, text) reader.read(options.member, all.name, at(#name));
#include "attnc/choices.def"
  options.check = readFlag(all.check, at("check"));
  options.backwardLater = readFlag(all.backward_later, at("backward_later"));
  return options;
}

} // namespace attnc::c
