#include "attnc/c/compiler.h"

#include "c/enumerators.h"
#include "c/handles.h"
#include "c/kernel_options.h"
#include "c/operands.h"
#include "c/tell.h"

#include <fmt/format.h>

namespace attnc::c {
namespace {

CompilerOptions readCompilerOptions(const attnc_compiler_options* given) {
  const attnc_compiler_options all = readStruct(given, "options");
  CompilerOptions options;
  if (all.cache_directory) options.cacheDirectory = all.cache_directory;
  if (all.nvrtc_path) options.nvrtcPath = all.nvrtc_path;
  options.cacheMode = readCacheMode(all.cache_mode, {"options", "cache_mode"});
  options.noCompile = readFlag(all.no_compile, {"options", "no_compile"});
  if (all.max_work < 0) refuse({"options", "max_work"}, fmt::format("is {}", all.max_work));
  options.maxWork = all.max_work;
  options.packs = readTexts(all.packs, all.pack_count, {"options", "packs"});
  if (all.log)
    options.log = [log = all.log, user = all.log_user](LogLevel level, std::string_view line) {
      log(user, toC(level), std::string(line).c_str());
    };
  return options;
}

/// FamilyInfo with texts that end with 0.
struct FamilyRow {
  Family family;
  std::string arch, layouts;
  bool takesAnyLayout;
  std::string takes;
};

std::vector<FamilyRow> familyRows(const std::vector<FamilyInfo>& families) {
  std::vector<FamilyRow> rows;
  for (const FamilyInfo& info : families) {
    std::string takes;
    info.takes.forEach(
        [&](Feature feature) { takes += (takes.empty() ? "" : ", ") + std::string(featureText(feature)); });
    rows.push_back({info.family, std::string(info.arch), std::string(info.layouts), info.takesAnyLayout, takes});
  }
  return rows;
}

/// Null for a number that is not a pass.
const std::vector<FamilyRow>* familiesOfPass(attnc_pass pass) {
  static const std::vector<FamilyRow> forward = familyRows(forwardFamilies()),
                                      backward = familyRows(backwardFamilies());
  return pass == ATTNC_PASS_FORWARD ? &forward : pass == ATTNC_PASS_BACKWARD ? &backward : nullptr;
}

} // namespace
} // namespace attnc::c

using namespace attnc;
using namespace attnc::c;

attnc_status attnc_compiler_create(const attnc_compiler_options* options, attnc_compiler** compiler) {
  return call({{compiler, "compiler"}}, [&]() -> Status {
    CompilerOptions how = readCompilerOptions(options);
    *compiler = new attnc_compiler{Compiler(std::move(how))};
    return {};
  });
}

void attnc_compiler_destroy(attnc_compiler* compiler) { delete compiler; }

attnc_status attnc_plan_create(const attnc_compiler* compiler, const attnc_mod* mod,
                               const attnc_kernel_options* options, attnc_plan** plan) {
  return call({{compiler, "compiler"}, {mod, "mod"}, {plan, "plan"}}, [&] {
    const KernelOptions how = readKernelOptions(options, "options");
    return give(compiler->compiler.plan(mod->mod, how), plan);
  });
}

void attnc_plan_destroy(attnc_plan* plan) { delete plan; }

attnc_status attnc_plan_get_options(const attnc_plan* plan, attnc_kernel_options* options) {
  return tell({{plan, "plan"}}, options, "options", [&](attnc_kernel_options& all) { all = plan->options.view(); });
}

attnc_status attnc_plan_get_info(const attnc_plan* plan, attnc_plan_info* info) {
  return tell({{plan, "plan"}}, info, "info", [&](attnc_plan_info& all) {
    const Plan& from = plan->plan;
    all.passed_over = from.passedOver().c_str();
    all.tile = from.tile().c_str();
    all.tuned_by = from.tunedBy().c_str();
    all.low_rank = from.lowRank().c_str();
    all.kv_loop = toC(from.kvLoop());
    all.gains_from_block_mask = from.gainsFromBlockMask();
  });
}

