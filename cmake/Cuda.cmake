# CUDA where a compiler for it is found (sm_80, sm_90 and PTX for what comes later), stubs that say so elsewhere.
include(CheckLanguage)
check_language(CUDA)
set(has_cuda OFF)
if(CMAKE_CUDA_COMPILER)
  set(has_cuda ON)
endif()
option(REGCCRF_CUDA "Build inference on CUDA devices" ${has_cuda})

set(regccrf_cuda_sources
  src/inference/device_cuda.cu
  src/inference/prepare_cuda.cu
  src/inference/scan_cuda.cu
  src/inference/pass_cuda.cu
  src/inference/join_cuda.cu
  src/inference/join_stream_cuda.cu
  src/inference/expectation_cuda.cu
  src/inference/scan_viterbi_cuda.cu
  src/inference/viterbi_cuda.cu
  src/inference/viterbi_resident_cuda.cu
  src/inference/kbest_cuda.cu
  src/inference/sample_cuda.cu
  src/inference/covariance_cuda.cu
  src/inference/weigh_cuda.cu
  src/inference/wide_cuda.cu)

target_sources(regccrf_inference PRIVATE src/inference/sweep.cc src/inference/join.cc src/inference/cuda_status.cc)
if(NOT REGCCRF_CUDA)
  target_sources(regccrf_inference PRIVATE src/inference/no_cuda.cc)
  return()
endif()

if(NOT CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 80-real 90)
endif()
enable_language(CUDA)
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that nvcc has it
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
endif()
find_package(CUDAToolkit REQUIRED)
add_library(regccrf_cuda OBJECT ${regccrf_cuda_sources})
target_include_directories(regccrf_cuda PRIVATE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
target_compile_options(regccrf_cuda PRIVATE --expt-relaxed-constexpr)
target_sources(regccrf_inference PRIVATE $<TARGET_OBJECTS:regccrf_cuda>)
target_link_libraries(regccrf_inference PRIVATE ${CUDAToolkit_LIBRARY_DIR}/libcudart_static.a dl rt)
