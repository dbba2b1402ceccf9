// attnc in C++ over the C library: this header and libattnc.so, and no LLVM or fmt at link time.
//
// ```
//   namespace ac = attnc::c;
//   const auto mod = ac::Mod::parse("q_idx >= kv_idx");                // text -> checked program
//   const auto compiler = ac::Compiler::create();                      // one per process
//   auto q = ac::TensorView::contiguous(address, ATTNC_DTYPE_BF16, {1, 8, 1024, 128}); // k, v and out as well
//   ac::Operands operands; operands.q = &q, operands.k = &k, operands.v = &v;
//   ac::Outputs outputs; outputs.out = &out;
//   const auto attention = compiler->prepare(*mod, operands, outputs); // NVRTC, or the cache
//   // workspace: attention->workspaceBytes() of device memory; attention->initialise() fills it
//   const auto status = attention->launch(operands, outputs, workspace, stream);
// ```
//
// Names. Classes and functions have the names of the C++ library (attnc.h), and mean, need and cost the same. Structs
// and enumerators are those of C (c.h). PrepareOptions is attnc_prepare_options with struct_size set and all else 0. A
// file needs C++17, and may include attnc.h as well. It compiles with -fno-exceptions and -fno-rtti.
//
// Errors. Functions that can fail return Expected<T> or Status. Test the result, or call value(), which throws Failure.
// Without exceptions, value() prints the error and aborts. A function that returns a plain T ends as value() does: for
// a handle that was moved from, or if memory runs out.
//
// Handles. They are immutable, and copies share them. An object or a struct of results that belongs to another object
// keeps that alive. Arguments are read only during the call.
#pragma once

#include "attnc/c/basics.hpp"

#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace attnc::c {

/// A strided view of memory that somebody else owns. Strides are in elements, and may be 0 or negative.
struct TensorView : Sized<attnc_tensor> {
  /// Returns a row-major, dense view. `data` stays owned by the caller. Precondition: at most ATTNC_MAX_RANK axes.
  static TensorView contiguous(void* data, attnc_dtype dtype, std::initializer_list<int64_t> shape) {
    TensorView view;
    view.data = data;
    view.dtype = dtype;
    view.rank = int32_t(shape.size());
    size_t axis = 0;
    for (int64_t extent : shape)
      if (axis < ATTNC_MAX_RANK) view.shape[axis++] = extent;
    detail::done(attnc_tensor_make_dense(&view)).value();
    return view;
  }
  /// Returns a view of a DLTensor or a DLManagedTensor (attnc_tensor_from_dlpack).
  static Expected<TensorView> fromDlpack(const void* tensor, attnc_device device) {
    return detail::call<TensorView>(attnc_tensor_from_dlpack, tensor, device);
  }
  /// Returns a view of a DLManagedTensorVersioned. `writes`: attnc will write into the memory.
  static Expected<TensorView> fromDlpackVersioned(const void* managed, attnc_device device, bool writes) {
    return detail::call<TensorView>(attnc_tensor_from_dlpack_versioned, managed, device, int32_t(writes));
  }
};

/// The values that a mod captures, by name. Tensors are views of host memory for CPU work, and of device memory for GPU
/// work. It cannot be copied, since structs of C point into it.
class Captures {
public:
  /// Sets the value of `name`; replaces an earlier one. Returns *this.
  Captures& set(std::string name, const TensorView& tensor) {
    *const_cast<attnc_tensor*>(named(std::move(name), ATTNC_CAPTURE_TENSOR).tensor) = tensor;
    return *this;
  }
  Captures& set(std::string name, int64_t value) {
    named(std::move(name), ATTNC_CAPTURE_INT).integer = value;
    return *this;
  }
  Captures& set(std::string name, int value) { return set(std::move(name), int64_t(value)); }
  Captures& set(std::string name, double value) {
    named(std::move(name), ATTNC_CAPTURE_FLOAT).real = value;
    return *this;
  }
  Captures& set(std::string name, bool value) {
    named(std::move(name), ATTNC_CAPTURE_BOOL).integer = value;
    return *this;
  }
  /// Returns the values, for structs and functions of C. Owned by this object, and valid until the next set().
  const attnc_capture* data() const { return values.data(); }
  /// Returns the number of values.
  size_t size() const { return values.size(); }

private:
  struct Owned {
    std::string name;
    TensorView tensor;
  };
  attnc_capture& named(std::string name, attnc_capture_kind kind) {
    size_t at = 0;
    while (at < values.size() && name != values[at].name) ++at;
    if (at == values.size()) {
      owned.push_back(std::make_unique<Owned>(Owned{std::move(name), {}}));
      values.emplace_back().name = owned[at]->name.c_str();
      values[at].tensor = &owned[at]->tensor;
    }
    values[at].kind = kind;
    return values[at];
  }