attnc_status attnc_source_create(const attnc_plan* plan, attnc_source** source) {
  return call({{plan, "plan"}, {source, "source"}}, [&] { return give(plan->plan.sources(), source); });
}

void attnc_source_destroy(attnc_source* source) { delete source; }

size_t attnc_source_stage_count(const attnc_source* source) { return source ? source->stages.size() : 0; }

attnc_status attnc_source_get_stage(const attnc_source* source, size_t index, attnc_source_stage* stage) {
  return tell({{source, "source"}}, stage, "stage", [&](attnc_source_stage& all) {
    checkIndex(index, source->stages.size());
    const attnc_source::Stage& held = *source->stages[index];
    const KernelSource& from = held.source;
    all.entry = from.entry.c_str();
    all.template_name = from.templateName.c_str();
    all.text = from.text.c_str();
    all.flattened = held.flattened.c_str();
    all.header_names = held.headerNames.data();
    all.header_texts = held.headerTexts.data();
    all.header_count = held.headerNames.size();
    all.nvrtc_options = held.options.data();
    all.nvrtc_option_count = held.options.size();
    all.arch = from.arch.c_str();
    all.dynamic_shared_bytes = from.dynamicSharedBytes;
    all.family = toC(from.family);
    all.threads = from.threads;
    all.tile_rows = from.tileRows;
    all.tile_columns = from.tileColumns;
    all.warps = from.warps;
    all.q_stages = from.qStages;
    all.kv_stages = from.kvStages;
  });
}

attnc_status attnc_compile(const attnc_compiler* compiler, const attnc_plan* plan, attnc_compiled** compiled) {
  return call({{compiler, "compiler"}, {plan, "plan"}, {compiled, "compiled"}},
              [&] { return give(compiler->compiler.compile(plan->plan), compiled); });
}

void attnc_compiled_destroy(attnc_compiled* compiled) { delete compiled; }

size_t attnc_compiled_stage_count(const attnc_compiled* compiled) { return compiled ? compiled->stages.size() : 0; }

attnc_status attnc_compiled_get_stage(const attnc_compiled* compiled, size_t index, attnc_compiled_stage* stage) {
  return tell({{compiled, "compiled"}}, stage, "stage", [&](attnc_compiled_stage& all) {
    checkIndex(index, compiled->stages.size());
    const CompiledKernel& from = *compiled->stages[index];
    all.entry = from.entry.c_str();
    all.template_name = from.templateName.c_str();
    all.cubin = from.cubin.data();
    all.cubin_bytes = from.cubin.size();
    all.ptx = from.ptx.c_str();
    all.log = from.log.c_str();
    all.advisories = compiled->advisories[index].data();
    all.advisory_count = compiled->advisories[index].size();
    all.static_shared_bytes = from.staticSharedBytes;
    all.dynamic_shared_bytes = from.dynamicSharedBytes;
    all.compile_ms = from.compileMs;
    all.registers = from.registers;
    all.spill_bytes = from.spillBytes;
    all.from_disk = from.fromDisk;
    all.order = from.order;
  });
}

size_t attnc_family_count(attnc_pass pass) {
  size_t count = 0;
  call({}, [&] {
    if (const auto* families = familiesOfPass(pass)) count = families->size();
    return Status();
  });
  return count;
}

attnc_status attnc_get_family(attnc_pass pass, size_t index, attnc_family_info* info) {
  return tell({}, info, "info", [&](attnc_family_info& all) {
    const auto* families = familiesOfPass(pass);
    if (!families) refuse("pass", fmt::format("is {}, which is none", pass));
    checkIndex(index, families->size());
    const FamilyRow& row = (*families)[index];
    all.arch = row.arch.c_str();
    all.layouts = row.layouts.c_str();
    all.family = toC(row.family);
    all.takes_any_layout = row.takesAnyLayout;
    all.takes = row.takes.c_str();
  });
}
