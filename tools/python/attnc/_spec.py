"""The structs, enumerators and functions of libattnc.so. Made by tools/python/make_spec.py from include/attnc/c/*.h."""

import ctypes
import typing
from ctypes import POINTER, Structure, c_char_p, c_double, c_float, c_int32, c_int64, c_size_t, c_uint32, c_void_p


class Sized(Structure):
    """A struct that begins with its size."""

    def __init__(self, **members):
        super().__init__(struct_size=ctypes.sizeof(type(self)), **members)

OK = 0
ERROR_MOD = 1
ERROR_ARGUMENT = 2
ERROR_ENVIRONMENT = 3
ERROR_INTERNAL = 4
ERROR_MEMORY = 5
DTYPE_DEFAULT = 0
DTYPE_BOOL = 1
DTYPE_U8 = 2
DTYPE_I8 = 3
DTYPE_I16 = 4
DTYPE_I32 = 5
DTYPE_I64 = 6
DTYPE_F16 = 7
DTYPE_BF16 = 8
DTYPE_F32 = 9
DTYPE_E4M3 = 10
FAMILY_AUTO = 0
FAMILY_NAIVE = 1
FAMILY_SM80 = 2
FAMILY_SM90 = 3
FAMILY_GRID = 4
KERNEL_FORWARD = 0
KERNEL_BACKWARD = 1
KERNEL_BLOCK_MASK = 2
KERNEL_DECODE = 3
OFFSETS_DEFAULT = 0
OFFSETS_NONE = 1
OFFSETS_FROM_LENGTHS = 2
OFFSETS_TENSOR = 3
KV_LOOP_ALL_TILES = 0
KV_LOOP_BOUNDS = 1
KV_LOOP_BLOCK_MASK = 2
KV_LOOP_LISTED = 3
KV_LOOP_BOXES = 4
KV_LOOP_BOX_MASK = 5
PASS_FORWARD = 0
PASS_BACKWARD = 1
MAX_RANK = 6
DEVICE_HOST = 0
DEVICE_CUDA = 1
CAPTURE_TENSOR = 0
CAPTURE_INT = 1
CAPTURE_FLOAT = 2
CAPTURE_BOOL = 3
LOG_EVENT = 0
LOG_WARNING = 1
CACHE_DEFAULT = 0
CACHE_READ_WRITE = 1
CACHE_READ_ONLY = 2
CACHE_OFF = 3
FEATURE_LENGTHS = 1
FEATURE_APPENDS = 8
FEATURE_RAGGED = 16
FEATURE_FP8_KV = 32
FEATURE_ROW_MAX = 512
FEATURE_DETERMINISTIC = 2048
FEATURE_FP8_Q = 4096
FEATURE_V_IN_K = 8192
FEATURE_ROW_SCALES = 16384
DECODE_DEFAULT = 0
DECODE_ALWAYS = 1
DECODE_NEVER = 2
SHARD_AUTO = 0
SHARD_CONTIGUOUS = 1
SHARD_ZIGZAG = 2
SHARD_GREEDY = 3


class Diagnostic(Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("id", c_char_p),
        ("file", c_char_p),
        ("message", c_char_p),
        ("hint", c_char_p),
        ("rendered", c_char_p),
        ("line", c_int32),
        ("column", c_int32),
    ]


class Problem(Structure):
    _fields_ = [
        ("batch", c_int64),
        ("q_heads", c_int64),
        ("kv_heads", c_int64),
        ("q_len", c_int64),
        ("kv_len", c_int64),
    ]


class Pin(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("value", c_int64),
    ]


class Tensor(Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("data", c_void_p),
        ("dtype", c_int32),
        ("rank", c_int32),
        ("shape", c_int64 * 6),
        ("stride", c_int64 * 6),
    ]


class Capture(Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("name", c_char_p),
        ("tensor", POINTER(Tensor)),
        ("integer", c_int64),
        ("real", c_double),
        ("kind", c_int32),
        ("reserved", c_int32),
    ]


