# What attnc is built from, all from packages. LLVM is linked statically, and only its Support library.
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)

# Any LLVM from 14 on serves; its own CMake package insists on libraries that Support does not need.
find_program(LLVM_CONFIG NAMES llvm-config-14 llvm-config-15 llvm-config-16 llvm-config-17 llvm-config-18 llvm-config-19
                               llvm-config REQUIRED)
execute_process(COMMAND ${LLVM_CONFIG} --includedir OUTPUT_VARIABLE LLVM_INCLUDE OUTPUT_STRIP_TRAILING_WHITESPACE)
execute_process(COMMAND ${LLVM_CONFIG} --libdir OUTPUT_VARIABLE LLVM_LIB OUTPUT_STRIP_TRAILING_WHITESPACE)
add_library(LLVMSupportStatic INTERFACE)
target_include_directories(LLVMSupportStatic SYSTEM INTERFACE ${LLVM_INCLUDE})
target_link_libraries(LLVMSupportStatic INTERFACE ${LLVM_LIB}/libLLVMSupport.a ${LLVM_LIB}/libLLVMDemangle.a
                                                  fmt::fmt-header-only Threads::Threads ${CMAKE_DL_LIBS})
find_library(TINFO NAMES libtinfo.a tinfo)
if(TINFO)
  target_link_libraries(LLVMSupportStatic INTERFACE ${TINFO})
endif()

# Headers of CUDA 13 only: cuda.h and nvrtc.h. The libraries are opened at run time. tools/setup.sh puts them into
# .venv where no toolkit is installed.
file(GLOB CUDA_WHEEL_INCLUDE ${CMAKE_SOURCE_DIR}/.venv/lib/python3*/site-packages/nvidia/cu13/include)
find_path(CUDA_INCLUDE cuda.h HINTS $ENV{CUDA_HOME}/include /usr/local/cuda/include ${CUDA_WHEEL_INCLUDE} REQUIRED)
find_path(NVRTC_INCLUDE nvrtc.h HINTS $ENV{CUDA_HOME}/include /usr/local/cuda/include ${CUDA_WHEEL_INCLUDE} REQUIRED)
add_library(CudaHeaders INTERFACE)
target_include_directories(CudaHeaders SYSTEM INTERFACE ${CUDA_INCLUDE} ${NVRTC_INCLUDE})
