// The structs and numbers of src/xla/ffi.h are those of XLA's header, as jaxlib installs it.
#include "same.h"
#include "xla/ffi.h"

#include <xla/ffi/api/c_api.h>

namespace ffi = attnc::xla::ffi;

SAME_VALUE(ffi::kMajorVersion, XLA_FFI_API_MAJOR);
static_assert(ffi::kMinorVersion <= XLA_FFI_API_MINOR);

#if XLA_FFI_API_MINOR >= 4 // jaxlib 0.11
using Extension = XLA_FFI_InternalExtension;
#else
using Extension = XLA_FFI_Extension_Base;
#endif
SAME_SIZE(ffi::Extension, Extension);
SAME_MEMBER(ffi::Extension, size, Extension, struct_size);
SAME_MEMBER(ffi::Extension, type, Extension, type);
SAME_MEMBER(ffi::Extension, next, Extension, next);
SAME_VALUE(ffi::kMetadataExtension, XLA_FFI_Extension_Metadata);

SAME_SIZE(ffi::Text, XLA_FFI_ByteSpan);
SAME_MEMBER(ffi::Text, data, XLA_FFI_ByteSpan, ptr);
SAME_MEMBER(ffi::Text, length, XLA_FFI_ByteSpan, len);

SAME_MEMBER(ffi::Buffer, size, XLA_FFI_Buffer, struct_size);
SAME_MEMBER(ffi::Buffer, dtype, XLA_FFI_Buffer, dtype);
SAME_MEMBER(ffi::Buffer, data, XLA_FFI_Buffer, data);
SAME_MEMBER(ffi::Buffer, rank, XLA_FFI_Buffer, rank);
SAME_MEMBER(ffi::Buffer, extents, XLA_FFI_Buffer, dims);

SAME_VALUE(ffi::kPred, XLA_FFI_DataType_PRED);
SAME_VALUE(ffi::kS8, XLA_FFI_DataType_S8);
SAME_VALUE(ffi::kS16, XLA_FFI_DataType_S16);
SAME_VALUE(ffi::kS32, XLA_FFI_DataType_S32);
SAME_VALUE(ffi::kS64, XLA_FFI_DataType_S64);
SAME_VALUE(ffi::kU8, XLA_FFI_DataType_U8);
SAME_VALUE(ffi::kF16, XLA_FFI_DataType_F16);
SAME_VALUE(ffi::kF32, XLA_FFI_DataType_F32);
SAME_VALUE(ffi::kBf16, XLA_FFI_DataType_BF16);

SAME_SIZE(ffi::Scalar, XLA_FFI_Scalar);
SAME_MEMBER(ffi::Scalar, dtype, XLA_FFI_Scalar, dtype);
SAME_MEMBER(ffi::Scalar, value, XLA_FFI_Scalar, value);

// Both kinds of arrays are ffi::Buffers. They lie in call frames, so their sizes count.
SAME_SIZE(ffi::Buffers, XLA_FFI_Args);
SAME_MEMBER(ffi::Buffers, size, XLA_FFI_Args, struct_size);
SAME_MEMBER(ffi::Buffers, count, XLA_FFI_Args, size);
SAME_MEMBER(ffi::Buffers, kinds, XLA_FFI_Args, types);
SAME_MEMBER(ffi::Buffers, items, XLA_FFI_Args, args);
SAME_VALUE(ffi::kBuffer, XLA_FFI_ArgType_BUFFER);
SAME_SIZE(ffi::Buffers, XLA_FFI_Rets);
SAME_MEMBER(ffi::Buffers, size, XLA_FFI_Rets, struct_size);
SAME_MEMBER(ffi::Buffers, count, XLA_FFI_Rets, size);
SAME_MEMBER(ffi::Buffers, kinds, XLA_FFI_Rets, types);
SAME_MEMBER(ffi::Buffers, items, XLA_FFI_Rets, rets);
SAME_VALUE(ffi::kBuffer, XLA_FFI_RetType_BUFFER);