  std::vector<std::unique_ptr<Owned>> owned; // `values` point to them
  std::vector<Sized<attnc_capture>> values;
};

/// A parsed, traced and simplified mod.
class Mod : public detail::Handle<attnc_mod, attnc_mod_destroy> {
public:
  using Handle::Handle;
  /// Parses a mod: a Python-subset text, or a bare expression. Errors: ATTNC_ERROR_MOD with diagnostics.
  static Expected<Mod> parse(std::string_view text, const ParseOptions& options = {}) {
    return detail::create<Mod>(attnc_mod_parse, text.data(), text.size(), &options);
  }
  /// Parses IR text, as irText() returns it. `name` is its name in messages.
  static Expected<Mod> parseIr(std::string_view text, const char* name = nullptr) {
    return detail::create<Mod>(attnc_mod_parse_ir, text.data(), text.size(), name);
  }
  /// Reads a mod from a file; a *.ir file as parseIr() does.
  static Expected<Mod> load(const std::string& path, const ParseOptions& options = {}) {
    return detail::create<Mod>(attnc_mod_load, path.c_str(), &options);
  }
  /// Creates the shortest mod that is equal to a mask on every element. Fills the address of one JSON object that lives
  /// as long as the mod. `name` is the mask's name in the text.
  static Expected<Mod> infer(const attnc_tensor& mask, const char*& json, const char* name = nullptr) {
    return detail::create<Mod>(attnc_infer, &mask, name, &json);
  }
  /// Returns the mod that changes nothing.
  static Mod identity() { return detail::create<Mod>(attnc_mod_identity).value(); }
  /// Returns the mod in which sequence b has mods[which[b]]. `which` declares the capture that says so: "which:
  /// i32[B]".
  static Expected<Mod> choice(const std::vector<const Mod*>& mods, const char* which) {
    std::vector<const attnc_mod*> handles;
    for (const Mod* mod : mods) handles.push_back(mod->get());
    return detail::create<Mod>(attnc_mod_choice, handles.data(), handles.size(), which);
  }
  /// Returns this mod with extents and scalars folded as constants.
  Expected<Mod> pinned(const std::vector<attnc_pin>& pins) const {
    return detail::create<Mod>(attnc_mod_pinned, get(), pins.data(), pins.size());
  }
  /// Returns facts about the mod.
  ModInfo info() const { return fill<ModInfo>(attnc_mod_get_info).value(); }
  /// Returns the captures that the mod needs at launch, tensors first.
  std::vector<CaptureInfo> captures() const { return all<CaptureInfo>(info().capture_count, attnc_mod_get_capture); }
  /// Returns the outputs that the mod declares.
  std::vector<CaptureInfo> reductions() const {
    return all<CaptureInfo>(info().reduction_count, attnc_mod_get_reduction);
  }
  /// Returns warnings about legal text that is probably not meant, in text order.
  std::vector<Warning> warnings() const { return all<Warning>(info().warning_count, attnc_mod_get_warning); }
  /// Returns the syntax tree as text. Empty for a mod that was read as IR.
  std::string astText() const { return detail::text(attnc_mod_ast(get())); }
  /// Returns the IR after all passes as text.
  std::string irText() const { return detail::text(attnc_mod_ir(get())); }
  /// Proves a claim, or finds an example against it. Returns one JSON object, as attnc_prove() fills.
  Expected<std::string> prove(const Claim& claim) const {
    const auto json = detail::call<const char*>(attnc_prove, get(), &claim);
    return json ? Expected<std::string>(*json) : json.error();
  }
};

