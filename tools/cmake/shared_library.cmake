# libattnc.so: the C interface, for programs of any language and for wheels. What it needs is inside, the C++ runtime,
# too, for a process may have loaded an older one; libcuda and libnvrtc are opened at run time. Of all that only the
# functions of include/attnc/c.h can be seen, so neither LLVM nor fmt meets another copy in the process.
function(attnc_shared_library)
  list(TRANSFORM ARGN REPLACE "(.+)" "$<TARGET_OBJECTS:attnc_\\1>" OUTPUT_VARIABLE objects)
  set(folder ${PROJECT_SOURCE_DIR}/src/shared_library)
  add_library(attnc_shared SHARED ${objects} ${folder}/no_terminal.cpp)
  set_target_properties(attnc_shared PROPERTIES OUTPUT_NAME attnc EXPORT_NAME c LINKER_LANGUAGE CXX
                        VERSION ${PROJECT_VERSION} SOVERSION 0)
  target_include_directories(attnc_shared PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>)
  set_property(TARGET attnc_shared APPEND PROPERTY LINK_DEPENDS ${folder}/exports.map)
  target_link_options(attnc_shared PRIVATE -Wl,--version-script=${folder}/exports.map -Wl,--gc-sections)
  target_link_libraries(attnc_shared PRIVATE ${ATTNC_LLVM_ARCHIVES} Threads::Threads ${CMAKE_DL_LIBS})
  attnc_runtime_inside(attnc_shared -Wl,-z,defs)
  attnc_fmt_inside(attnc_shared ${folder}/fmt_inside.cpp)
  add_library(attnc::c ALIAS attnc_shared)
endfunction()

# The command as wheels hold it: it needs libc only, as libattnc.so does. Neither has a table of symbols.
function(attnc_portable_command)
  set(folder ${PROJECT_SOURCE_DIR}/src/shared_library)
  target_sources(attnc PRIVATE ${folder}/no_terminal.cpp)
  attnc_runtime_inside(attnc -Wl,--as-needed)
  foreach(target attnc attnc_shared)
    target_link_options(${target} PRIVATE -s)
  endforeach()
  attnc_fmt_inside(attnc ${folder}/fmt_inside.cpp)
endfunction()

function(attnc_runtime_inside target)
  # A sanitizer has its runtime in the program.
  if(NOT CMAKE_CXX_FLAGS MATCHES "-fsanitize")
    target_link_options(${target} PRIVATE -static-libstdc++ -static-libgcc ${ARGN})
  endif()
endfunction()

# Debian has fmt as a shared library alone; then its code comes from its headers.
function(attnc_fmt_inside target source)
  find_library(ATTNC_FMT_ARCHIVE libfmt.a)
  if(ATTNC_FMT_ARCHIVE)
    target_link_libraries(${target} PRIVATE ${ATTNC_FMT_ARCHIVE})
  elseif(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    target_sources(${target} PRIVATE ${source})
    get_target_property(headers fmt::fmt INTERFACE_INCLUDE_DIRECTORIES)
    set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "-fkeep-inline-functions;-ffunction-sections"
                                COMPILE_DEFINITIONS FMT_HEADER_ONLY=1 INCLUDE_DIRECTORIES "${headers}")
  else()
    message(STATUS "There is no libfmt.a, so libattnc.so needs fmt's shared library")
    target_link_libraries(${target} PRIVATE fmt::fmt)
  endif()
endfunction()
