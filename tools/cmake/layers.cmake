# What every target of ours is compiled with, wherever it is built.
function(attnc_settings target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF POSITION_INDEPENDENT_CODE ON)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${ATTNC_BUNDLES} UNITY_BUILD_BATCH_SIZE 8)
  # Wrap-around integers are part of the language (src/ir/ops.def), so the interpreter may rely on them.
  target_compile_options(${target} PRIVATE -fwrapv)
  # A switch over an enum lists its enumerators, without a default: a new one is met wherever it counts.
  target_compile_options(${target} PRIVATE -Werror=switch)
endfunction()

# attnc_layer(name folder libs...): the static library attnc_<name> of all sources of a folder and of the folders in it.
function(attnc_layer name folder)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/*.cpp)
  add_library(attnc_${name} STATIC ${sources})
  target_include_directories(attnc_${name} PUBLIC ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR})
  target_link_libraries(attnc_${name} PUBLIC ${ARGN})
  attnc_settings(attnc_${name})
endfunction()

# attnc_public_library(names...): the library that users link, of the objects of all layers.
function(attnc_public_library)
  list(TRANSFORM ARGN REPLACE "(.+)" "$<TARGET_OBJECTS:attnc_\\1>" OUTPUT_VARIABLE objects)
  add_library(attnc_library STATIC ${objects})
  set_target_properties(attnc_library PROPERTIES OUTPUT_NAME attnc EXPORT_NAME attnc LINKER_LANGUAGE CXX)
  target_compile_features(attnc_library PUBLIC cxx_std_20)
  target_include_directories(attnc_library PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>)
  target_link_libraries(attnc_library PRIVATE $<BUILD_INTERFACE:attnc_dependencies>
                                              $<INSTALL_INTERFACE:attnc::dependencies> Threads::Threads ${CMAKE_DL_LIBS})
  add_library(attnc::attnc ALIAS attnc_library)
endfunction()

# attnc_tool(name folder libs...): an executable of a folder's main.cpp, and a library <name>_parts of the other sources, for
# the tests.
function(attnc_tool name folder)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/*.cpp)
  list(FILTER sources EXCLUDE REGEX "/(main|http_server).cpp$")
  # A bundle with one source that includes CLI11 compiles all of its header, so these sources share bundles.
  set(parsers "")
  foreach(source ${sources})
    file(STRINGS ${source} includes REGEX "^#include <CLI/")
    if(includes)
      list(APPEND parsers ${source})
    endif()
  endforeach()
  list(REMOVE_ITEM sources ${parsers})
  list(PREPEND sources ${parsers})
  add_library(${name}_parts STATIC ${sources})
  target_include_directories(${name}_parts PUBLIC ${PROJECT_SOURCE_DIR}/${folder})
  target_link_libraries(${name}_parts PUBLIC ${ARGN})
  add_executable(${name} ${folder}/main.cpp)
  target_link_libraries(${name} PRIVATE ${name}_parts)
  foreach(target ${name}_parts ${name})
    attnc_settings(${target})
  endforeach()
endfunction()

# Puts the sources below a folder into a target, as the table of names and texts that one of the target's headers
# declares.
function(attnc_embed_files target folder header namespace type)
  set(root ${PROJECT_SOURCE_DIR}/${folder})
  file(GLOB_RECURSE files CONFIGURE_DEPENDS ${root}/*)
  set(out ${PROJECT_BINARY_DIR}/embedded_${type}s.cpp)
  set(script ${PROJECT_SOURCE_DIR}/tools/cmake/embed_files.cmake)
  add_custom_command(OUTPUT ${out} DEPENDS ${files} ${script}
                     COMMAND ${CMAKE_COMMAND} -DROOT=${root} -DHEADER=${header} -DNAMESPACE=${namespace} -DTYPE=${type}
                             -DOUT=${out} -P ${script})
  target_sources(${target} PRIVATE ${out})
endfunction()

# Puts a text of the sources into a target, as the string that one of the target's headers declares.
function(attnc_embed_text target file header namespace name)
  set(text ${PROJECT_SOURCE_DIR}/${file})
  set(out ${PROJECT_BINARY_DIR}/embedded_${name}.cpp)
  set(script ${PROJECT_SOURCE_DIR}/tools/cmake/embed_text.cmake)
  add_custom_command(OUTPUT ${out} DEPENDS ${text} ${script}
                     COMMAND ${CMAKE_COMMAND} -DFILE=${text} -DHEADER=${header} -DNAMESPACE=${namespace} -DNAME=${name}
                             -DOUT=${out} -P ${script})
  target_sources(${target} PRIVATE ${out})
endfunction()
