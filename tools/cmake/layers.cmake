# attnc_layer(name folder libs...): the static library attnc_<name> of all sources of a folder.
function(attnc_layer name folder)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${folder}/*.cpp)
  add_library(attnc_${name} STATIC ${sources})
  target_include_directories(attnc_${name} PUBLIC ${CMAKE_SOURCE_DIR}/include ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR})
  target_link_libraries(attnc_${name} PUBLIC ${ARGN})
endfunction()

# attnc_tool(name folder libs...): an executable of a folder's main.cpp, and a library <name>_parts of the other sources, for
# the tests.
function(attnc_tool name folder)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${folder}/*.cpp)
  list(FILTER sources EXCLUDE REGEX "/main.cpp$")
  add_library(${name}_parts STATIC ${sources})
  target_include_directories(${name}_parts PUBLIC ${CMAKE_SOURCE_DIR}/${folder})
  target_link_libraries(${name}_parts PUBLIC ${ARGN})
  target_compile_definitions(${name}_parts PUBLIC ATTNC_VERSION="${PROJECT_VERSION}")
  add_executable(${name} ${folder}/main.cpp)
  target_link_libraries(${name} PRIVATE ${name}_parts)
endfunction()

# Puts templates/ as text into a layer (src/kernels/embedded.h).
function(attnc_embed_templates name)
  file(GLOB_RECURSE templates CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/templates/*)
  set(out ${CMAKE_BINARY_DIR}/embedded_templates.cpp)
  set(script ${CMAKE_SOURCE_DIR}/tools/cmake/embed_templates.cmake)
  add_custom_command(OUTPUT ${out} DEPENDS ${templates} ${script}
                     COMMAND ${CMAKE_COMMAND} -DROOT=${CMAKE_SOURCE_DIR}/templates -DOUT=${out} -P ${script})
  target_sources(attnc_${name} PRIVATE ${out})
endfunction()
