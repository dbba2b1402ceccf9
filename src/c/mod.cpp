#include "attnc/c/mod.h"

#include "c/enumerators.h"
#include "c/handles.h"
#include "c/operands.h"
#include "c/tell.h"

#include <fmt/format.h>

#include <cstring>

namespace attnc::c {
namespace {

ParseOptions readParseOptions(const attnc_parse_options* given) {
  const attnc_parse_options all = readStruct(given, "options");
  ParseOptions options;
  if (all.name) options.name = all.name;
  const Place defines{"options", "defines"};
  if (all.define_count) need(all.defines, defines);
  for (size_t i = 0; i < all.define_count; ++i) {
    need(all.defines[i].name, defines.at(i, "name"));
    need(all.defines[i].value, defines.at(i, "value"));
    options.defines[all.defines[i].name] = all.defines[i].value;
  }
  return options;
}

const char* textOf(const attnc_mod* mod, std::string (Mod::*of)() const) {
  const char* text = nullptr;
  call({{mod, "mod"}}, [&] {
    text = mod->texts.keep((mod->mod.*of)());
    return Status();
  });
  return text;
}

std::string_view readText(const char* text, size_t length) {
  need(text, "text");
  return {text, length == ATTNC_WHOLE ? std::strlen(text) : length};
}

} // namespace
} // namespace attnc::c

using namespace attnc;
using namespace attnc::c;

attnc_status attnc_mod_parse(const char* text, size_t length, const attnc_parse_options* options, attnc_mod** mod) {
  return call({{mod, "mod"}}, [&] {
    const std::string_view whole = readText(text, length);
    const ParseOptions how = readParseOptions(options);
    return give(Mod::parse(whole, how), mod);
  });
}

attnc_status attnc_mod_parse_ir(const char* text, size_t length, const char* name, attnc_mod** mod) {
  return call({{mod, "mod"}}, [&] {
    const std::string_view whole = readText(text, length);
    return give(name ? Mod::parseIr(whole, name) : Mod::parseIr(whole), mod);
  });
}

attnc_status attnc_mod_load(const char* path, const attnc_parse_options* options, attnc_mod** mod) {
  return call({{path, "path"}, {mod, "mod"}}, [&] {
    ParseOptions how = readParseOptions(options);
    return give(Mod::load(path, std::move(how)), mod);
  });
}

attnc_status attnc_mod_identity(attnc_mod** mod) {
  return call({{mod, "mod"}}, [&] { return give(Expected<Mod>(Mod::identity()), mod); });
}

attnc_status attnc_mod_choice(const attnc_mod* const* mods, size_t count, const char* which, attnc_mod** choice) {
  return call({{which, "which"}, {choice, "choice"}}, [&] {
    std::vector<Mod> all;
    if (count) need(mods, "mods");
    for (size_t i = 0; i < count; ++i) {
      need(mods[i], Place("mods").at(i));
      all.push_back(mods[i]->mod);
    }
    return give(Mod::choice(all, which), choice);
  });
}

attnc_status attnc_mod_pinned(const attnc_mod* mod, const attnc_pin* pins, size_t count, attnc_mod** pinned) {
  return call({{mod, "mod"}, {pinned, "pinned"}}, [&] {
    const auto values = readPins(pins, count, "pins");
    return give(mod->mod.pinned(values), pinned);
  });
}

void attnc_mod_destroy(attnc_mod* mod) { delete mod; }

attnc_status attnc_mod_get_info(const attnc_mod* mod, attnc_mod_info* info) {
  return tell({{mod, "mod"}}, info, "info", [&](attnc_mod_info& all) {
    all.name = mod->mod.name().c_str();
    all.hash = mod->mod.hash().c_str();
    all.capture_count = mod->mod.captures().size();
    all.has_score_mod = mod->mod.hasScoreMod();
    all.has_mask_mod = mod->mod.hasMaskMod();
    all.has_prob_mod = mod->mod.hasProbMod();
    all.has_sink_mod = mod->mod.hasSinkMod();
    all.has_weight_mod = mod->mod.hasWeightMod();
    all.walks_twice = mod->mod.walksTwice();
    all.warning_count = mod->mod.warnings().size();
    all.reduction_count = mod->mod.reductions().size();
  });
}

/// Fills one of a mod's captures or outputs, which are called `what`.
static attnc_status getTensor(const attnc_mod* mod, const std::vector<CaptureInfo>& (Mod::*of)() const,
                              const char* what, size_t index, attnc_capture_info* info) {
  return tell({{mod, "mod"}}, info, "info", [&](attnc_capture_info& all) {
    const std::vector<CaptureInfo>& captures = (mod->mod.*of)();
    if (index >= captures.size())
      refuse("index", fmt::format("is {}, the mod has {} {}", index, captures.size(), what));
    const CaptureInfo& capture = captures[index];
    all.name = capture.name.c_str();
    all.kind = toC(capture.kind);
    all.dtype = capture.kind == CaptureInfo::Kind::Tensor ? toC(capture.dtype) : int32_t(ATTNC_DTYPE_DEFAULT);
    all.rank = int32_t(capture.extent.size());
    all.choices = int32_t(capture.choices);
    all.is_sum = capture.isSum;
    for (size_t axis = 0; axis < capture.extent.size(); ++axis) all.extent[axis] = capture.extent[axis].c_str();
  });
}

attnc_status attnc_mod_get_capture(const attnc_mod* mod, size_t index, attnc_capture_info* info) {
  return getTensor(mod, &Mod::captures, "captures", index, info);
}

attnc_status attnc_mod_get_reduction(const attnc_mod* mod, size_t index, attnc_capture_info* info) {
  return getTensor(mod, &Mod::reductions, "outputs", index, info);
}

attnc_status attnc_mod_get_warning(const attnc_mod* mod, size_t index, attnc_diagnostic* warning) {
  return tell({{mod, "mod"}}, warning, "warning", [&](attnc_diagnostic& all) {
    checkIndex(index, mod->mod.warnings().size());
    all = toC(mod->mod.warnings()[index]);
  });
}

const char* attnc_mod_ast(const attnc_mod* mod) { return textOf(mod, &Mod::astText); }
const char* attnc_mod_ir(const attnc_mod* mod) { return textOf(mod, &Mod::irText); }
