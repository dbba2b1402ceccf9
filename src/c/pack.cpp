#include "attnc/c/pack.h"

#include "c/call.h"
#include "c/handles.h"
#include "c/kernel_options.h"
#include "c/structs.h"
#include "support/try.h"

#include <fmt/format.h>

namespace attnc::c {
namespace {

/// A kernel to pack.
struct Item {
  Mod mod;
  KernelOptions options;
};

std::vector<Item> readItems(Arguments& arguments, const attnc_pack_item* given, size_t count) {
  std::vector<Item> items;
  if (count == 0 || !arguments.given(given, "items")) return items;
  for (size_t i = 0; i < count && arguments.ok(); ++i) {
    const attnc_pack_item* at = element(given, i);
    attnc_pack_item all;
    if (at->struct_size != given->struct_size)
      arguments.refuse("items", fmt::format("has a struct_size of {} at {}, and of {} at 0", at->struct_size, i,
                                            given->struct_size));
    if (!arguments.ok() || !readStruct(arguments, at, all, Place("items").at(i))) break;
    if (!arguments.given(all.options, Place("items").at(i, "options"))) break;
    KernelOptions options = readKernelOptions(arguments, all.options, Place("items", "options"));
    if (arguments.given(all.mod, Place("items").at(i, "mod"))) items.push_back({all.mod->mod, std::move(options)});
  }
  return items;
}

} // namespace
} // namespace attnc::c

using namespace attnc;
using namespace attnc::c;

attnc_status attnc_pack_create(const attnc_compiler* compiler, const attnc_pack_item* items, size_t count,
                               attnc_pack** pack) {
  return call([&](Arguments& arguments) -> Status {
    const std::vector<Item> all = readItems(arguments, items, count);
    arguments.given(compiler, "compiler");
    if (!arguments.given(pack, "pack") || !arguments.ok()) return {};
    std::vector<Plan> plans;
    for (const Item& item : all) {
      if (item.options.arch.empty())
        return Error::environment("a kernel to be packed has no arch", "name one in its options: sm_80, sm_90a, ...");
      ATTNC_TRY_AS(plan, compiler->compiler.plan(item.mod, item.options));
      plans.push_back(*std::move(plan));
    }
    return give(compiler->compiler.pack(plans), pack);
  });
}

void attnc_pack_destroy(attnc_pack* pack) { delete pack; }

const void* attnc_pack_data(const attnc_pack* pack, size_t* bytes) {
  if (bytes) *bytes = pack ? pack->bytes.size() : 0;
  return pack ? pack->bytes.data() : nullptr;
}

attnc_status attnc_compiler_add_pack(attnc_compiler* compiler, const char* path) {
  return call([&](Arguments& arguments) -> Status {
    arguments.given(compiler, "compiler");
    if (!arguments.given(path, "path") || !arguments.ok()) return {};
    return compiler->compiler.addPack(path);
  });
}

size_t attnc_preparation_kernel_count(const attnc_preparation* preparation) {
  return preparation ? preparation->kernels.size() : 0;
}

attnc_status attnc_preparation_get_kernel_options(const attnc_preparation* preparation, size_t index,
                                                  attnc_kernel_options* options) {
  return call([&](Arguments& arguments) -> Status {
    if (!arguments.given(preparation, "preparation")) return {};
    if (index >= preparation->kernels.size())
      arguments.refuse("index", fmt::format("is {}, there are {}", index, preparation->kernels.size()));
    else
      writeStruct(arguments, preparation->kernels[index]->view(), options, "options");
    return {};
  });
}