/// A block mask in host memory that owns its lists.
class BlockMask : public detail::Handle<attnc_block_mask, attnc_block_mask_destroy> {
public:
  using Handle::Handle;
  /// Builds a mask by evaluating mask_mod on the CPU. Captures are in host memory.
  static Expected<BlockMask> build(const Mod& mod, const Captures& captures, const ProblemShape& problem,
                                   const BlockMaskShape& shape) {
    return detail::create<BlockMask>(attnc_block_mask_build, mod.get(), captures.data(), captures.size(), &problem,
                                     &shape);
  }
  /// Copies lists from host memory, and checks them.
  static Expected<BlockMask> fromLists(const BlockMaskView& lists) {
    return detail::create<BlockMask>(attnc_block_mask_from_lists, &lists);
  }
  /// Returns a copy that also has lists by column.
  Expected<BlockMask> withColumns() const { return detail::create<BlockMask>(attnc_block_mask_with_columns, get()); }
  /// Returns the lists in host memory, which must not be written.
  Kept<attnc_block_mask_view> view() const {
    return fill<Kept<attnc_block_mask_view>>(attnc_block_mask_get_view).value();
  }
  /// Returns the counts of the mask's blocks.
  BlockMaskInfo info() const { return fill<BlockMaskInfo>(attnc_block_mask_get_info).value(); }
  /// Returns a picture in UTF-8 text of one (batch, head), of at most `limit` rows and columns.
  std::string toString(int64_t batch, int64_t head, int64_t limit) const {
    const auto write = [&](char* to, size_t capacity) {
      size_t length = 0;
      detail::done(attnc_block_mask_text(get(), batch, head, limit, to, capacity, &length)).value();
      return length;
    };
    std::string text(write(nullptr, 0), '\0');
    write(text.data(), text.size() + 1);
    return text;
  }
  /// Returns the bytes of one allocation for the lists of this shape.
  static Expected<size_t> storageBytes(const BlockMaskShape& shape, bool withColumns = false) {
    return detail::call<size_t>(attnc_block_mask_storage_bytes, &shape, int32_t(withColumns));
  }
  /// Returns a view of lists in `storage`: host or device memory that the caller owns. Does not touch the memory.
  static Expected<BlockMaskView> viewInto(void* storage, const BlockMaskShape& shape, bool withColumns = false) {
    return detail::call<BlockMaskView>(attnc_block_mask_view_into, storage, &shape, int32_t(withColumns));
  }
  /// Writes the lists into host memory of the caller, laid out as by viewInto().
  Status write(bool withColumns, void* storage, size_t bytes) const {
    return detail::done(attnc_block_mask_write(get(), withColumns, storage, bytes));
  }
};

/// A kernel of a mod as it was chosen, before it is compiled. Compiler::plan() makes it.
class Plan : public detail::Handle<attnc_plan, attnc_plan_destroy> {
public:
  using Handle::Handle;
  /// Returns the options of the kernel, complete, with the chosen family and arch.
  KernelFacts options() const { return fill<KernelFacts>(attnc_plan_get_options).value(); }
  /// Returns why it was chosen, its tile, and how it finds its tiles.
  PlanInfo info() const { return fill<PlanInfo>(attnc_plan_get_info).value(); }
};

/// The source of a kernel.
class Source : public detail::Handle<attnc_source, attnc_source_destroy> {
public:
  using Handle::Handle;
  /// Returns its stages, in launch order.
  std::vector<SourceStage> stages() const {
    return all<SourceStage>(attnc_source_stage_count(get()), attnc_source_get_stage);
  }
};

/// The machine code of a kernel, not yet loaded on a device.
class Compiled : public detail::Handle<attnc_compiled, attnc_compiled_destroy> {
public:
  using Handle::Handle;
  /// Returns its stages, in launch order.
  std::vector<CompiledStage> stages() const {
    return all<CompiledStage>(attnc_compiled_stage_count(get()), attnc_compiled_get_stage);
  }
};

/// The settled choices for given operands.
class Preparation : public detail::Handle<attnc_preparation, attnc_preparation_destroy> {
public:
  using Handle::Handle;
  /// Returns the choices.
  PreparationInfo info() const { return fill<PreparationInfo>(attnc_preparation_get_info).value(); }
  /// Returns the plans of all kernels that Compiler::prepare() compiles. That of the forward or decode kernel comes
  /// first. If a block mask is built, that of its kernel is next; for training, that of the backward kernel is last.
  std::vector<Plan> kernels() const {
    std::vector<Plan> plans;
    for (size_t i = 0; i < attnc_preparation_plan_count(get()); ++i)
      plans.emplace_back(part(attnc_preparation_get_plan(get(), i)));
    return plans;
  }
  /// Returns the choices as text for people.
  std::string text() const { return detail::text(attnc_preparation_text(get())); }
};

