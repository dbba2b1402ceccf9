// The definitions of the C interface's opaque handles.
#pragma once

#include "attnc/attnc.h"
#include "attnc/c.h"

#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace attnc::c {

/// Texts that live as long as this object. Thread-safe.
class Texts {
public:
  const char* keep(std::string text) {
    std::lock_guard lock(mutex);
    return texts.insert(std::move(text)).first->c_str();
  }

private:
  std::mutex mutex;
  std::set<std::string> texts;
};

/// Complete options, and the arrays through which a C caller sees them.
class OptionsHolder {
public:
  explicit OptionsHolder(KernelOptions options);
  OptionsHolder(const OptionsHolder&) = delete; // the arrays point into it
  const KernelOptions& options() const { return held; }
  attnc_kernel_options view() const;

private:
  KernelOptions held;
  std::vector<attnc_pin> pins;
  std::vector<const char*> gradients;
};

/// Returns the texts as an array of C strings. The texts must not move.
std::vector<const char*> addresses(const std::vector<std::string>& texts);

/// Returns the text of attnc_preparation_text().
std::string describe(const Preparation& preparation);
/// Returns the lines about a kernel's stages that follow it.
std::string describe(const CompiledStages& stages);

} // namespace attnc::c

struct attnc_mod {
  attnc::Mod mod;
  mutable attnc::c::Texts texts = {};
};

struct attnc_block_mask {
  attnc::BlockMask mask;
};

struct attnc_compiler {
  attnc::Compiler compiler;
};

struct attnc_plan {
  attnc::Plan plan;
  attnc::c::OptionsHolder options;
  explicit attnc_plan(attnc::Plan given) : plan(std::move(given)), options(plan.options()) {}
};

struct attnc_source {
  struct Stage {
    attnc::KernelSource source;
    std::string flattened;
    std::vector<const char*> headerNames, headerTexts, options;
    explicit Stage(attnc::KernelSource source);
  };
  std::vector<std::unique_ptr<const Stage>> stages;
  explicit attnc_source(std::vector<attnc::KernelSource> sources);
};

struct attnc_compiled {
  attnc::CompiledStages stages;
  std::vector<std::vector<const char*>> advisories; ///< per stage
  explicit attnc_compiled(attnc::CompiledStages stages);
};

struct attnc_pack {
  std::string bytes;
};

struct attnc_preparation {
  attnc::Preparation preparation;
  std::vector<std::unique_ptr<const attnc_plan>> plans;
  std::string text;
  mutable attnc::c::Texts explanations;
  explicit attnc_preparation(attnc::Preparation preparation);
};

struct attnc_tuning {
  attnc::Tuning tuning;
  attnc_preparation preparation;
  explicit attnc_tuning(attnc::Tuning found) : tuning(std::move(found)), preparation(tuning.preparation) {}
};

struct attnc_prepared {
  attnc::Prepared prepared;
  attnc_preparation preparation;
  explicit attnc_prepared(attnc::Prepared prepared);
};

/// A plan, and the arrays through which a C caller sees it.
struct attnc_shard_plan {
  struct Tokens {
    std::vector<attnc_shard_interval> rows, keys;
  };
  struct Work {
    std::vector<attnc_shard_piece> pieces;
    std::vector<attnc_shard_interval> stageRows;
  };
  attnc::ShardPlan plan;
  std::vector<Tokens> tokens;           ///< by rank
  std::vector<std::vector<Work>> works; ///< by mask and rank
  explicit attnc_shard_plan(attnc::ShardPlan plan);
};

struct attnc_sharded {
  attnc::ShardedAttention sharded;
};
