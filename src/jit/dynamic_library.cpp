#include "jit/dynamic_library.h"

#include <dlfcn.h>
#include <link.h>

namespace attnc::jit {

std::optional<DynamicLibrary> DynamicLibrary::open(const std::string& name, std::string& why) {
  if (void* handle = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) return DynamicLibrary(handle);
  const char* reason = ::dlerror();
  why = reason ? reason : "dlopen failed";
  return std::nullopt;
}

std::optional<DynamicLibrary> DynamicLibrary::alreadyOpen(const std::string& soname) {
  if (void* handle = ::dlopen(soname.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD)) return DynamicLibrary(handle);
  ::dlerror();
  return std::nullopt;
}

void* DynamicLibrary::symbol(const char* name) const { return ::dlsym(handle, name); }

std::string DynamicLibrary::path() const {
  link_map* map = nullptr;
  if (::dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0 || !map || !map->l_name) return {};
  return map->l_name;
}

} // namespace attnc::jit
