# What `cmake --install` puts where: the libraries with their headers, CMake and pkg-config files, the command, the
# documents with their examples, and the library of mods. What was not built is left out, with a message. Component attnc_c is
# libattnc.so alone; attnc_python is what a wheel holds.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/attnc)
set(pkgconfig ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# Says at install which target was not built, and how to build it.
function(attnc_tell_missing target what)
  install(CODE "
    if(NOT EXISTS \"$<TARGET_FILE:${target}>\")
      message(WARNING \"Not installed: ${what}. Build it with\\n\"
                      \"  cmake --build ${PROJECT_BINARY_DIR} --target ${target}\\nand install again\")
    endif()")
endfunction()

install(TARGETS attnc_library EXPORT attnc ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} OPTIONAL
        INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
attnc_tell_missing(attnc_library "libattnc.a, for C++")
install(DIRECTORY include/attnc DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN *.h PATTERN *.hpp
        PATTERN *.def)
install(EXPORT attnc NAMESPACE attnc:: FILE attnc-targets.cmake DESTINATION ${package})
if(ATTNC_COMMAND)
  install(TARGETS attnc RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} OPTIONAL)
  attnc_tell_missing(attnc "the command attnc")
  install(FILES README.md dsl/SPEC.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
  install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR} PATTERN site EXCLUDE)
  install(DIRECTORY tools/examples DESTINATION ${CMAKE_INSTALL_DOCDIR}/tools) # where links of the documents find them
  install(DIRECTORY dsl/mods DESTINATION ${CMAKE_INSTALL_DATADIR}/attnc FILES_MATCHING PATTERN *.py PATTERN *.svg PATTERN README.md)
endif()
if(ATTNC_SHARED)
  install(TARGETS attnc_shared EXPORT attnc-c LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT attnc_c
          OPTIONAL INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  attnc_tell_missing(attnc_shared "libattnc.so, for C and Python")
  # One file: wheels hold no links.
  install(FILES $<TARGET_FILE:attnc_shared> DESTINATION . RENAME libattnc.so COMPONENT attnc_python EXCLUDE_FROM_ALL)
  install(FILES $<TARGET_FILE_DIR:attnc_shared>/_spec.py DESTINATION . COMPONENT attnc_python EXCLUDE_FROM_ALL)
  if(ATTNC_COMMAND)
    install(PROGRAMS $<TARGET_FILE:attnc> DESTINATION bin COMPONENT attnc_python EXCLUDE_FROM_ALL)
  endif()
  install(EXPORT attnc-c NAMESPACE attnc:: FILE attnc-c-targets.cmake DESTINATION ${package})
endif()

configure_package_config_file(tools/cmake/attnc-config.cmake.in attnc-config.cmake INSTALL_DESTINATION ${package}
                              PATH_VARS CMAKE_INSTALL_LIBDIR)
write_basic_package_version_file(attnc-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/attnc-config.cmake ${PROJECT_BINARY_DIR}/attnc-config-version.cmake DESTINATION ${package})

list(JOIN ATTNC_LLVM_LIBS " " ATTNC_PC_LIBS)
file(RELATIVE_PATH ATTNC_PC_UP /prefix/${pkgconfig} /prefix)
configure_file(tools/cmake/attnc.pc.in attnc.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/attnc.pc DESTINATION ${pkgconfig})
if(ATTNC_SHARED)
  configure_file(tools/cmake/attnc-c.pc.in attnc-c.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/attnc-c.pc DESTINATION ${pkgconfig})
endif()
