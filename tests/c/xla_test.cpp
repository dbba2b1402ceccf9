// Custom calls of XLA, from an XLA of the test's own.
#include "calls.h"

#include "xla/ffi.h"

#include <deque>
#include <string>
#include <vector>

using namespace ctest;
namespace ffi = attnc::xla::ffi;

namespace {

std::string raised; ///< message of the last error

void* makeError(ffi::ErrorArguments* arguments) {
  raised = arguments->message;
  return &raised;
}

using ffi::kF32, ffi::kU8;
constexpr int kF64 = 12; // of XLA's PrimitiveType

/// A custom call on the CPU over arrays of f32.
struct CustomCall {
  ffi::Api api = {};
  ffi::CallFrame frame = {};
  std::deque<ffi::Buffer> buffers;
  std::deque<std::vector<int64_t>> shapes;
  std::deque<ffi::Text> texts;
  std::deque<ffi::Scalar> scalars;
  std::vector<void*> operands, results, items;
  std::vector<int> operandKinds, resultKinds, kinds;
  std::vector<ffi::Text*> names;
  float scale = 1;

  CustomCall() {
    api.size = sizeof api;
    api.makeError = makeError;
    frame.size = sizeof frame;
    frame.api = &api;
    frame.stage = ffi::Execute;
  }
  CustomCall(const CustomCall&) = delete;

  void add(std::vector<void*>& to, void* data, std::vector<int64_t> shape, int dtype = kF32) {
    shapes.push_back(std::move(shape));
    ffi::Buffer& buffer = buffers.emplace_back();
    buffer = {sizeof buffer, nullptr, dtype, data, int64_t(shapes.back().size()), shapes.back().data()};
    to.push_back(&buffer);
  }
  void set(const char* name, int kind, void* item) {
    texts.push_back({name, std::string_view(name).size()});
    names.push_back(&texts.back());
    kinds.push_back(kind);
    items.push_back(item);
  }
  void setText(const char* name, const char* text) {
    texts.push_back({text, std::string_view(text).size()});
    set(name, ffi::kText, &texts.back());
  }
  void setScale(int dtype = kF32) {
    scalars.push_back({dtype, &scale});
    set("scale", ffi::kScalar, &scalars.back());
  }
  /// Returns the message of the error; "" without an error.
  std::string run(bool onCuda = false) {
    operandKinds.assign(operands.size(), ffi::kBuffer);
    resultKinds.assign(results.size(), ffi::kBuffer);
    frame.operands = {sizeof frame.operands, nullptr, int64_t(operands.size()), operandKinds.data(), operands.data()};
    frame.results = {sizeof frame.results, nullptr, int64_t(results.size()), resultKinds.data(), results.data()};
    frame.attributes = {
        sizeof frame.attributes, nullptr, int64_t(items.size()), kinds.data(), names.data(), items.data()};
    raised.clear();
    auto* const given = reinterpret_cast<XLA_FFI_CallFrame*>(&frame);
    const bool failed = onCuda ? attnc_xla_attention_on_cuda(given) : attnc_xla_attention_on_cpu(given);
    CHECK(failed == !raised.empty());
    return raised;
  }
};

constexpr const char* kMod = "tensor slopes: f32[H]\n"
                             "%0 = load f32 slopes[%h]\n"
                             "%1 = mul f32 %score, %0\n"
                             "%2 = lt i32 %kv_idx, 1\n"
                             "output score(score, b, h, q_idx, kv_idx) -> %1\n"
                             "output mask(b, h, q_idx, kv_idx) -> %2\n";

/// One query; the second of two keys is masked.
struct Arrays {
  std::vector<float> q = {1, 2}, k = {3, 4, 5, 6}, v = {7, 8, 9, 10}, out = {0, 0}, lse = {0}, dOut = {1, 2},
                     dQ = {0, 0}, dK = {1, 1, 1, 1}, dV = dK, slopes = {0.5}, dSlopes = {9};

  void inputs(CustomCall& call) {
    call.add(call.operands, q.data(), {1, 1, 1, 2});
    call.add(call.operands, k.data(), {1, 1, 2, 2});
    call.add(call.operands, v.data(), {1, 1, 2, 2});
  }
  void forward(CustomCall& call) {
    inputs(call);
    call.add(call.operands, slopes.data(), {1});
    call.add(call.results, out.data(), {1, 1, 1, 2});
    call.add(call.results, lse.data(), {1, 1, 1});
    call.setText("captures", "slopes ");
    call.setText("mod", kMod);
    call.setScale();
  }
};

} // namespace