/// Attention over operands of certain shapes, ready to launch.
class Prepared : public detail::Handle<attnc_prepared, attnc_prepared_destroy> {
public:
  using Handle::Handle;
  /// Returns the settled choices.
  Preparation preparation() const { return Preparation(part(attnc_prepared_get_preparation(get()))); }
  /// Returns the bytes of device memory that the calls below need, aligned to 256 bytes.
  size_t workspaceBytes() const { return detail::call<size_t>(attnc_prepared_workspace_bytes, get()).value(); }
  /// Enqueues the initialisation of a workspace on `stream`. Call it before the first launch with the workspace.
  Status initialise(const Operands& operands, void* workspace, Stream stream) const {
    return detail::done(attnc_prepared_initialise(get(), &operands, workspace, stream));
  }
  /// Enqueues the forward pass on `stream`. It allocates nothing, and may be captured into a CUDA graph.
  Status launch(const Operands& operands, const Outputs& outputs, void* workspace, Stream stream) const {
    return detail::done(attnc_prepared_launch(get(), &operands, &outputs, workspace, stream));
  }
  /// Enqueues the backward pass on `stream`. Otherwise as launch().
  Status launchBackward(const BackwardOperands& operands, const BackwardOutputs& outputs, void* workspace,
                        Stream stream) const {
    return detail::done(attnc_prepared_launch_backward(get(), &operands, &outputs, workspace, stream));
  }
  /// Returns the lists in `workspace` that initialise() fills. Errors: no block mask is built there; blocks are boxes.
  Expected<BlockMaskView> blockMaskIn(void* workspace) const {
    return detail::call<BlockMaskView>(attnc_prepared_block_mask_in, get(), workspace);
  }
};

/// The result of tuning.
class Tuning : public detail::Handle<attnc_tuning, attnc_tuning_destroy> {
public:
  using Handle::Handle;
  /// Returns the preparation with the winners.
  Preparation preparation() const { return Preparation(part(attnc_tuning_get_preparation(get()))); }
  /// Returns the tiles tried for a pass, the model's first. Empty for a pass that was not measured.
  std::vector<TunedTile> tiles(attnc_pass pass = ATTNC_PASS_FORWARD) const {
    return all<TunedTile>(attnc_tuning_tile_count(get(), pass), attnc_tuning_get_tile, pass);
  }
};

