#include "c/kernel_options.h"

#include "c/enumerators.h"
#include "c/operands.h"
#include "c/structs.h"

#include <fmt/format.h>

namespace attnc::c {
namespace {

/// Reads a size, where 0 means the default.
int readSize(Arguments& arguments, int32_t given, int byDefault, const Place& place) {
  if (given < 0) arguments.refuse(place, fmt::format("is {}", given));
  return given > 0 ? given : byDefault;
}

/// Reads members of KernelOptions, by their types.
struct OptionReader {
  Arguments& arguments;
  size_t pins = 0, gradients = 0; ///< how many there are

  void read(int& option, int32_t given, const Place& place) const {
    option = readSize(arguments, given, option, place);
  }
  void read(bool& option, int64_t given, const Place& place) const { option = readFlag(arguments, given, place); }
  void read(float& option, double given, const Place&) const { option = float(given); }
  void read(Features& option, uint32_t given, const Place& place) const {
    option = Features(given);
    if (const uint32_t others(option.without(kOptionFeatures)); others)
      arguments.refuse(place, fmt::format("has bits {:#x}, which are no ATTNC_FEATURE", others));
  }
  void read(std::string& option, const char* given, const Place&) const {
    if (given) option = given;
  }
  void read(KernelKind& option, attnc_kernel_kind given, const Place& place) const {
    option = readKind(arguments, given, place);
  }
  void read(Family& option, attnc_family given, const Place& place) const {
    option = readFamily(arguments, given, place);
  }
  void read(DType& option, attnc_dtype given, const Place& place) const {
    if (given != ATTNC_DTYPE_DEFAULT) option = readDtype(arguments, given, place);
  }
  void read(QueryOffsets& option, attnc_query_offsets given, const Place& place) const {
    option = readOffsets(arguments, given, place).value_or(option);
  }
  void read(std::map<std::string, int64_t>& option, const attnc_pin* given, const Place& place) const {
    option = readPins(arguments, given, pins, place);
  }
  void read(std::set<std::string>& option, const char* const* given, const Place& place) const {
    option = readNames(arguments, given, gradients, place);
  }
};

} // namespace

KernelOptions readKernelOptions(Arguments& arguments, const attnc_kernel_options* given, const Place& place) {
  attnc_kernel_options all;
  KernelOptions options;
  arguments.given(given, place);
  if (!readStruct(arguments, given, all, place)) return options;
  const OptionReader reader{arguments, all.pin_count, all.gradient_count};
  const auto at = [&](const char* member) { return Place(place.name, member); };
#define ATTNC_OPTION(member, name, label) reader.read(options.member, all.name, at(#name));
#include "attnc/options.def"
  return options;
}

PrepareOptions readPrepareOptions(Arguments& arguments, const attnc_prepare_options* given) {
  attnc_prepare_options all;
  PrepareOptions options;
  if (!readStruct(arguments, given, all, "options")) return options;
  const auto at = [](const char* member) { return Place("options", member); };
  if (all.arch) options.arch = all.arch;
  options.pins = readPins(arguments, all.pins, all.pin_count, at("pins"));
  options.family = readFamily(arguments, all.family, at("family"));
  options.offsets = readOffsets(arguments, all.offsets, at("offsets"));
  options.deterministic = readFlag(arguments, all.deterministic, at("deterministic"));
  options.buildBlockMask = !readFlag(arguments, all.no_block_mask, at("no_block_mask"));
  options.decode = readDecode(arguments, all.decode, at("decode"));
  if (all.tile) options.tile = all.tile;
  if (all.backward_tile) options.backwardTile = all.backward_tile;
  const OptionReader reader{arguments};
#define ATTNC_CHOICE(type, member, c_type, name, limit, flag, text) reader.read(options.member, all.name, at(#name));
#include "attnc/choices.def"
  options.check = readFlag(arguments, all.check, at("check"));
  options.backwardLater = readFlag(arguments, all.backward_later, at("backward_later"));
  return options;
}

} // namespace attnc::c
