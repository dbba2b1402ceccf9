// The code of fmt, where there is no archive of it to take it from: compiled header-only, with inline functions kept.
#include <fmt/format.h>
