// What the stand-ins for CUDA's headers need of the emulator (emulator.cc).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;

namespace emulated {

// A line of a kernel.
struct Place {
  const char* file;
  int line;
  static constexpr Place current(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
};

struct Device {
  int number, shared_bytes, processors, most_together;  // blocks in a cluster
};
Device device();          // the one in force
void take_next_device();  // they take turns; REGCCRF_EMULATED_DEVICE=n for the n-th alone

// Runs the blocks of a grid, each `together` along x at a time, one cluster after another. Throws std::runtime_error
// where a kernel breaks a rule.
void run(dim3 grid, unsigned threads, std::size_t bytes, unsigned together, const std::function<void()>& kernel);

// From a thread of a kernel: waits for all threads of its block; how many of them brought true.
int meet(bool mine, const Place& place);

// From a thread of a kernel: waits for all threads of its cluster.
void meet_cluster(const Place& place);

// From a thread of a kernel: its block's shared memory, and where another block of its cluster has `at`.
char* shared_memory();
void* shared_of(void* at, unsigned rank);

// From a thread of a kernel: something is done to another block of its cluster, at some later time, at which that block
// must be there; a warp waits until something is so.
void later(unsigned rank, std::function<void()> act);
void wait_until(const std::function<bool()>& done, const Place& place);

// From a thread of a kernel: waits for all lanes of its warp; what each brought. `kind` must be the same for all.
struct Brought {
  std::uint64_t words[2];
};
const Brought* exchange(unsigned lanes, const Brought& mine, int kind, const Place& place);

// From a thread of a kernel: copies that happen when they are waited for, all but those of the last `groups` committed.
void copy_later(void* to, const void* from, std::size_t bytes);
void commit_copies();
void finish_copies(unsigned groups);

// Device memory: garbage, and watched for writes past its end.
void* allocate(std::size_t bytes);
void release(void* memory);

}  // namespace emulated