class Define(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("value", c_char_p),
    ]


class ParseOptions(Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("name", c_char_p),
        ("defines", POINTER(Define)),
        ("define_count", c_size_t),
    ]


class ModInfo(Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("name", c_char_p),
        ("hash", c_char_p),
        ("capture_count", c_size_t),
        ("has_score_mod", c_int32),
        ("has_mask_mod", c_int32),
        ("warning_count", c_size_t),
    ]


class CaptureInfo(Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("name", c_char_p),
        ("kind", c_int32),
        ("dtype", c_int32),
        ("extent", c_char_p * 6),
        ("rank", c_int32),
        ("reserved", c_int32),
    ]


class BlockMaskShape(Structure):
    _fields_ = [
        ("batch", c_int64),
        ("heads", c_int64),
        ("q_len", c_int64),
        ("kv_len", c_int64),
        ("q_block", c_int32),
        ("kv_block", c_int32),
    ]


class BlockLists(Structure):
    _fields_ = [
        ("partial_count", c_void_p),
        ("partial_index", c_void_p),
        ("full_count", c_void_p),
        ("full_index", c_void_p),
        ("index_stride", c_int64),
    ]


class BlockMaskView(Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("shape", BlockMaskShape),
        ("rows", BlockLists),
        ("columns", BlockLists),
        ("of_whole_mod", c_int32),
        ("reserved", c_int32),
    ]


class BlockMaskInfo(Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("live_blocks", c_int64),
        ("full_blocks", c_int64),
        ("sparsity", c_double),
    ]


class Operands(Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("q", POINTER(Tensor)),
        ("k", POINTER(Tensor)),
        ("v", POINTER(Tensor)),
        ("kv_lengths", POINTER(Tensor)),
        ("q_offsets", POINTER(Tensor)),
        ("captures", POINTER(Capture)),
        ("capture_count", c_size_t),
        ("block_mask", POINTER(BlockMaskView)),
        ("scale", c_float),
        ("has_scale", c_int32),
        ("k_scales", POINTER(Tensor)),
        ("v_scales", POINTER(Tensor)),
        ("page_table", POINTER(Tensor)),
        ("new_k", POINTER(Tensor)),
        ("new_v", POINTER(Tensor)),
        ("cu_seqlens_q", POINTER(Tensor)),
        ("cu_seqlens_kv", POINTER(Tensor)),
        ("max_q_len", c_int64),
        ("max_kv_len", c_int64),
        ("q_scales", POINTER(Tensor)),
    ]


class Outputs(Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("out", POINTER(Tensor)),
        ("lse", POINTER(Tensor)),
        ("row_max", POINTER(Tensor)),
    ]


class BackwardOperands(Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("forward", POINTER(Operands)),
        ("out", POINTER(Tensor)),
        ("lse", POINTER(Tensor)),
        ("dout", POINTER(Tensor)),
        ("dlse", POINTER(Tensor)),
    ]


class BackwardOutputs(Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("dq", POINTER(Tensor)),
        ("dk", POINTER(Tensor)),
        ("dv", POINTER(Tensor)),
        ("captures", POINTER(Capture)),
        ("capture_count", c_size_t),
    ]


class CompilerOptions(Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("cache_directory", c_char_p),
        ("nvrtc_path", c_char_p),
        ("log", c_void_p),
        ("log_user", c_void_p),
        ("cache_mode", c_int32),
        ("no_compile", c_int32),
        ("packs", POINTER(c_char_p)),
        ("pack_count", c_size_t),
        ("max_work", c_int64),
    ]


