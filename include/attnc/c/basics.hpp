// What attnc/c.hpp consists of besides its classes: errors, structs of C with struct_size set, and handles.
#pragma once

#include "attnc/c.h"

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace attnc::c {

/// One finding about a mod's text, as attnc_diagnostic.
struct Diagnostic {
  std::string id;           ///< Stable name of the kind of finding, such as "undeclared-scalar".
  std::string file;         ///< Name of the text, as given by the caller.
  std::string message;      ///< What was observed and what was expected.
  std::string hint;         ///< How to repair it. May be empty.
  std::string rendered;     ///< All of the above with the source line and a caret.
  int line = 0, column = 0; ///< Line in the text, and column in bytes, from 1.
};

/// The reason of a failure.
struct [[nodiscard]] Error {
  attnc_status status = ATTNC_ERROR_INTERNAL; ///< Whose fault it is.
  std::string message;                        ///< What went wrong. For ATTNC_ERROR_MOD: all diagnostics, rendered.
  std::string remedy;                         ///< What to do about it. May be empty.
  std::vector<Diagnostic> diagnostics;        ///< Findings about the mod's text, for ATTNC_ERROR_MOD.
};

/// What value() throws.
struct Failure : std::runtime_error {
  /// Holds the reason; what() is its message and its remedy.
  explicit Failure(const Error& reason)
      : std::runtime_error(reason.message + (reason.remedy.empty() ? "" : "\n") + reason.remedy), error(reason) {}
  Error error; ///< The reason.
};

namespace detail {
[[noreturn]] inline void fail(const Error& error) {
#if defined(__cpp_exceptions)
  throw Failure(error);
#else
  std::fprintf(stderr, "%s\n%s\n", error.message.c_str(), error.remedy.c_str());
  std::abort();
#endif
}

} // namespace detail

/// A value, or the reason why it is missing. Test it with operator bool before dereferencing it or calling error().
template <class T> class [[nodiscard]] Expected {
public:
  /// Holds a value.
  Expected(T value) : state(std::in_place_index<0>, std::move(value)) {}
  /// Holds the reason why the value is missing.
  Expected(Error error) : state(std::in_place_index<1>, std::move(error)) {}

  explicit operator bool() const { return state.index() == 0; }
  T& operator*() { return *std::get_if<0>(&state); }
  const T& operator*() const { return *std::get_if<0>(&state); }
  T* operator->() { return std::get_if<0>(&state); }
  const T* operator->() const { return std::get_if<0>(&state); }
  /// Returns the reason. Precondition: there is no value.
  const Error& error() const { return *std::get_if<1>(&state); }
  /// Returns the value. Without a value it throws Failure, or aborts.
  T value() const {
    if (!*this) detail::fail(error());
    return **this;
  }

private:
  std::variant<T, Error> state;
};

/// What a function returns that only succeeds.
struct Done {};
/// Success, or the reason of a failure.
using Status = Expected<Done>;

/// A struct of C with struct_size set, and 0 in all other members, which is their default.
template <class Struct> struct Sized : Struct {
  Sized() : Struct{} { this->struct_size = sizeof(Struct); }
  /// Sets members `captures` and `capture_count` to Captures, which must outlive the calls that read them.
  template <class Values> void set(const Values& values) {
    this->captures = values.data();
    this->capture_count = values.size();
  }
};

/// A struct of results, which keeps the object alive that its pointers belong to.
template <class Struct> struct Kept : Sized<Struct> {
  std::shared_ptr<const void> owner; ///< The object.
};

using BackwardOperands = Sized<attnc_backward_operands>; ///< Inputs of a backward launch.
using BackwardOutputs = Sized<attnc_backward_outputs>;   ///< Outputs of a backward launch: gradients.
using BlockMaskInfo = Kept<attnc_block_mask_info>;       ///< Counts of a mask's blocks.
using BlockMaskView = Sized<attnc_block_mask_view>;      ///< Borrowed lists of a block mask.
using CaptureInfo = Kept<attnc_capture_info>;            ///< A capture that a mod needs at launch.
using Claim = Sized<attnc_claim>;                        ///< A claim about a mask, and how it is proved.
using CompiledStage = Kept<attnc_compiled_stage>;        ///< One stage of machine code.
using CompilerOptions = Sized<attnc_compiler_options>;   ///< Options of a compiler.
using FamilyInfo = Sized<attnc_family_info>;             ///< A family of kernels, for attnc_get_family().
using KernelFacts = Kept<attnc_kernel_options>;          ///< KernelOptions that results hold.
using KernelOptions = Sized<attnc_kernel_options>;       ///< What is static in a kernel.
using ModInfo = Kept<attnc_mod_info>;                    ///< Facts about a mod.
using Operands = Sized<attnc_operands>;                  ///< Inputs of a launch.
using Outputs = Sized<attnc_outputs>;                    ///< Outputs of a launch.
using ParseOptions = Sized<attnc_parse_options>;         ///< How a mod's text is read.
using PlanInfo = Kept<attnc_plan_info>;                  ///< Facts about a plan.
using PreparationInfo = Kept<attnc_preparation_info>;    ///< The settled choices.
using PrepareOptions = Sized<attnc_prepare_options>;     ///< Choices that cannot be derived from the operands.
using QuantiseOptions = Sized<attnc_quantise_options>;   ///< What rounding to E4M3 does besides.
using ShardEngine = Sized<attnc_shard_engine>;           ///< Moves bytes between ranks.
using ShardMask = Sized<attnc_shard_mask>;               ///< One mask of a model.
using ShardOptions = Sized<attnc_shard_options>;         ///< How to plan shards.
using ShardPlanInfo = Kept<attnc_shard_plan_info>;       ///< Facts of a plan of shards.
using ShardTokens = Kept<attnc_shard_tokens>;            ///< The tokens of one rank.
using ShardWork = Kept<attnc_shard_work>;                ///< What one rank computes for one mask.
using SourceStage = Kept<attnc_source_stage>;            ///< One stage of a source.
using TunedTile = Kept<attnc_tuned_tile>;                ///< A tile that was tried.
using Warning = Kept<attnc_diagnostic>;                  ///< A warning about a mod.
using BlockMaskShape = attnc_block_mask_shape;           ///< Size of a mask and of its blocks. Zeros: their defaults.
using ProblemShape = attnc_problem;                      ///< Extents of an attention problem.
using Stream = attnc_stream;                             ///< A CUDA stream: a cudaStream_t converts to it.

namespace detail {

/// Returns the reason of this thread's last failure.
inline Error lastError(attnc_status status) {
  Error error{status, attnc_last_error(), attnc_last_remedy(), {}};
  Sized<attnc_diagnostic> of;
  for (size_t i = 0; i < attnc_last_diagnostic_count(); ++i)
    if (attnc_last_diagnostic(i, &of) == ATTNC_OK)
      error.diagnostics.push_back({of.id, of.file, of.message, of.hint, of.rendered, of.line, of.column});
  return error;
}

inline Status done(attnc_status status) { return status == ATTNC_OK ? Status(Done()) : lastError(status); }

/// Calls a function of C whose last argument is filled in, and returns what it fills in.
template <class Filled, class Function, class... Arguments>
Expected<Filled> call(Function function, Arguments... arguments) {
  Filled filled = {};
  const attnc_status status = function(arguments..., &filled);
  if (status != ATTNC_OK) return lastError(status);
  return filled;
}

/// Calls a function of C that creates a handle, and returns the object of class T that owns it.
template <class T, class Function, class... Arguments> Expected<T> create(Function function, Arguments... arguments) {
  const auto made = call<typename T::Raw*>(function, arguments...);
  if (!made) return made.error();
  return T(std::shared_ptr<typename T::Raw>(*made, T::destroy));
}

/// Returns a text that a function of C returned, which is NULL on a failure.
inline std::string text(const char* given) {
  if (!given) fail(lastError(ATTNC_ERROR_ARGUMENT));
  return given;
}

/// A handle of C, whose copies share it.
template <class T, void (*destroyer)(T*)> class Handle {
public:
  using Raw = T;                             ///< The object of C.
  static constexpr auto destroy = destroyer; ///< The function that destroys it.
  explicit Handle(std::shared_ptr<T> owner) : handle(std::move(owner)) {}
  /// Returns the handle, for functions of C. It lives as long as a copy of this object.
  T* get() const { return handle.get(); }

protected:
  /// Returns what a function of C fills in about this object.
  template <class Filled, class Function, class... Arguments>
  Expected<Filled> fill(Function function, Arguments... arguments) const {
    auto filled = call<Filled>(function, get(), arguments...);
    if (filled) filled->owner = handle;
    return filled;
  }
  /// Returns what it fills in for each index, its last argument but one.
  template <class Filled, class Function, class... Arguments>
  std::vector<Filled> all(size_t count, Function function, Arguments... arguments) const {
    std::vector<Filled> filled;
    for (size_t i = 0; i < count; ++i) filled.push_back(fill<Filled>(function, arguments..., i).value());
    return filled;
  }
  /// Returns a handle that belongs to this one, and keeps it alive.
  template <class Part> std::shared_ptr<Part> part(const Part* of) const {
    if (!of) fail(lastError(ATTNC_ERROR_ARGUMENT));
    return {handle, const_cast<Part*>(of)};
  }

private:
  std::shared_ptr<T> handle;
};
using Pack = Handle<attnc_pack, attnc_pack_destroy>;

} // namespace detail

} // namespace attnc::c
