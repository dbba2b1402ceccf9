# `attnc serve`: its HTTP server is a module that the command opens, attnc_http.so, since the package's library needs
# OpenSSL and others. Without the package, the command says so.
include(GNUInstallDirs)
find_package(PkgConfig QUIET)
if(PkgConfig_FOUND)
  pkg_check_modules(HTTPLIB QUIET IMPORTED_TARGET cpp-httplib)
endif()
if(NOT HTTPLIB_FOUND)
  message(STATUS "attnc is built without `serve`: cpp-httplib or pkg-config is not installed")
  return()
endif()
add_library(attnc_http MODULE tools/attnc/http/http_server.cpp)
target_include_directories(attnc_http PRIVATE tools/attnc)
target_link_libraries(attnc_http PRIVATE PkgConfig::HTTPLIB Threads::Threads)
target_compile_features(attnc_http PRIVATE cxx_std_20)
set_target_properties(attnc_http PROPERTIES PREFIX "" LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR} CXX_VISIBILITY_PRESET default)
target_compile_options(attnc_http PRIVATE -O1) # a heavy header, and nothing to speed up
add_dependencies(attnc attnc_http)
file(RELATIVE_PATH folder /prefix/${CMAKE_INSTALL_BINDIR} /prefix/${CMAKE_INSTALL_LIBDIR}/attnc)
set_property(SOURCE tools/attnc/serve.cpp APPEND PROPERTY COMPILE_DEFINITIONS ATTNC_HTTP_FOLDER="${folder}")
set_property(SOURCE tools/attnc/serve.cpp PROPERTY SKIP_UNITY_BUILD_INCLUSION ON) # for the definition
if(ATTNC_INSTALL)
  install(TARGETS attnc_http LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/attnc OPTIONAL)
endif()