class KernelOptions(Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("arch", c_char_p),
        ("pins", POINTER(Pin)),
        ("pin_count", c_size_t),
        ("gradients", POINTER(c_char_p)),
        ("gradient_count", c_size_t),
        ("tile", c_char_p),
        ("kind", c_int32),
        ("family", c_int32),
        ("dtype", c_int32),
        ("head_dim", c_int32),
        ("head_dim_v", c_int32),
        ("features", c_uint32),
        ("block_sparse", c_int32),
        ("mask_q_block", c_int32),
        ("mask_kv_block", c_int32),
        ("mask_by_boxes", c_int32),
        ("lists_of_whole_mod", c_int32),
        ("column_lists", c_int32),
        ("offsets", c_int32),
        ("packed_rows", c_int32),
        ("page_size", c_int32),
        ("no_boxes", c_int32),
        ("tf32", c_int64),
        ("low_rank_error", c_double),
    ]


class PlanInfo(Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("passed_over", c_char_p),
        ("tile", c_char_p),
        ("tuned_by", c_char_p),
        ("low_rank", c_char_p),
        ("kv_loop", c_int32),
        ("gains_from_block_mask", c_int32),
    ]


class SourceStage(Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("entry", c_char_p),
        ("template_name", c_char_p),
        ("text", c_char_p),
        ("flattened", c_char_p),
        ("header_names", POINTER(c_char_p)),
        ("header_texts", POINTER(c_char_p)),
        ("header_count", c_size_t),
        ("nvrtc_options", POINTER(c_char_p)),
        ("nvrtc_option_count", c_size_t),
        ("arch", c_char_p),
        ("dynamic_shared_bytes", c_int64),
        ("family", c_int32),
        ("threads", c_int32),
        ("tile_rows", c_int32),
        ("tile_columns", c_int32),
        ("warps", c_int32),
        ("q_stages", c_int32),
        ("kv_stages", c_int32),
        ("reserved", c_int32),
    ]


class CompiledStage(Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("entry", c_char_p),
        ("template_name", c_char_p),
        ("cubin", c_void_p),
        ("cubin_bytes", c_size_t),
        ("ptx", c_char_p),
        ("log", c_char_p),
        ("advisories", POINTER(c_char_p)),
        ("advisory_count", c_size_t),
        ("static_shared_bytes", c_int64),
        ("dynamic_shared_bytes", c_int64),
        ("compile_ms", c_double),
        ("registers", c_int32),
        ("spill_bytes", c_int32),
        ("from_disk", c_int32),
        ("reserved", c_int32),
    ]


class FamilyInfo(Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("arch", c_char_p),
        ("layouts", c_char_p),
        ("family", c_int32),
        ("takes_any_layout", c_int32),
        ("takes", c_char_p),
    ]


class PrepareOptions(Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("arch", c_char_p),
        ("pins", POINTER(Pin)),
        ("pin_count", c_size_t),
        ("family", c_int32),
        ("offsets", c_int32),
        ("deterministic", c_int32),
        ("no_block_mask", c_int32),
        ("decode", c_int32),
        ("check", c_int32),
        ("tile", c_char_p),
        ("backward_tile", c_char_p),
        ("tf32", c_int64),
        ("low_rank_error", c_double),
    ]


class Options(typing.TypedDict, total=False):
    """What callers in Python may ask of kernels, by the names of PrepareOptions."""

    family: typing.Literal["auto", "naive", "sm80", "sm90", "grid"]
    offsets: typing.Literal["default", "none", "from_lengths", "tensor"]
    deterministic: bool
    no_block_mask: bool
    decode: typing.Literal["default", "always", "never"]
    check: bool
    tile: str
    backward_tile: str
    tf32: bool
    low_rank_error: float


class PreparationInfo(Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("workspace_bytes", c_size_t),
        ("problem", Problem),
        ("block_mask", BlockMaskShape),
        ("why_kind", c_char_p),
        ("is_training", c_int32),
        ("builds_block_mask", c_int32),
    ]


class QuantiseOptions(Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("rotates", c_int32),
        ("seed", c_uint32),
        ("scale_bits", c_int64),
        ("reads_scales", c_int64),
        ("cos_sin", POINTER(Tensor)),
        ("positions", POINTER(Tensor)),
        ("interleaved", c_int64),
    ]


