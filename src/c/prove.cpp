#include "attnc/c/prove.h"

#include "c/call.h"
#include "c/enumerators.h"
#include "c/handles.h"
#include "c/structs.h"
#include "support/try.h"

#include <fmt/format.h>

using namespace attnc;
using namespace attnc::c;

static_assert(int(Claim::Kind::Holds) == ATTNC_CLAIM_HOLDS && int(Claim::Kind::Same) == ATTNC_CLAIM_SAME,
              "C numbers claims as C++ does");

attnc_status attnc_prove(const attnc_mod* mod, const attnc_claim* claim, const char** json) {
  return call({{mod, "mod"}, {json, "json"}}, [&]() -> Status {
    need(claim, "claim");
    const attnc_claim all = readStruct(claim, "claim");
    if (all.kind < ATTNC_CLAIM_HOLDS || all.kind > ATTNC_CLAIM_SAME)
      refuse({"claim", "kind"}, fmt::format("is {}, which is no kind of claim", all.kind));
    const std::optional<QueryOffsets> offsets = readOffsets(all.offsets, {"claim", "offsets"});
    const bool kvLengths = readFlag(all.kv_lengths, {"claim", "kv_lengths"});
    const Place assumptions{"claim", "assumptions"};
    if (all.assumption_count) need(all.assumptions, assumptions);
    for (size_t i = 0; i < all.assumption_count; ++i) need(all.assumptions[i], assumptions.at(i));
    Claim what{Claim::Kind(all.kind), {}};
    if (all.other) what.other = all.other->mod;
    if (all.property) {
      ATTNC_TRY_AS(property, propertyOf(mod->mod, all.property));
      what.other = *std::move(property);
    }
    ProofOptions how{.solver = all.solver ? all.solver : "", .kvLengths = kvLengths, .offsets = offsets};
    if (all.seconds != 0) how.seconds = all.seconds;
    for (size_t i = 0; i < all.assumption_count; ++i) how.assumptions.push_back(all.assumptions[i]->mod);
    if (all.assume) ATTNC_TRY(addAssumptions(mod->mod, all.assume, how));
    ATTNC_TRY_AS(proof, prove(mod->mod, what, how));
    *json = mod->texts.keep(toJson(*proof));
    return {};
  });
}
