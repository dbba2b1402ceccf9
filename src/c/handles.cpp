#include "c/handles.h"

#include "c/enumerators.h"

#include <type_traits>

namespace attnc::c {

OptionsHolder::OptionsHolder(KernelOptions options) : held(std::move(options)) {
  for (const auto& [name, value] : held.pins) pins.push_back({name.c_str(), value});
  for (const std::string& name : held.gradients) gradients.push_back(name.c_str());
}

attnc_kernel_options OptionsHolder::view() const {
  attnc_kernel_options all = {};
  const auto write = [&](auto& to, const auto& option) {
    using Option = std::decay_t<decltype(option)>;
    if constexpr (std::is_arithmetic_v<Option>)
      to = option;
    else if constexpr (std::is_same_v<Option, std::string>)
      to = option.c_str();
    else if constexpr (std::is_same_v<Option, std::map<std::string, int64_t>>)
      to = pins.data(), all.pin_count = pins.size();
    else if constexpr (std::is_same_v<Option, std::set<std::string>>)
      to = gradients.data(), all.gradient_count = gradients.size();
    else if constexpr (std::is_same_v<Option, Features>)
      to = uint32_t(option);
    else
      to = toC(option);
  };
#define ATTNC_OPTION(member, name, label) write(all.name, held.member);
#include "attnc/options.def"
  return all;
}

std::vector<const char*> addresses(const std::vector<std::string>& texts) {
  std::vector<const char*> all;
  for (const std::string& text : texts) all.push_back(text.c_str());
  return all;
}

} // namespace attnc::c

using namespace attnc;

attnc_source::Stage::Stage(KernelSource given)
    : source(std::move(given)), flattened(source.flattened()), options(c::addresses(source.options)) {
  for (const auto& [name, text] : source.headers) {
    headerNames.push_back(name.c_str());
    headerTexts.push_back(text.c_str());
  }
}

attnc_source::attnc_source(std::vector<KernelSource> sources) {
  for (KernelSource& source : sources) stages.push_back(std::make_unique<const Stage>(std::move(source)));
}

attnc_compiled::attnc_compiled(CompiledStages given) : stages(std::move(given)) {
  for (const auto& stage : stages) advisories.push_back(c::addresses(stage->advisories));
}

attnc_preparation::attnc_preparation(Preparation given)
    : preparation(std::move(given)), text(c::describe(preparation)) {
  for (const Plan& plan : preparation.kernels()) plans.push_back(std::make_unique<const attnc_plan>(plan));
}

attnc_prepared::attnc_prepared(Prepared given) : prepared(std::move(given)), preparation(prepared.preparation()) {
  preparation.text += c::describe(prepared.kernel().compiled());
  if (const BackwardKernel* kernel = prepared.backwardKernel()) preparation.text += c::describe(kernel->compiled());
}