class ShardMask(Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("mod", c_void_p),
        ("captures", POINTER(Capture)),
        ("capture_count", c_size_t),
        ("layers", c_double),
    ]


class ShardLengths(Structure):
    _fields_ = [
        ("q", c_int64),
        ("kv", c_int64),
    ]


class ShardOptions(Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("lengths", POINTER(ShardLengths)),
        ("length_count", c_size_t),
        ("flops", c_double),
        ("bandwidth", c_double),
        ("memory", c_double),
        ("latency", c_double),
        ("layout", c_int32),
        ("stages", c_int32),
        ("block", c_int32),
        ("head_dim", c_int32),
        ("head_dim_v", c_int32),
        ("element_bytes", c_int32),
        ("backward", c_int32),
        ("reserved", c_int32),
        ("head_groups", c_int32),
        ("reserved2", c_int32),
    ]


class ShardPlanInfo(Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("bytes_received", c_double),
        ("efficiency", c_double),
        ("world", c_int32),
        ("stages", c_int32),
        ("layout", c_int32),
        ("mask_count", c_int32),
        ("head_groups", c_int32),
        ("reserved", c_int32),
    ]


class ShardInterval(Structure):
    _fields_ = [
        ("begin", c_int64),
        ("end", c_int64),
    ]


class ShardTokens(Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("rows", POINTER(ShardInterval)),
        ("row_count", c_size_t),
        ("keys", POINTER(ShardInterval)),
        ("key_count", c_size_t),
    ]


class ShardPiece(Structure):
    _fields_ = [
        ("stage", c_int32),
        ("from", c_int32),
        ("begin", c_int64),
        ("end", c_int64),
    ]


class ShardWork(Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("pieces", POINTER(ShardPiece)),
        ("piece_count", c_size_t),
        ("pairs", c_double),
        ("seconds", c_double),
        ("keys_received", c_int64),
        ("keys_sent", c_int64),
        ("stage_rows", POINTER(ShardInterval)),
        ("stage_count", c_size_t),
    ]


class ShardMessage(Structure):
    _fields_ = [
        ("data", c_void_p),
        ("bytes", c_size_t),
        ("peer", c_int32),
        ("reserved", c_int32),
    ]


class ShardEngine(Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("exchange", c_void_p),
        ("wait", c_void_p),
        ("user", c_void_p),
    ]


class TunedTile(Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("tile", c_char_p),
        ("passed_over", c_char_p),
        ("ms", c_double),
        ("is_winner", c_int32),
        ("reserved", c_int32),
    ]