/// Turns mods into kernels. Make one per process and keep it.
class Compiler : public detail::Handle<attnc_compiler, attnc_compiler_destroy> {
public:
  using Handle::Handle;
  /// Creates a compiler. It takes the place of the constructor of C++.
  static Expected<Compiler> create(const CompilerOptions& options = {}) {
    return detail::create<Compiler>(attnc_compiler_create, &options);
  }
  /// Settles the choices, compiles the kernels or takes them from the cache, and loads them into the current context.
  Expected<Prepared> prepare(const Mod& mod, const Operands& operands, const Outputs& outputs,
                             const PrepareOptions& options = {}) const {
    return detail::create<Prepared>(attnc_prepare, get(), mod.get(), &operands, &outputs, &options);
  }
  /// Returns what prepare() would choose. Needs no GPU if `options.arch` is given.
  Expected<Preparation> settle(const Mod& mod, const Operands& operands, const Outputs& outputs,
                               const PrepareOptions& options = {}) const {
    return detail::create<Preparation>(attnc_settle, get(), mod.get(), &operands, &outputs, &options);
  }
  /// Prepares a forward and a backward pass.
  Expected<Prepared> prepareTraining(const Mod& mod, const BackwardOperands& operands, const Outputs& outputs,
                                     const BackwardOutputs& gradients, const PrepareOptions& options = {}) const {
    return detail::create<Prepared>(attnc_prepare_training, get(), mod.get(), &operands, &outputs, &gradients,
                                    &options);
  }
  /// Returns what prepareTraining() would choose.
  Expected<Preparation> settleTraining(const Mod& mod, const BackwardOperands& operands, const Outputs& outputs,
                                       const BackwardOutputs& gradients, const PrepareOptions& options = {}) const {
    return detail::create<Preparation>(attnc_settle_training, get(), mod.get(), &operands, &outputs, &gradients,
                                       &options);
  }
  /// Measures tiles and stores the fastest one, which prepare() then uses.
  Expected<Tuning> tune(const Mod& mod, const Operands& operands, const Outputs& outputs,
                        const PrepareOptions& options = {}, Stream stream = nullptr) const {
    return detail::create<Tuning>(attnc_tune, get(), mod.get(), &operands, &outputs, &options, stream);
  }
  /// Tunes both passes for prepareTraining().
  Expected<Tuning> tuneTraining(const Mod& mod, const BackwardOperands& operands, const Outputs& outputs,
                                const BackwardOutputs& gradients, const PrepareOptions& options = {},
                                Stream stream = nullptr) const {
    return detail::create<Tuning>(attnc_tune_training, get(), mod.get(), &operands, &outputs, &gradients, &options,
                                  stream);
  }
  /// Chooses the kernel for these options. Needs no GPU if an arch is given.
  Expected<Plan> plan(const Mod& mod, const KernelOptions& options) const {
    return detail::create<Plan>(attnc_plan_create, get(), mod.get(), &options);
  }
  /// Generates the source of all stages of a kernel. It takes the place of Plan::sources() of C++.
  Expected<Source> source(const Plan& plan) const { return detail::create<Source>(attnc_source_create, plan.get()); }
  /// Compiles all stages of a kernel, or takes them from a cache. Needs no GPU.
  Expected<Compiled> compile(const Plan& plan) const {
    return detail::create<Compiled>(attnc_compile, get(), plan.get());
  }
  /// Returns one JSON object about the kernel of these choices, and what it costs. Captures are in host memory.
  Expected<std::string> explain(const Preparation& preparation, const Captures& captures = {}) const {
    const auto json =
        detail::call<const char*>(attnc_explain, get(), preparation.get(), captures.data(), captures.size());
    return json ? Expected<std::string>(*json) : json.error();
  }
  /// Returns a pack: the bytes of one file with all stages of these kernels.
  Expected<std::string> pack(const std::vector<Plan>& plans) const {
    std::vector<const attnc_plan*> all;
    for (const Plan& plan : plans) all.push_back(plan.get());
    const auto pack = detail::create<detail::Pack>(attnc_pack_create, get(), all.data(), all.size());
    if (!pack) return pack.error();
    size_t bytes = 0;
    const void* data = attnc_pack_data(pack->get(), &bytes);
    return std::string(static_cast<const char*>(data), bytes);
  }
  /// Opens a pack, to be searched after the compiler's other packs.
  Status addPack(const std::string& path) const { return detail::done(attnc_compiler_add_pack(get(), path.c_str())); }
};

/// Computes what Prepared::launch() writes, on the CPU in double precision. All memory is host memory.
inline Status computeOnCpu(const Mod& mod, const Operands& operands, const Outputs& outputs) {
  return detail::done(attnc_compute_on_cpu(mod.get(), &operands, &outputs));
}
/// Computes what Prepared::launchBackward() writes. Otherwise as computeOnCpu().
inline Status computeBackwardOnCpu(const Mod& mod, const BackwardOperands& operands, const BackwardOutputs& outputs) {
  return detail::done(attnc_compute_backward_on_cpu(mod.get(), &operands, &outputs));
}

/// Kernels that round q, k or v to E4M3 on the GPU.
class Quantiser : public detail::Handle<attnc_quantiser, attnc_quantiser_destroy> {
public:
  using Handle::Handle;
  /// Compiles and loads the kernels for a dtype and a head dim.
  static Expected<Quantiser> load(const Compiler& compiler, attnc_dtype dtype, int headDim) {
    return detail::create<Quantiser>(attnc_quantiser_create, compiler.get(), dtype, int32_t(headDim));
  }
  /// Enqueues out = e4m3(x / scale), and fills `scales` unless they are given. Tensors are in device memory.
  Status launch(const TensorView& x, const TensorView& out, const TensorView& scales, const QuantiseOptions& options,
                Stream stream) const {
    return detail::done(attnc_quantiser_launch(get(), &x, &out, &scales, &options, stream));
  }
};

/// Computes what Quantiser::launch() writes, in host memory.
inline Status quantiseOnCpu(const TensorView& x, const TensorView& out, const TensorView& scales,
                            const QuantiseOptions& options) {
  return detail::done(attnc_quantise_on_cpu(&x, &out, &scales, &options));
}

