// Views of tensors, and those that DLPack hands out.
#include "calls.h"
#include "src/c/dlpack.h"

#include <limits>

using namespace ctest;
namespace dlpack = attnc::c::dlpack;

namespace {

struct Given {
  int64_t shape[3] = {2, 3, 4}, strides[3] = {24, 8, 2};
  float memory[64] = {};
  dlpack::Tensor tensor{memory, {dlpack::kCpu, 0}, 3, {dlpack::kFloat, 32, 1}, shape, strides, 8};
};

} // namespace

TEST_CASE("strides of a dense tensor", "[c]") {
  auto t = sized<attnc_tensor>();
  t.rank = 3;
  t.shape[0] = 2;
  t.shape[1] = 3;
  t.shape[2] = 4;
  TAKE(attnc_tensor_make_dense(&t));
  CHECK(t.stride[0] == 12);
  CHECK(t.stride[1] == 4);
  CHECK(t.stride[2] == 1);
  t.rank = 7;
  REFUSED(ATTNC_ERROR_ARGUMENT, "tensor has rank 7", attnc_tensor_make_dense(&t));
  t.rank = 2;
  t.shape[0] = t.shape[1] = std::numeric_limits<int64_t>::max();
  REFUSED(ATTNC_ERROR_ARGUMENT, "tensor has extents", attnc_tensor_make_dense(&t));
  t.shape[0] = -1;
  REFUSED(ATTNC_ERROR_ARGUMENT, "tensor has extents", attnc_tensor_make_dense(&t));
}

TEST_CASE("a DLTensor is viewed where it lies", "[c]") {
  Given given;
  auto t = told<attnc_tensor>(attnc_tensor_from_dlpack, &given.tensor, ATTNC_DEVICE_HOST);
  CHECK(t.data == given.memory + 2); // the offset is in bytes
  CHECK(t.dtype == ATTNC_DTYPE_F32);
  REQUIRE(t.rank == 3);
  for (int axis = 0; axis < 3; ++axis) {
    CHECK(t.shape[axis] == given.shape[axis]);
    CHECK(t.stride[axis] == given.strides[axis]);
  }
  given.tensor.strides = nullptr;
  TAKE(attnc_tensor_from_dlpack(&given.tensor, ATTNC_DEVICE_HOST, &t));
  CHECK(t.stride[0] == 12);
  for (auto [code, bits, dtype] : {std::tuple(dlpack::kFloat, 16, ATTNC_DTYPE_F16),
                                   {dlpack::kBfloat, 16, ATTNC_DTYPE_BF16},
                                   {dlpack::kBool, 8, ATTNC_DTYPE_BOOL},
                                   {dlpack::kUInt, 8, ATTNC_DTYPE_U8},
                                   {dlpack::kInt, 8, ATTNC_DTYPE_I8},
                                   {dlpack::kInt, 16, ATTNC_DTYPE_I16},
                                   {dlpack::kInt, 32, ATTNC_DTYPE_I32},
                                   {dlpack::kInt, 64, ATTNC_DTYPE_I64}}) {
    given.tensor.dtype = {code, uint8_t(bits), 1};
    TAKE(attnc_tensor_from_dlpack(&given.tensor, ATTNC_DEVICE_HOST, &t));
    CHECK(t.dtype == dtype);
  }
}

TEST_CASE("a DLTensor that attnc cannot view is refused", "[c]") {
  Given given;
  auto t = sized<attnc_tensor>();
  const auto refused = [&](attnc_status status, const char* part) {
    REFUSED(status, part, attnc_tensor_from_dlpack(&given.tensor, ATTNC_DEVICE_HOST, &t));
  };
  SECTION("elsewhere") {
    REFUSED(ATTNC_ERROR_ENVIRONMENT, "device type 1, expected CUDA memory",
            attnc_tensor_from_dlpack(&given.tensor, ATTNC_DEVICE_CUDA, &t));
    for (int32_t type : {dlpack::kCuda, dlpack::kCudaManaged}) {
      given.tensor.device.type = type;
      refused(ATTNC_ERROR_ENVIRONMENT, "expected host memory");
      CHECK(attnc_tensor_from_dlpack(&given.tensor, ATTNC_DEVICE_CUDA, &t) == ATTNC_OK);
    }
    REFUSED(ATTNC_ERROR_ARGUMENT, "device is 2", attnc_tensor_from_dlpack(&given.tensor, 2, &t));
  }
  SECTION("dtypes") {
    for (dlpack::DataType dtype : {dlpack::DataType{dlpack::kFloat, 64, 1},
                                   {dlpack::kFloat, 32, 4},
                                   {dlpack::kUInt, 16, 1},
                                   {dlpack::kInt, 4, 1},
                                   {dlpack::kBfloat, 32, 1},
                                   {5 /* complex */, 64, 1}}) {
      given.tensor.dtype = dtype;
      refused(ATTNC_ERROR_ENVIRONMENT, "dtype code");
      CHECK_THAT(attnc_last_remedy(), Catch::Contains("f32 and e4m3"));
    }
  }
  SECTION("shapes") {
    given.tensor.ndim = 7;
    refused(ATTNC_ERROR_ENVIRONMENT, "rank 7");
    given.tensor.ndim = -1;
    refused(ATTNC_ERROR_ENVIRONMENT, "rank -1");
    given.tensor.ndim = 3;
    given.shape[1] = -3;
    refused(ATTNC_ERROR_ARGUMENT, "extents");
    given.tensor.shape = nullptr;
    refused(ATTNC_ERROR_ARGUMENT, "dl_tensor.shape is NULL");
  }
  SECTION("the result") {
    REFUSED(ATTNC_ERROR_ARGUMENT, "tensor is NULL",
            attnc_tensor_from_dlpack(&given.tensor, ATTNC_DEVICE_HOST, nullptr));
    t.struct_size = 16;
    refused(ATTNC_ERROR_ARGUMENT, "tensor has struct_size 16");
  }
}

TEST_CASE("a versioned DLPack tensor says what may be done with it", "[c]") {
  Given given;
  auto t = sized<attnc_tensor>();
  dlpack::ManagedTensorVersioned managed{1, 3, nullptr, nullptr, dlpack::kReadOnly, given.tensor};
  TAKE(attnc_tensor_from_dlpack_versioned(&managed, ATTNC_DEVICE_HOST, 0, &t));
  CHECK(t.data == given.memory + 2);
  REFUSED(ATTNC_ERROR_ENVIRONMENT, "read-only", attnc_tensor_from_dlpack_versioned(&managed, ATTNC_DEVICE_HOST, 1, &t));
  managed.flags = 0;
  TAKE(attnc_tensor_from_dlpack_versioned(&managed, ATTNC_DEVICE_HOST, 1, &t));
  REFUSED(ATTNC_ERROR_ARGUMENT, "writes is 2", attnc_tensor_from_dlpack_versioned(&managed, ATTNC_DEVICE_HOST, 2, &t));
  managed.major = 2;
  REFUSED(ATTNC_ERROR_ENVIRONMENT, "DLPack 2.3",
          attnc_tensor_from_dlpack_versioned(&managed, ATTNC_DEVICE_HOST, 0, &t));
}
