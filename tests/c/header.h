/* A test that is written in C. */
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

/* Parses a mod; 1: it is as expected. */
int attnc_test_from_c(void);

#ifdef __cplusplus
}
#endif