/// A plan of shards: which rank of several GPUs computes what, and which keys and values travel.
class ShardPlan : public detail::Handle<attnc_shard_plan, attnc_shard_plan_destroy> {
public:
  using Handle::Handle;
  /// Plans for masks that share one layout. Captures are read during the call.
  static Expected<ShardPlan> make(const std::vector<ShardMask>& masks, const ProblemShape& problem, int world,
                                  const ShardOptions& options = {}) {
    return detail::create<ShardPlan>(attnc_shard_plan_create, masks.data(), masks.size(), &problem, int32_t(world),
                                     &options);
  }
  /// Returns facts of the plan.
  ShardPlanInfo info() const { return fill<ShardPlanInfo>(attnc_shard_plan_get_info).value(); }
  /// Returns the tokens of a rank. Errors: a rank out of range.
  Expected<ShardTokens> tokens(size_t rank) const { return fill<ShardTokens>(attnc_shard_plan_get_tokens, rank); }
  /// Returns what a rank computes for a mask. Errors: an index out of range.
  Expected<ShardWork> work(size_t mask, size_t rank) const {
    return fill<ShardWork>(attnc_shard_plan_get_work, mask, rank);
  }
};

/// The attention of one rank of a plan of shards, ready to launch.
class ShardedAttention : public detail::Handle<attnc_sharded, attnc_sharded_destroy> {
public:
  using Handle::Handle;
  /// Prepares the launches of a rank. Without a compiler the CPU computes, on tensors in host memory.
  static Expected<ShardedAttention> prepare(const Compiler* compiler, const Mod& mod, const ShardPlan& plan,
                                            size_t mask, size_t rank, const Operands& operands, const Outputs& outputs,
                                            const PrepareOptions& options = {}) {
    return detail::create<ShardedAttention>(attnc_sharded_prepare, compiler ? compiler->get() : nullptr, mod.get(),
                                            plan.get(), mask, rank, &operands, &outputs, &options);
  }
  /// Prepares a forward and a backward pass. Otherwise as prepare().
  static Expected<ShardedAttention> prepareTraining(const Compiler* compiler, const Mod& mod, const ShardPlan& plan,
                                                    size_t mask, size_t rank, const BackwardOperands& operands,
                                                    const Outputs& outputs, const BackwardOutputs& gradients,
                                                    const PrepareOptions& options = {}) {
    return detail::create<ShardedAttention>(attnc_sharded_prepare_training, compiler ? compiler->get() : nullptr,
                                            mod.get(), plan.get(), mask, rank, &operands, &outputs, &gradients,
                                            &options);
  }
  /// Returns the bytes of memory that the calls below need, aligned to 256 bytes.
  size_t workspaceBytes() const { return detail::call<size_t>(attnc_sharded_workspace_bytes, get()).value(); }
  /// Returns the bytes of memory that a launch keeps for its backward pass, aligned to 256 bytes.
  size_t keptBytes() const { return detail::call<size_t>(attnc_sharded_kept_bytes, get()).value(); }
  /// Fills a workspace. Call it before the first launch with the workspace, and again if captures that mask_mod reads
  /// change.
  Status initialise(const Operands& operands, void* workspace, Stream stream) const {
    return detail::done(attnc_sharded_initialise(get(), &operands, workspace, stream));
  }
  /// Enqueues the attention of all stages on `stream`, and transfers on `transfers`. All ranks call it.
  Status launch(const Operands& operands, const Outputs& outputs, const ShardEngine& engine, void* workspace,
                Stream stream, Stream transfers) const {
    return detail::done(attnc_sharded_launch(get(), &operands, &outputs, &engine, workspace, stream, transfers));
  }
  /// Launches the forward pass of training, which fills `kept`: keptBytes() of memory. Otherwise as launch().
  Status launchTraining(const Operands& operands, const Outputs& outputs, const ShardEngine& engine, void* workspace,
                        Stream stream, Stream transfers, void* kept) const {
    return detail::done(
        attnc_sharded_launch_training(get(), &operands, &outputs, &engine, workspace, stream, transfers, kept));
  }
  /// Enqueues the backward pass behind the launch that filled `kept`. All ranks call it.
  Status launchBackward(const BackwardOperands& operands, const BackwardOutputs& gradients, const ShardEngine& engine,
                        void* workspace, Stream stream, Stream transfers, const void* kept) const {
    return detail::done(
        attnc_sharded_launch_backward(get(), &operands, &gradients, &engine, workspace, stream, transfers, kept));
  }
};

} // namespace attnc::c
