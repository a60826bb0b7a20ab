// Takes the place of src/inference/cuda/cluster.h in the emulated test.
#pragma once

#include <cuda_runtime.h>

#include <cstring>

namespace regccrf::cuda {

inline char* shared_memory() { return emulated::shared_memory(); }

// How often it was full; what is still expected, less what has come; whether an amount has been named.
struct alignas(8) TransactionBarrier {
  std::int32_t bytes;
  std::uint16_t times, named;
  void look() {
    if (!named || bytes != 0) return;
    ++times;
    named = 0;
  }
};

inline void init_barrier(TransactionBarrier* barrier) { *barrier = {0, 0, 0}; }

inline void sync_cluster(emulated::Place place = emulated::Place::current()) { emulated::meet_cluster(place); }

inline void arrive_cluster() {}
inline void wait_cluster(emulated::Place place = emulated::Place::current()) { emulated::meet_cluster(place); }

template <class T>
void send(T* at, std::uint32_t rank, T value, TransactionBarrier* barrier) {
  auto* there = static_cast<T*>(emulated::shared_of(at, rank));
  auto* barrier_there = static_cast<TransactionBarrier*>(emulated::shared_of(barrier, rank));
  emulated::later(rank, [=] {
    *there = value;
    barrier_there->bytes -= static_cast<std::int32_t>(sizeof(T));
    barrier_there->look();
  });
}

inline void expect(TransactionBarrier* barrier, std::uint32_t bytes) {
  barrier->bytes += static_cast<std::int32_t>(bytes);
  barrier->named = 1;
  barrier->look();
}

inline void wait_for(TransactionBarrier* barrier, std::uint32_t times,
                     emulated::Place place = emulated::Place::current()) {
  emulated::wait_until([=] { return ((barrier->times ^ times) & 1) != 0; }, place);
}

}  // namespace regccrf::cuda
