# libattnc.so: the C interface, for programs of any language and for wheels. What it needs is inside, the C++ runtime,
# too, for a process may have loaded an older one; libcuda and libnvrtc are opened at run time. Of all that only the
# functions of include/attnc/c.h can be seen, so neither LLVM nor fmt meets another copy in the process.
function(attnc_shared_library)
  list(TRANSFORM ARGN REPLACE "(.+)" "$<TARGET_OBJECTS:attnc_\\1>" OUTPUT_VARIABLE objects)
  set(folder ${PROJECT_SOURCE_DIR}/src/shared_library)
  add_library(attnc_shared SHARED ${objects})
  set_target_properties(attnc_shared PROPERTIES OUTPUT_NAME attnc EXPORT_NAME c LINKER_LANGUAGE CXX
                        VERSION ${PROJECT_VERSION} SOVERSION 0)
  target_include_directories(attnc_shared PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>)
  set_property(TARGET attnc_shared APPEND PROPERTY LINK_DEPENDS ${folder}/exports.map)
  target_link_options(attnc_shared PRIVATE -Wl,--version-script=${folder}/exports.map -Wl,--gc-sections)
  target_link_libraries(attnc_shared PRIVATE ${ATTNC_LLVM_ARCHIVES} Threads::Threads ${CMAKE_DL_LIBS})
  attnc_runtime_inside(attnc_shared -Wl,-z,defs)
  attnc_inside()
  attnc_contains(attnc_shared)
  attnc_python_spec()
  add_library(attnc::c ALIAS attnc_shared)
endfunction()

# Puts _spec.py next to libattnc.so: what is in it, for ctypes. The Python package takes it from there, so sources are
# left as they are. Programs of other languages do without, and so does their build on a machine without Python.
function(attnc_python_spec)
  find_package(Python3 3.9 QUIET COMPONENTS Interpreter)
  if(NOT Python3_FOUND)
    message(STATUS "There is no Python 3.9, so libattnc.so is built without _spec.py, which the Python package needs")
    return()
  endif()
  set(script ${PROJECT_SOURCE_DIR}/tools/python/make_spec.py)
  set_property(TARGET attnc_shared APPEND PROPERTY LINK_DEPENDS ${script}
               ${PROJECT_SOURCE_DIR}/dsl/diagnostics.def ${PROJECT_SOURCE_DIR}/dsl/warnings.def
               ${PROJECT_SOURCE_DIR}/src/ir/ops.def)
  add_custom_command(TARGET attnc_shared POST_BUILD VERBATIM
                     COMMAND ${Python3_EXECUTABLE} ${script} $<TARGET_FILE_DIR:attnc_shared>/_spec.py)
endfunction()

# The command as wheels hold it: it needs libc only, as libattnc.so does. Neither has a table of symbols.
function(attnc_portable_command)
  attnc_runtime_inside(attnc -Wl,--as-needed)
  attnc_contains(attnc)
  foreach(target attnc attnc_shared)
    target_link_options(${target} PRIVATE -s)
  endforeach()
endfunction()

# Puts stand-ins and fmt's code into a target.
function(attnc_contains target)
  target_sources(${target} PRIVATE $<TARGET_OBJECTS:attnc_inside>)
  get_target_property(libraries attnc_inside ATTNC_LIBRARIES)
  if(libraries)
    target_link_libraries(${target} PRIVATE ${libraries})
  endif()
endfunction()

function(attnc_runtime_inside target)
  # A sanitizer has its runtime in the program.
  if(NOT CMAKE_CXX_FLAGS MATCHES "-fsanitize")
    target_link_options(${target} PRIVATE -static-libstdc++ -static-libgcc ${ARGN})
  endif()
endfunction()

# Makes what attnc_contains() puts into targets. Debian has fmt as a shared library alone; then its code comes from its
# headers.
function(attnc_inside)
  set(folder ${PROJECT_SOURCE_DIR}/src/shared_library)
  set(source ${folder}/fmt_inside.cpp)
  add_library(attnc_inside OBJECT ${folder}/no_terminal.cpp)
  set_target_properties(attnc_inside PROPERTIES POSITION_INDEPENDENT_CODE ON)
  find_library(ATTNC_FMT_ARCHIVE libfmt.a)
  if(ATTNC_FMT_ARCHIVE)
    set_target_properties(attnc_inside PROPERTIES ATTNC_LIBRARIES ${ATTNC_FMT_ARCHIVE})
  elseif(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    target_sources(attnc_inside PRIVATE ${source})
    # -O1: much code, and nothing to speed up.
    get_target_property(headers fmt::fmt INTERFACE_INCLUDE_DIRECTORIES)
    set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "-fkeep-inline-functions;-ffunction-sections;-O1"
                                COMPILE_DEFINITIONS FMT_HEADER_ONLY=1 INCLUDE_DIRECTORIES "${headers}")
  else()
    message(STATUS "There is no libfmt.a, so libattnc.so needs fmt's shared library")
    set_target_properties(attnc_inside PROPERTIES ATTNC_LIBRARIES fmt::fmt)
  endif()
endfunction()
