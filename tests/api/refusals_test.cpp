// The wrong operands of tests/refusals/cases.json at the door of C++; refusals_test.py gives them at the others.
#include "attnc/attnc.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <vector>

using namespace attnc;

namespace {

using Json = nlohmann::json;

/// The operands of a problem of the table, in memory of this object.
class WrongOperands {
public:
  WrongOperands(const Json& problem, const Json& changes) : operands(problem["operands"]), mod(problem["mod"]) {
    if (problem.contains("captures")) captures = problem["captures"];
    if (problem.contains("lists")) lists = problem["lists"];
    for (const auto& [name, value] : changes.items()) {
      const bool ofLists = !lists.is_null() && (name == "shape" || name.find("_num_blocks") != name.npos ||
                                                name.find("_indices") != name.npos);
      Json& group = ofLists ? lists : captures.contains(name) ? captures : operands;
      if (value.is_null())
        group.erase(name);
      else
        group[name] = value;
    }
  }

  /// Computes on the CPU. Returns the message of the refusal, or nothing.
  std::string refusal() {
    BackwardOperands all;
    Outputs outputs;
    BackwardOutputs gradients;
#define ATTNC_TENSOR(member, name) all.member = *tensor(#name);
#define ATTNC_OPTIONAL(member, name, feature) all.member = tensor(#name);
#define ATTNC_GRADIENT(member, name, like)                                                                             \
  if (std::string_view(#name).starts_with("d")) gradients.member = tensor(#name, #like);
#include "attnc/operands.def"
    outputs.out = tensor("out", "q"), outputs.lse = tensor("lse");
    const Captures given = capturesOf();
    all.captures = &given;
    BlockMaskView view;
    if (!lists.is_null()) all.blockMask = &(view = listsOf());
    const Expected<Mod> parsed = Mod::parse(mod);
    REQUIRE(parsed);
    Status status;
    if (operands.contains("dout")) {
      all.out = *tensor("out", "q"), all.dOut = *tensor("dout"), all.dLse = tensor("dlse");
      status = computeBackwardOnCpu(*parsed, all, gradients);
    } else {
      status = computeOnCpu(*parsed, all, outputs);
    }
    return status ? "" : status.error().message;
  }

private:
  static void flatten(const Json& values, std::vector<int64_t>& shape, std::vector<int32_t>& to, size_t depth = 0) {
    if (!values.is_array()) return to.push_back(values.get<int32_t>());
    if (shape.size() == depth) shape.push_back(int64_t(values.size()));
    for (const Json& value : values) flatten(value, shape, to, depth + 1);
  }

  TensorView viewOf(const Json& given) {
    std::vector<int64_t> shape;
    std::vector<int32_t> values;
    DType dtype = DType::I32;
    if (given.is_array()) {
      flatten(given, shape, values);
    } else {
      const std::map<std::string, DType> dtypes = {
          {"f32", DType::F32}, {"f16", DType::F16}, {"i32", DType::I32}, {"e4m3", DType::E4M3}};
      shape = given["shape"].get<std::vector<int64_t>>();
      dtype = dtypes.at(given.value("dtype", "f32"));
    }
    TensorView view{.data = nullptr, .dtype = dtype, .rank = int(shape.size())};
    int64_t step = 1;
    for (size_t axis = shape.size(); axis-- > 0; step *= shape[axis])
      view.shape[axis] = shape[axis], view.stride[axis] = step;
    values.resize(size_t(step));
    view.data = memory.emplace_back(std::move(values)).data();
    for (size_t i = 0; given.is_object() && given.contains("values") && i < given["values"].size(); ++i) {
      const Json& value = given["values"][i];
      const float number = value.is_string() ? std::stof(value.get<std::string>()) : value.get<float>();
      std::memcpy(&memory.back()[i], &number, sizeof number);
    }
    if (given.is_object() && given.value("null", false)) view.data = nullptr;
    for (size_t axis = 0; given.is_object() && given.contains("stride") && axis < shape.size(); ++axis)
      view.stride[axis] = given["stride"][axis];
    return view;
  }

  /// `like`: which tensor's shape to take if it is not given; empty: none.
  std::optional<TensorView> tensor(const std::string& name, const std::string& like = "") {
    if (operands.contains(name)) return viewOf(operands[name]);
    if (like.empty()) return std::nullopt;
    return viewOf(Json{{"shape", operands[like]["shape"]}});
  }

  Captures capturesOf() {
    Captures all;
    for (const auto& [name, value] : captures.items()) {
      if (value.is_structured()) all.set(name, viewOf(value));
      if (value.is_boolean()) all.set(name, value.get<bool>());
      if (value.is_number_integer()) all.set(name, value.get<int64_t>());
      if (value.is_number_float()) all.set(name, value.get<double>());
    }
    return all;
  }

  BlockMaskView listsOf() {
    const auto at = [&](const char* name) -> int32_t* {
      return lists.contains(name) ? static_cast<int32_t*>(viewOf(lists[name]).data) : nullptr;
    };
    const Json& s = lists["shape"];
    BlockMaskView view{.shape = {s[0], s[1], s[2], s[3], s[4], s[5]}, .partialCount = at("kv_num_blocks")};
    view.partialIndex = at("kv_indices"), view.fullCount = at("full_kv_num_blocks");
    view.fullIndex = at("full_kv_indices"), view.indexStride = 2;
    view.columns = {at("q_num_blocks"), at("q_indices"), at("full_q_num_blocks"), at("full_q_indices"), 2};
    return view;
  }

  Json operands, captures = Json::object(), lists;
  std::string mod;
  std::deque<std::vector<int32_t>> memory;
};

} // namespace

TEST_CASE("wrong operands are refused on the CPU", "[api]") {
  std::ifstream file(ATTNC_SOURCE_DIR "/tests/refusals/cases.json");
  const Json table = Json::parse(file);
  const auto isHere = [](const Json& doors) { return std::find(doors.begin(), doors.end(), "c++") != doors.end(); };
  for (const Json& one : table["cases"]) {
    const Json& problem = table["problems"][one["problem"].get<std::string>()];
    if (!isHere(one.contains("doors") ? one["doors"] : problem["doors"])) continue;
    INFO(one.dump());
    if (problem.contains("environment")) setenv("ATTNC_CHECK", "1", 1);
    CHECK_THAT(WrongOperands(problem, one["set"]).refusal(), Catch::Contains(one["error"].get<std::string>()));
    CHECK(WrongOperands(problem, Json::object()).refusal().empty());
    unsetenv("ATTNC_CHECK");
  }
}
