// Packs through the C interface: made by one compiler, opened by another that has neither NVRTC nor a cache.
#include "calls.h"

#include "helpers/temp_directory.h"

#include <vector>

using namespace ctest;

namespace {

/// A compiler that compiles nothing.
Owned<attnc_compiler> compilesNothing(const std::vector<const char*>& packs) {
  auto options = sized<attnc_compiler_options>();
  options.cache_mode = ATTNC_CACHE_OFF;
  options.nvrtc_path = "/no/such/libnvrtc.so";
  options.no_compile = 1;
  options.packs = packs.data();
  options.pack_count = packs.size();
  return made<attnc_compiler>(attnc_compiler_create, &options);
}

} // namespace

TEST_CASE("all kernels of a preparation go into a pack, which serves without NVRTC", "[c]") {
  const attnc::test::TempDirectory directory;
  const std::string path = directory / "kernels.attnc";
  const Owned<attnc_mod> mod = parse(kDocument);
  Case c;
  c.options.arch = "sm_80";
  Owned<attnc_preparation> preparation;
  TAKE(c.settle(mod.get(), &preparation));
  REQUIRE(attnc_preparation_plan_count(preparation.get()) == 2); // and the one that builds the block mask
  CHECK(attnc_preparation_plan_count(nullptr) == 0);
  auto forward = sized<attnc_kernel_options>(), lists = sized<attnc_kernel_options>();
  TAKE(optionsOf(preparation.get(), 0, &forward));
  TAKE(optionsOf(preparation.get(), 1, &lists));
  CHECK(forward.kind == ATTNC_KERNEL_FORWARD);
  CHECK(forward.block_sparse == 1);
  CHECK(lists.kind == ATTNC_KERNEL_BLOCK_MASK);
  CHECK(attnc_preparation_get_plan(preparation.get(), 2) == nullptr);

  const attnc_plan* plans[2] = {attnc_preparation_get_plan(preparation.get(), 0),
                                attnc_preparation_get_plan(preparation.get(), 1)};
  attnc_pack* made = nullptr;
  TAKE(attnc_pack_create(compiler().get(), plans, 2, &made));
  const Owned<attnc_pack> pack(made);
  size_t bytes = 0;
  const auto* data = static_cast<const char*>(attnc_pack_data(pack.get(), &bytes));
  REQUIRE(bytes > 1000);
  attnc::test::writeText(path, std::string(data, bytes));
  CHECK(attnc_pack_data(nullptr, &bytes) == nullptr);
  CHECK(bytes == 0);

  const auto serves = [&](const Owned<attnc_compiler>& from) {
    for (const attnc_kernel_options* options : {&forward, &lists}) {
      const auto compiled = ctest::made<attnc_compiled>(compile, from.get(), mod.get(), options);
      auto stage = told<attnc_compiled_stage>(attnc_compiled_get_stage, compiled.get(), 0);
      CHECK(stage.cubin_bytes > 1000);
      CHECK(stage.from_disk == 1);
      CHECK(stage.compile_ms == 0);
    }
  };
  serves(compilesNothing({path.c_str()}));
  const Owned<attnc_compiler> later = compilesNothing({});
  attnc_compiled* code = nullptr;
  REFUSED(ATTNC_ERROR_ENVIRONMENT, "kind=forward family=sm80 dtype=bf16 head-dim=64 head-dim-v=32",
          compile(later.get(), mod.get(), &forward, &code));
  TAKE(attnc_compiler_add_pack(later.get(), path.c_str()));
  serves(later);

  REFUSED(ATTNC_ERROR_ENVIRONMENT, "cannot open the pack", attnc_compiler_add_pack(later.get(), "/no/such/pack"));
  REFUSED(ATTNC_ERROR_ARGUMENT, "path is NULL", attnc_compiler_add_pack(later.get(), nullptr));
  REFUSED(ATTNC_ERROR_ENVIRONMENT, "cannot open the pack",
          compile(compilesNothing({"/no/such/pack"}).get(), mod.get(), &forward, &code));
  plans[1] = nullptr;
  REFUSED(ATTNC_ERROR_ARGUMENT, "plans[1] is NULL", attnc_pack_create(compiler().get(), plans, 2, &made));
  REFUSED(ATTNC_ERROR_ARGUMENT, "plans is NULL", attnc_pack_create(compiler().get(), nullptr, 2, &made));
}