TEST_CASE("a custom call of XLA computes attention and its gradients", "[c]") {
  Arrays arrays;
  CustomCall forward, backward;
  arrays.forward(forward);
  REQUIRE(forward.run() == "");
  CHECK(arrays.out == std::vector<float>{7, 8});
  CHECK(arrays.lse[0] == 5.5f);

  arrays.inputs(backward);
  backward.add(backward.operands, arrays.out.data(), {1, 1, 1, 2});
  backward.add(backward.operands, arrays.lse.data(), {1, 1, 1});
  backward.add(backward.operands, arrays.dOut.data(), {1, 1, 1, 2});
  backward.add(backward.operands, arrays.lse.data(), {1, 1, 1}); // as the gradient of lse
  backward.add(backward.operands, arrays.slopes.data(), {1});
  backward.add(backward.results, arrays.dQ.data(), {1, 1, 1, 2});
  backward.add(backward.results, arrays.dK.data(), {1, 1, 2, 2});
  backward.add(backward.results, arrays.dV.data(), {1, 1, 2, 2});
  backward.add(backward.results, arrays.dSlopes.data(), {1});
  backward.setText("captures", "slopes ");
  backward.setText("gradients", "slopes ");
  backward.setText("mod", kMod);
  backward.setScale();
  REQUIRE(backward.run() == "");
  CHECK(arrays.dV == std::vector<float>{1, 2, 0, 0});
  CHECK(arrays.dSlopes[0] == 5.5f * 11);
  backward.operands.erase(backward.operands.begin() + 6);
  REQUIRE(backward.run() == ""); // without the gradient of lse
  CHECK(arrays.dSlopes[0] == 0);
  backward.operands.pop_back();
  CHECK_THAT(backward.run(), Catch::Contains("has 6 operands, it needs 7"));
}

TEST_CASE("a custom call of XLA computes outputs of a mod", "[c]") {
  Arrays arrays;
  CustomCall call;
  arrays.forward(call);
  const std::string mod = std::string(kMod) + "output reduce_sum_kv_sums(prob, score, b, h, q_idx, kv_idx) -> %prob\n"
                                              "output reduce_max_h_top(prob, score, b, h, q_idx, kv_idx) -> %score\n";
  call.texts[2] = {mod.data(), mod.size()}; // in place of kMod
  REQUIRE(call.run() == "");                // of which none is asked for
  std::vector<float> sums = {9, 9}, top = {9};
  call.add(call.results, sums.data(), {1, 1, 2});
  call.add(call.results, top.data(), {1, 1});
  CHECK_THAT(call.run(), Catch::Contains("has 4 results, it needs 2 and a workspace"));
  call.setText("outputs", "sums top ");
  REQUIRE(call.run() == "");
  CHECK(sums == std::vector<float>{1, 0}); // the second key is masked
  CHECK(top[0] == 5.5f);
  call.setText("gradients", "");
  CHECK_THAT(call.run(), Catch::Contains("has the attribute `outputs`, and is no forward pass"));
}

TEST_CASE("handlers of custom calls tell what XLA asks them", "[c]") {
  ffi::Metadata metadata = {sizeof metadata, {}, 0};
  ffi::MetadataExtension question = {{sizeof question, ffi::kMetadataExtension, nullptr}, &metadata};
  CustomCall call;
  call.frame.extension = &question.base;
  call.frame.api = nullptr;
  for (bool onCuda : {false, true}) {
    metadata.traits = 0;
    CHECK(call.run(onCuda) == "");
    CHECK(metadata.version.major == 0);
    CHECK(metadata.traits == ffi::kCommandBufferCompatible);
  }
}

TEST_CASE("wrong custom calls are refused", "[c]") {
  Arrays arrays;
  SECTION("of another XLA") {
    CustomCall call;
    arrays.forward(call);
    call.api.version.major = 1;
    CHECK_THAT(call.run(), Catch::Contains("version 1.0 of XLA's FFI is not one that attnc knows"));
    call.api.version.major = 0;
    call.api.size -= 8;
    CHECK_THAT(call.run(true), Catch::Contains("tells no device: use a newer jaxlib"));
    call.api.size += 8;
    call.frame.size -= 8;
    CHECK_THAT(call.run(), Catch::Contains("is not one that attnc knows"));
  }
  SECTION("without an attribute") {
    CustomCall call;
    arrays.inputs(call);
    call.setText("mod", kMod);
    CHECK_THAT(call.run(), Catch::Contains("lacks one of the attributes"));
    call.setText("captures", "");
    call.setScale(kF64);
    CHECK_THAT(call.run(), Catch::Contains("lacks one of the attributes"));
  }
  SECTION("of other arrays") {
    CustomCall call;
    arrays.forward(call);
    call.add(call.results, arrays.dK.data(), {4});
    CHECK_THAT(call.run(), Catch::Contains("a workspace that is not u8 [bytes]"));
    call.results.pop_back();
    call.add(call.results, arrays.dK.data(), {4}, kU8);
    CHECK(call.run() == "");
    call.add(call.results, arrays.dK.data(), {4}, kU8);
    CHECK_THAT(call.run(), Catch::Contains("has 4 results, it needs 2 and a workspace"));
    call.results.resize(2);
    static_cast<ffi::Buffer*>(call.operands[3])->dtype = kF64;
    CHECK_THAT(call.run(), Catch::Contains("has operand 3 of XLA's type 12 and 1 axes"));
    static_cast<ffi::Buffer*>(call.operands[3])->dtype = kF32;
    call.shapes[0][3] = 1;
    CHECK_THAT(call.run(), Catch::Contains("is [1, 1, 1, 1]"));
  }
  SECTION("with a wrong mod") {
    CustomCall call;
    arrays.forward(call);
    call.texts[2] = {"tensor ???", 10}; // in place of kMod
    CHECK_THAT(call.run(), Catch::Contains("<xla>"));
  }
  attnc_xla_set_compiler(nullptr); // the default
}
