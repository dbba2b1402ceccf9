# The target attnc_kernels: a pack of the library's kernels, which compilers search before NVRTC. It is no part of the
# default build, for it compiles for minutes. An install takes it if it was built.
set(ATTNC_KERNEL_ARCHS sm_80 sm_90a CACHE STRING "GPU architectures of the pack that attnc_kernels makes")
set(pack ${PROJECT_BINARY_DIR}/kernels.attncpack)
set(mods noop causal alibi sliding_window softcap prefix_lm document)
list(TRANSFORM mods REPLACE "(.+)" "${PROJECT_SOURCE_DIR}/dsl/mods/\\1.py")
list(JOIN ATTNC_KERNEL_ARCHS "," archs)
# Neither a pack nor a cache that is there already has a say in what is packed. Who else may write a pack could run code
# as its users, so compilers refuse one like that.
add_custom_command(OUTPUT ${pack} DEPENDS attnc ${mods}
                   COMMAND ${CMAKE_COMMAND} -E env ATTNC_DEFAULT_PACK=0 ATTNC_PACK= ATTNC_CACHE_MODE=off
                           $<TARGET_FILE:attnc> pack ${mods} --arch ${archs} --head-dim 64,128 --kernel auto,backward -o ${pack}
                   COMMAND chmod go-w ${pack}
                   COMMENT "Compiling the library's kernels for ${archs}" VERBATIM)
add_custom_target(attnc_kernels DEPENDS ${pack})
if(ATTNC_INSTALL)
  include(GNUInstallDirs)
  install(FILES ${pack} DESTINATION ${CMAKE_INSTALL_DATADIR}/attnc OPTIONAL)
  install(FILES ${pack} DESTINATION share/attnc COMPONENT attnc_python EXCLUDE_FROM_ALL OPTIONAL)
endif()
