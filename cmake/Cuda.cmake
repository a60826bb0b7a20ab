# Whether kernels are built, and for which devices. Sets REGCCRF_WITH_CUDA and REGCCRF_LOCAL_VERSION.
#
#   REGCCRF_CUDA=AUTO  (default) for the devices of this machine; without one, or without nvcc, none
#   REGCCRF_CUDA=ON    for CMAKE_CUDA_ARCHITECTURES (default: sm_80, sm_90 and PTX for what comes later)
#   REGCCRF_CUDA=OFF   none
set(REGCCRF_CUDA AUTO CACHE STRING "Build inference on CUDA devices: AUTO (for those of this machine), ON or OFF")
set_property(CACHE REGCCRF_CUDA PROPERTY STRINGS AUTO ON OFF)
set(REGCCRF_WITH_CUDA OFF)
if(NOT REGCCRF_CUDA)
  return()
endif()

include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  if(NOT REGCCRF_CUDA STREQUAL "AUTO")
    message(FATAL_ERROR "REGCCRF_CUDA is ${REGCCRF_CUDA}, and nvcc was not found: put it on the PATH, or set CMAKE_CUDA_COMPILER")
  endif()
  return()
endif()

set(architectures 80-real 90)
if(REGCCRF_CUDA STREQUAL "AUTO")
  execute_process(COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader OUTPUT_VARIABLE devices ERROR_QUIET)
  string(REGEX MATCHALL "[0-9]+\\.[0-9]+" devices "${devices}")
  if(NOT devices)
    message(NOTICE "CUDA: nvcc is here and no device: no kernels are built. For kernels: cmake -DREGCCRF_CUDA=ON build")
    return()
  endif()
  list(REMOVE_DUPLICATES devices)
  string(REPLACE "." "" architectures "${devices}")
  list(TRANSFORM architectures APPEND -real)
  message(NOTICE "CUDA: kernels for this machine's devices (${architectures}). For others: cmake -DREGCCRF_CUDA=ON build")
endif()

set(REGCCRF_WITH_CUDA ON)
if(NOT CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES ${architectures})
endif()
enable_language(CUDA)
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that nvcc has it
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
endif()
find_package(CUDAToolkit REQUIRED)
# A build with kernels says so in its version: 0.1.0+cu130.
set(REGCCRF_LOCAL_VERSION +cu${CUDAToolkit_VERSION_MAJOR}${CUDAToolkit_VERSION_MINOR})
set(REGCCRF_CUDART ${CUDAToolkit_LIBRARY_DIR}/libcudart_static.a dl rt)
