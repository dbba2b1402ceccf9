/* The headers of the C interface alone, as strict C11. */
#include "attnc/c.h"

#include "header.h"

int attnc_test_from_c(void) {
  attnc_mod* mod = NULL;
  attnc_mod_info info = {.struct_size = sizeof info};
  int result = attnc_mod_parse("q_idx >= kv_idx", ATTNC_WHOLE, NULL, &mod) == ATTNC_OK &&
               attnc_mod_get_info(mod, &info) == ATTNC_OK && info.has_mask_mod && !info.has_score_mod;
  attnc_mod_destroy(mod);
  return result;
}
