#include "attnc/c/infer.h"

#include "c/call.h"
#include "c/handles.h"
#include "c/operands.h"
#include "support/try.h"

using namespace attnc;
using namespace attnc::c;

attnc_status attnc_infer(const attnc_tensor* mask, const char* name, const char** json, attnc_mod** mod) {
  return call({{mask, "mask"}, {json, "json"}, {mod, "mod"}}, [&]() -> Status {
    const auto view = readTensor(mask, "mask");
    ATTNC_TRY_AS(inference, infer(*view, name ? name : "a mask"));
    const std::string text = toJson(*inference);
    ATTNC_TRY(give(Expected<Mod>(std::move(inference->mod)), mod));
    *json = (*mod)->texts.keep(text);
    return {};
  });
}
