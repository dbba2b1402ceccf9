#include "jobs/variants.h"

namespace attnc::test {
namespace {

constexpr KernelKind kBackward = KernelKind::Backward, kDecode = KernelKind::Decode;
constexpr QueryOffsets kFromLengths = QueryOffsets::FromLengths;

void addForward(std::vector<Variant>& all) {
  for (auto [dim, dimV] : {std::pair(64, 64), {128, 128}, {192, 128}, {256, 256}}) {
    const std::string dims = std::to_string(dim) + "/" + std::to_string(dimV);
    all.push_back({"sm90 d" + dims, {.family = Family::Sm90, .arch = "sm_90a", .headDim = dim, .headDimV = dimV}});
    all.push_back({"sm80 d" + dims, {.family = Family::Sm80, .arch = "sm_80", .headDim = dim, .headDimV = dimV}});
  }
  const auto hopper = [&](const char* name, KernelOptions options) {
    options.family = Family::Sm90, options.arch = "sm_90a";
    all.push_back({std::string("sm90 ") + name, options});
  };
  hopper("f16 row max", {.dtype = DType::F16, .features = {Feature::RowMax}});
  hopper("lists", {.blockSparse = true});
  hopper("lists of the whole mod d64", {.headDim = 64, .blockSparse = true, .listsOfWholeMod = true});
  hopper("lengths", {.features = {Feature::Lengths}, .offsets = kFromLengths});
  hopper("appends in pages",
         {.features = {Feature::Lengths, Feature::Appends}, .offsets = QueryOffsets::Tensor, .pageSize = 64});
  hopper("ragged", {.features = {Feature::Ragged}});
  hopper("ragged lists d64", {.headDim = 64, .features = {Feature::Ragged}, .blockSparse = true});
  hopper("ragged pages", {.features = {Feature::Ragged, Feature::Lengths}, .offsets = kFromLengths, .pageSize = 16});
  hopper("e4m3", {.features = {Feature::Fp8Q, Feature::Fp8Kv}});
  hopper("e4m3 of rows d64",
         {.headDim = 64, .features = {Feature::Fp8Q, Feature::Fp8Kv, Feature::RowScales, Feature::Lengths}});
  hopper("outputs", {.features = {Feature::Reductions}});
  hopper("outputs lists d64", {.headDim = 64, .features = {Feature::Reductions}, .blockSparse = true});
  const auto ampere = [&](const char* name, const char* arch, KernelOptions options) {
    options.family = Family::Sm80, options.arch = arch;
    all.push_back({std::string("sm80 ") + name, options});
  };
  ampere("sm_89", "sm_89", {});
  ampere("sm_100 d64", "sm_100", {.headDim = 64});
  ampere("sm_120", "sm_120", {});
  ampere("compute_90", "compute_90", {});
  ampere("f32 d64", "sm_80", {.dtype = DType::F32, .headDim = 64});
  ampere("tf32 d64", "sm_80", {.dtype = DType::F32, .headDim = 64, .tf32 = true});
  ampere("lists", "sm_80", {.blockSparse = true});
  ampere("lengths", "sm_80", {.features = {Feature::Lengths}, .offsets = kFromLengths});
  ampere("pages of 16 d64", "sm_80", {.headDim = 64, .features = {Feature::Lengths}, .pageSize = 16});
  ampere("ragged d64", "sm_80", {.headDim = 64, .features = {Feature::Ragged}});
  ampere("outputs", "sm_80", {.features = {Feature::Reductions}});
  ampere("e4m3 sm_89", "sm_89", {.features = {Feature::Fp8Q, Feature::Fp8Kv}});
  all.push_back({"naive", {.family = Family::Naive, .arch = "sm_80", .headDim = 64}});
  all.push_back(
      {"naive ragged f32",
       {.family = Family::Naive, .arch = "sm_80", .dtype = DType::F32, .headDim = 64, .features = {Feature::Ragged}}});
  for (const char* arch : {"sm_80", "sm_90a"})
    for (bool lists : {false, true})
      all.push_back(
          {std::string("grid ") + arch + (lists ? " lists" : ""),
           {.family = Family::Grid, .arch = arch, .headDim = 64, .blockSparse = lists, .maskByBoxes = lists}});
  all.push_back({"grid f32", {.family = Family::Grid, .arch = "sm_90a", .dtype = DType::F32, .headDim = 64}});
}

void addBackward(std::vector<Variant>& all) {
  const auto add = [&](const std::string& name, Family family, const char* arch, KernelOptions options,
                       bool ofAllCaptures = false) {
    options.kind = kBackward, options.family = family, options.arch = arch;
    all.push_back({"backward " + name, options, ofAllCaptures});
  };
  for (auto [dim, dimV] : {std::pair(64, 64), {128, 128}, {192, 128}, {256, 256}}) {
    const std::string dims = " d" + std::to_string(dim) + "/" + std::to_string(dimV);
    add("sm90" + dims, Family::Sm90, "sm_90a", {.headDim = dim, .headDimV = dimV});
    add("sm80" + dims, Family::Sm80, "sm_80", {.headDim = dim, .headDimV = dimV});
  }
  for (auto [family, arch] : {std::pair(Family::Sm90, "sm_90a"), {Family::Sm80, "sm_80"}}) {
    const std::string name(familyName(family));
    add(name + " lists", family, arch, {.blockSparse = true});
    add(name + " f16 deterministic", family, arch, {.dtype = DType::F16, .features = {Feature::Deterministic}});
    add(name + " captures d64", family, arch, {.headDim = 64}, true);
    add(name + " captures deterministic d64", family, arch, {.headDim = 64, .features = {Feature::Deterministic}},
        true);
    add(name + " ragged d64", family, arch, {.headDim = 64, .features = {Feature::Ragged}});
    add(name + " lengths d64", family, arch,
        {.headDim = 64, .features = {Feature::Lengths}, .offsets = QueryOffsets::FromLengths});
  }
  add("sm80 f32 d64", Family::Sm80, "sm_80", {.dtype = DType::F32, .headDim = 64});
  add("naive", Family::Naive, "sm_80", {.headDim = 64});
  add("grid sm_90a d64", Family::Grid, "sm_90a", {.headDim = 64});
  for (const char* arch : {"sm_80", "sm_90a"})
    add(std::string("grid deterministic ") + arch, Family::Grid, arch, {.features = {Feature::Deterministic}});
  add("grid sm_80 d64 captures", Family::Grid, "sm_80", {.headDim = 64}, true);
  add("grid f32", Family::Grid, "sm_90a", {.dtype = DType::F32, .headDim = 64});
}

void addDecode(std::vector<Variant>& all) {
  const auto add = [&](const std::string& name, const char* arch, KernelOptions options) {
    options.kind = kDecode, options.arch = arch;
    all.push_back({"decode " + name, options});
  };
  for (const char* arch : {"sm_80", "sm_90a"}) {
    const std::string on(arch);
    add(on, arch, {});
    add(on + " lengths, 64 rows", arch, {.features = {Feature::Lengths}, .packedRows = 64, .offsets = kFromLengths});
    add(on + " appends in pages d64", arch,
        {.headDim = 64, .features = {Feature::Lengths, Feature::Appends}, .offsets = kFromLengths, .pageSize = 16});
    add(on + " ragged f16", arch, {.dtype = DType::F16, .features = {Feature::Ragged}});
  }
  add("sm_90a cache of e4m3", "sm_90a", {.features = {Feature::Fp8Kv, Feature::Lengths}, .offsets = kFromLengths});
  add("sm_90a 576/512 v in k, pages of 64", "sm_90a",
      {.headDim = 576,
       .headDimV = 512,
       .features = {Feature::VInK, Feature::Lengths},
       .offsets = kFromLengths,
       .pageSize = 64});
}

} // namespace

KernelOptions optionsOf(const Variant& variant, const Mod& mod) {
  KernelOptions options = variant.options;
  if (variant.ofAllCaptures)
    for (const CaptureInfo& capture : mod.captures())
      if (capture.kind == CaptureInfo::Kind::Float ||
          (capture.kind == CaptureInfo::Kind::Tensor &&
           (capture.dtype == DType::F32 || capture.dtype == DType::F16 || capture.dtype == DType::BF16)))
        options.gradients.insert(capture.name);
  return options;
}

std::vector<Variant> variants() {
  std::vector<Variant> all;
  addForward(all);
  addBackward(all);
  addDecode(all);
  all.push_back({"block mask", {.kind = KernelKind::BlockMask, .arch = "sm_80"}});
  all.push_back({"block mask by column", {.kind = KernelKind::BlockMask, .arch = "sm_90a", .columnLists = true}});
  return all;
}

} // namespace attnc::test
