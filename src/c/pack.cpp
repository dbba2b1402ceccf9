#include "attnc/c/pack.h"

#include "c/call.h"
#include "c/handles.h"

using namespace attnc;
using namespace attnc::c;

attnc_status attnc_pack_create(const attnc_compiler* compiler, const attnc_plan* const* plans, size_t count,
                               attnc_pack** pack) {
  return call({{compiler, "compiler"}, {pack, "pack"}}, [&] {
    std::vector<Plan> all;
    if (count) need(plans, "plans");
    for (size_t i = 0; i < count; ++i) {
      need(plans[i], Place("plans").at(i));
      all.push_back(plans[i]->plan);
    }
    return give(compiler->compiler.pack(all), pack);
  });
}

void attnc_pack_destroy(attnc_pack* pack) { delete pack; }

const void* attnc_pack_data(const attnc_pack* pack, size_t* bytes) {
  if (bytes) *bytes = pack ? pack->bytes.size() : 0;
  return pack ? pack->bytes.data() : nullptr;
}

attnc_status attnc_compiler_add_pack(attnc_compiler* compiler, const char* path) {
  return call({{compiler, "compiler"}, {path, "path"}}, [&] { return compiler->compiler.addPack(path); });
}