# name: (result, arguments)
FUNCTIONS = {
    "attnc_status_name": (c_char_p, (c_int32,)),
    "attnc_version": (c_uint32, ()),
    "attnc_version_text": (c_char_p, ()),
    "attnc_last_error": (c_char_p, ()),
    "attnc_last_remedy": (c_char_p, ()),
    "attnc_last_diagnostic_count": (c_size_t, ()),
    "attnc_last_diagnostic": (c_int32, (c_size_t, POINTER(Diagnostic))),
    "attnc_dtype_name": (c_char_p, (c_int32,)),
    "attnc_dtype_bytes": (c_size_t, (c_int32,)),
    "attnc_family_name": (c_char_p, (c_int32,)),
    "attnc_tensor_make_dense": (c_int32, (POINTER(Tensor),)),
    "attnc_tensor_from_dlpack": (c_int32, (c_void_p, c_int32, POINTER(Tensor))),
    "attnc_tensor_from_dlpack_versioned": (c_int32, (c_void_p, c_int32, c_int32, POINTER(Tensor))),
    "attnc_mod_parse": (c_int32, (c_char_p, c_size_t, POINTER(ParseOptions), POINTER(c_void_p))),
    "attnc_mod_parse_ir": (c_int32, (c_char_p, c_size_t, c_char_p, POINTER(c_void_p))),
    "attnc_mod_load": (c_int32, (c_char_p, POINTER(ParseOptions), POINTER(c_void_p))),
    "attnc_mod_identity": (c_int32, (POINTER(c_void_p),)),
    "attnc_mod_pinned": (c_int32, (c_void_p, POINTER(Pin), c_size_t, POINTER(c_void_p))),
    "attnc_mod_destroy": (None, (c_void_p,)),
    "attnc_mod_get_info": (c_int32, (c_void_p, POINTER(ModInfo))),
    "attnc_mod_get_capture": (c_int32, (c_void_p, c_size_t, POINTER(CaptureInfo))),
    "attnc_mod_get_warning": (c_int32, (c_void_p, c_size_t, POINTER(Diagnostic))),
    "attnc_mod_ast": (c_char_p, (c_void_p,)),
    "attnc_mod_ir": (c_char_p, (c_void_p,)),
    "attnc_block_mask_build": (c_int32, (c_void_p, POINTER(Capture), c_size_t, POINTER(Problem), POINTER(BlockMaskShape), POINTER(c_void_p))),
    "attnc_block_mask_from_lists": (c_int32, (POINTER(BlockMaskView), POINTER(c_void_p))),
    "attnc_block_mask_with_columns": (c_int32, (c_void_p, POINTER(c_void_p))),
    "attnc_block_mask_destroy": (None, (c_void_p,)),
    "attnc_block_mask_get_view": (c_int32, (c_void_p, POINTER(BlockMaskView))),
    "attnc_block_mask_get_info": (c_int32, (c_void_p, POINTER(BlockMaskInfo))),
    "attnc_block_mask_text": (c_int32, (c_void_p, c_int64, c_int64, c_int64, c_char_p, c_size_t, c_void_p)),
    "attnc_block_mask_storage_bytes": (c_int32, (POINTER(BlockMaskShape), c_int32, c_void_p)),
    "attnc_block_mask_view_into": (c_int32, (c_void_p, POINTER(BlockMaskShape), c_int32, POINTER(BlockMaskView))),
    "attnc_block_mask_write": (c_int32, (c_void_p, c_int32, c_void_p, c_size_t)),
    "attnc_compiler_create": (c_int32, (POINTER(CompilerOptions), POINTER(c_void_p))),
    "attnc_compiler_destroy": (None, (c_void_p,)),
    "attnc_plan_create": (c_int32, (c_void_p, c_void_p, POINTER(KernelOptions), POINTER(c_void_p))),
    "attnc_plan_destroy": (None, (c_void_p,)),
    "attnc_plan_get_options": (c_int32, (c_void_p, POINTER(KernelOptions))),
    "attnc_plan_get_info": (c_int32, (c_void_p, POINTER(PlanInfo))),
    "attnc_source_create": (c_int32, (c_void_p, POINTER(c_void_p))),
    "attnc_source_destroy": (None, (c_void_p,)),
    "attnc_source_stage_count": (c_size_t, (c_void_p,)),
    "attnc_source_get_stage": (c_int32, (c_void_p, c_size_t, POINTER(SourceStage))),
    "attnc_compile": (c_int32, (c_void_p, c_void_p, POINTER(c_void_p))),
    "attnc_compiled_destroy": (None, (c_void_p,)),
    "attnc_compiled_stage_count": (c_size_t, (c_void_p,)),
    "attnc_compiled_get_stage": (c_int32, (c_void_p, c_size_t, POINTER(CompiledStage))),
    "attnc_family_count": (c_size_t, (c_int32,)),
    "attnc_get_family": (c_int32, (c_int32, c_size_t, POINTER(FamilyInfo))),
    "attnc_kernel_load": (c_int32, (c_void_p, c_void_p, POINTER(c_void_p))),
    "attnc_kernel_destroy": (None, (c_void_p,)),
    "attnc_kernel_get_options": (c_int32, (c_void_p, POINTER(KernelOptions))),
    "attnc_kernel_get_compiled": (c_void_p, (c_void_p,)),
    "attnc_kernel_workspace_bytes": (c_int32, (c_void_p, POINTER(Operands), POINTER(Outputs), c_void_p)),
    "attnc_kernel_backward_workspace_bytes": (c_int32, (c_void_p, POINTER(BackwardOperands), POINTER(BackwardOutputs), c_void_p)),
    "attnc_kernel_launch": (c_int32, (c_void_p, POINTER(Operands), POINTER(Outputs), c_void_p, c_void_p)),
    "attnc_kernel_launch_backward": (c_int32, (c_void_p, POINTER(BackwardOperands), POINTER(BackwardOutputs), c_void_p, c_void_p)),
    "attnc_kernel_launch_block_mask": (c_int32, (c_void_p, POINTER(BlockMaskView), POINTER(Problem), POINTER(Capture), c_size_t, c_void_p)),
    "attnc_pack_create": (c_int32, (c_void_p, POINTER(c_void_p), c_size_t, POINTER(c_void_p))),
    "attnc_pack_destroy": (None, (c_void_p,)),
    "attnc_pack_data": (c_void_p, (c_void_p, c_void_p)),
    "attnc_compiler_add_pack": (c_int32, (c_void_p, c_char_p)),
    "attnc_settle": (c_int32, (c_void_p, c_void_p, POINTER(Operands), POINTER(Outputs), POINTER(PrepareOptions), POINTER(c_void_p))),
    "attnc_settle_training": (c_int32, (c_void_p, c_void_p, POINTER(BackwardOperands), POINTER(Outputs), POINTER(BackwardOutputs), POINTER(PrepareOptions), POINTER(c_void_p))),
    "attnc_preparation_destroy": (None, (c_void_p,)),
    "attnc_preparation_get_info": (c_int32, (c_void_p, POINTER(PreparationInfo))),
    "attnc_preparation_plan_count": (c_size_t, (c_void_p,)),
    "attnc_preparation_get_plan": (c_void_p, (c_void_p, c_size_t)),
    "attnc_preparation_text": (c_char_p, (c_void_p,)),
    "attnc_explain": (c_int32, (c_void_p, c_void_p, POINTER(Capture), c_size_t, POINTER(c_char_p))),
    "attnc_prepare": (c_int32, (c_void_p, c_void_p, POINTER(Operands), POINTER(Outputs), POINTER(PrepareOptions), POINTER(c_void_p))),
    "attnc_prepare_training": (c_int32, (c_void_p, c_void_p, POINTER(BackwardOperands), POINTER(Outputs), POINTER(BackwardOutputs), POINTER(PrepareOptions), POINTER(c_void_p))),
    "attnc_prepared_destroy": (None, (c_void_p,)),
    "attnc_prepared_get_preparation": (c_void_p, (c_void_p,)),
    "attnc_prepared_get_kernel": (c_int32, (c_void_p, c_int32, POINTER(c_void_p))),
    "attnc_prepared_workspace_bytes": (c_int32, (c_void_p, c_void_p)),
    "attnc_prepared_initialise": (c_int32, (c_void_p, POINTER(Operands), c_void_p, c_void_p)),
    "attnc_prepared_launch": (c_int32, (c_void_p, POINTER(Operands), POINTER(Outputs), c_void_p, c_void_p)),
    "attnc_prepared_launch_backward": (c_int32, (c_void_p, POINTER(BackwardOperands), POINTER(BackwardOutputs), c_void_p, c_void_p)),
    "attnc_prepared_block_mask_in": (c_int32, (c_void_p, c_void_p, POINTER(BlockMaskView))),
    "attnc_quantiser_create": (c_int32, (c_void_p, c_int32, c_int32, POINTER(c_void_p))),
    "attnc_quantiser_destroy": (None, (c_void_p,)),
    "attnc_quantiser_launch": (c_int32, (c_void_p, POINTER(Tensor), POINTER(Tensor), POINTER(Tensor), POINTER(QuantiseOptions), c_void_p)),
    "attnc_quantise_on_cpu": (c_int32, (POINTER(Tensor), POINTER(Tensor), POINTER(Tensor), POINTER(QuantiseOptions))),
    "attnc_compute_on_cpu": (c_int32, (c_void_p, POINTER(Operands), POINTER(Outputs))),
    "attnc_compute_backward_on_cpu": (c_int32, (c_void_p, POINTER(BackwardOperands), POINTER(BackwardOutputs))),
    "attnc_shard_plan_create": (c_int32, (POINTER(ShardMask), c_size_t, POINTER(Problem), c_int32, POINTER(ShardOptions), POINTER(c_void_p))),
    "attnc_shard_plan_destroy": (None, (c_void_p,)),
    "attnc_shard_plan_get_info": (c_int32, (c_void_p, POINTER(ShardPlanInfo))),
    "attnc_shard_plan_get_tokens": (c_int32, (c_void_p, c_size_t, POINTER(ShardTokens))),
    "attnc_shard_plan_get_work": (c_int32, (c_void_p, c_size_t, c_size_t, POINTER(ShardWork))),
    "attnc_sharded_prepare": (c_int32, (c_void_p, c_void_p, c_void_p, c_size_t, c_size_t, POINTER(Operands), POINTER(Outputs), POINTER(PrepareOptions), POINTER(c_void_p))),
    "attnc_sharded_prepare_training": (c_int32, (c_void_p, c_void_p, c_void_p, c_size_t, c_size_t, POINTER(BackwardOperands), POINTER(Outputs), POINTER(BackwardOutputs), POINTER(PrepareOptions), POINTER(c_void_p))),
    "attnc_sharded_destroy": (None, (c_void_p,)),
    "attnc_sharded_workspace_bytes": (c_int32, (c_void_p, c_void_p)),
    "attnc_sharded_kept_bytes": (c_int32, (c_void_p, c_void_p)),
    "attnc_sharded_initialise": (c_int32, (c_void_p, POINTER(Operands), c_void_p, c_void_p)),
    "attnc_sharded_launch": (c_int32, (c_void_p, POINTER(Operands), POINTER(Outputs), POINTER(ShardEngine), c_void_p, c_void_p, c_void_p)),
    "attnc_sharded_launch_training": (c_int32, (c_void_p, POINTER(Operands), POINTER(Outputs), POINTER(ShardEngine), c_void_p, c_void_p, c_void_p, c_void_p)),
    "attnc_sharded_launch_backward": (c_int32, (c_void_p, POINTER(BackwardOperands), POINTER(BackwardOutputs), POINTER(ShardEngine), c_void_p, c_void_p, c_void_p, c_void_p)),
    "attnc_tune": (c_int32, (c_void_p, c_void_p, POINTER(Operands), POINTER(Outputs), POINTER(PrepareOptions), c_void_p, POINTER(c_void_p))),
    "attnc_tune_training": (c_int32, (c_void_p, c_void_p, POINTER(BackwardOperands), POINTER(Outputs), POINTER(BackwardOutputs), POINTER(PrepareOptions), c_void_p, POINTER(c_void_p))),
    "attnc_tuning_destroy": (None, (c_void_p,)),
    "attnc_tuning_get_preparation": (c_void_p, (c_void_p,)),
    "attnc_tuning_tile_count": (c_size_t, (c_void_p, c_int32)),
    "attnc_tuning_get_tile": (c_int32, (c_void_p, c_int32, c_size_t, POINTER(TunedTile))),
    "attnc_xla_set_compiler": (None, (c_void_p,)),
    "attnc_xla_attention_on_cuda": (c_void_p, (c_void_p,)),
    "attnc_xla_attention_on_cpu": (c_void_p, (c_void_p,)),
}
