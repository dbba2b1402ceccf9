// The code of fmt, where there is no archive of it to take it from: compiled header-only, with inline functions kept.
#include <fmt/format.h>

#if FMT_VERSION < 120000
#include <locale>
template std::locale fmt::detail::locale_ref::get<std::locale>() const; // a template, so not kept by itself
#endif
