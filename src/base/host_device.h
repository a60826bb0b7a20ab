// Functions that the host and CUDA devices share.
#pragma once

#if defined(__CUDACC__)
#define REGCCRF_BOTH __host__ __device__
#else
#define REGCCRF_BOTH
#endif