SAME_SIZE(ffi::Attributes, XLA_FFI_Attrs);
SAME_MEMBER(ffi::Attributes, size, XLA_FFI_Attrs, struct_size);
SAME_MEMBER(ffi::Attributes, count, XLA_FFI_Attrs, size);
SAME_MEMBER(ffi::Attributes, kinds, XLA_FFI_Attrs, types);
SAME_MEMBER(ffi::Attributes, names, XLA_FFI_Attrs, names);
SAME_MEMBER(ffi::Attributes, items, XLA_FFI_Attrs, attrs);
SAME_VALUE(ffi::kScalar, XLA_FFI_AttrType_SCALAR);
SAME_VALUE(ffi::kText, XLA_FFI_AttrType_STRING);

SAME_SIZE(ffi::Version, XLA_FFI_Api_Version);
SAME_MEMBER(ffi::Version, major, XLA_FFI_Api_Version, major_version);
SAME_MEMBER(ffi::Version, minor, XLA_FFI_Api_Version, minor_version);

SAME_MEMBER(ffi::ErrorArguments, message, XLA_FFI_Error_Create_Args, message);
SAME_MEMBER(ffi::ErrorArguments, code, XLA_FFI_Error_Create_Args, errc);
SAME_VALUE(ffi::kInvalidArgument, XLA_FFI_Error_Code_INVALID_ARGUMENT);
SAME_VALUE(ffi::kInternal, XLA_FFI_Error_Code_INTERNAL);

SAME_MEMBER(ffi::StreamArguments, context, XLA_FFI_Stream_Get_Args, ctx);
SAME_MEMBER(ffi::StreamArguments, stream, XLA_FFI_Stream_Get_Args, stream);

SAME_MEMBER(ffi::OrdinalArguments, context, XLA_FFI_DeviceOrdinal_Get_Args, ctx);
SAME_MEMBER(ffi::OrdinalArguments, ordinal, XLA_FFI_DeviceOrdinal_Get_Args, device_ordinal);

SAME_MEMBER(ffi::Api, size, XLA_FFI_Api, struct_size);
SAME_MEMBER(ffi::Api, version, XLA_FFI_Api, api_version);
SAME_MEMBER(ffi::Api, makeError, XLA_FFI_Api, XLA_FFI_Error_Create);
SAME_MEMBER(ffi::Api, getStream, XLA_FFI_Api, XLA_FFI_Stream_Get);
SAME_MEMBER(ffi::Api, getOrdinal, XLA_FFI_Api, XLA_FFI_DeviceOrdinal_Get);

// Handlers refuse smaller frames.
static_assert(sizeof(ffi::CallFrame) <= XLA_FFI_CallFrame_STRUCT_SIZE);
SAME_MEMBER(ffi::CallFrame, size, XLA_FFI_CallFrame, struct_size);
SAME_MEMBER(ffi::CallFrame, extension, XLA_FFI_CallFrame, extension_start);
SAME_MEMBER(ffi::CallFrame, api, XLA_FFI_CallFrame, api);
SAME_MEMBER(ffi::CallFrame, context, XLA_FFI_CallFrame, ctx);
SAME_MEMBER(ffi::CallFrame, stage, XLA_FFI_CallFrame, stage);
SAME_MEMBER(ffi::CallFrame, operands, XLA_FFI_CallFrame, args);
SAME_MEMBER(ffi::CallFrame, results, XLA_FFI_CallFrame, rets);
SAME_MEMBER(ffi::CallFrame, attributes, XLA_FFI_CallFrame, attrs);
SAME_VALUE(ffi::Initialize, XLA_FFI_ExecutionStage_INITIALIZE);
SAME_VALUE(ffi::Execute, XLA_FFI_ExecutionStage_EXECUTE);

SAME_MEMBER(ffi::Metadata, version, XLA_FFI_Metadata, api_version);
SAME_MEMBER(ffi::Metadata, traits, XLA_FFI_Metadata, traits);
SAME_VALUE(ffi::kCommandBufferCompatible, XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE);
SAME_MEMBER(ffi::MetadataExtension, base, XLA_FFI_Metadata_Extension, extension_base);
SAME_MEMBER(ffi::MetadataExtension, metadata, XLA_FFI_Metadata_Extension, metadata);
