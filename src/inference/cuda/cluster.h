// A block's shared memory, and that of the blocks of its cluster: the instructions for it, which CUDA has no functions
// for. tests/emulated has a file of the same name that takes its place. A device before sm_90 is never given a cluster,
// nor has it barriers.
//
// What is sent lands in another block's shared memory at some later time; that block waits for the bytes it expects, at
// a barrier that counts them. No fence is needed for that, nor do caches of global memory become invalid, as they do at
// a barrier of the cluster.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace regccrf::cuda {

// A block's dynamic shared memory.
__device__ inline char* shared_memory() {
  extern __shared__ __align__(16) char shared[];
  return shared;
}

using TransactionBarrier = std::uint64_t;  // in shared memory

__device__ inline std::uint32_t shared_address(const void* at) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(at));
}

// By one thread, before the first barrier of the cluster.
__device__ inline void init_barrier(TransactionBarrier* barrier) {
#if __CUDA_ARCH__ >= 900
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(barrier)) : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}

// A barrier for all threads of all blocks of the cluster.
__device__ inline void sync_cluster() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

// The same in two parts, relaxed: it makes visible only that barriers are initialised, which init_barrier() has fenced.
__device__ inline void arrive_cluster() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#endif
}
__device__ inline void wait_cluster() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

// Sends a number to where block `rank` of the cluster has what this block has at `at`, and counts it in that block's
// barrier.
template <class T>
__device__ void send(T* at, std::uint32_t rank, T value, TransactionBarrier* barrier) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
#if __CUDA_ARCH__ >= 900
  std::uint32_t there, barrier_there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared_address(at)), "r"(rank));
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(barrier_there) : "r"(shared_address(barrier)), "r"(rank));
  if constexpr (sizeof(T) == 4) {
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(there),
                 "r"(*reinterpret_cast<const std::uint32_t*>(&value)), "r"(barrier_there)
                 : "memory");
  } else {
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b64 [%0], %1, [%2];" ::"r"(there),
                 "l"(*reinterpret_cast<const std::uint64_t*>(&value)), "r"(barrier_there)
                 : "memory");
  }
#endif
}

// By one thread: so many bytes are to come to this block's barrier before it is full for the next time.
__device__ inline void expect(TransactionBarrier* barrier, std::uint32_t bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
               : "memory");
#endif
}

// Waits until the barrier has been full `times` + 1 times; a whole warp waits together.
__device__ inline void wait_for(TransactionBarrier* barrier, std::uint32_t times) {
#if __CUDA_ARCH__ >= 900
  std::uint32_t full;
  do {
    asm volatile("{\n .reg .pred p;\n mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n selp.u32 %0, 1, 0, p;\n}"
                 : "=r"(full)
                 : "r"(shared_address(barrier)), "r"(times & 1)
                 : "memory");
  } while (!full);
#endif
}

}  // namespace regccrf::cuda
