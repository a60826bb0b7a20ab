// Stands in for CUDA's header of that name. A copy happens where it is waited for, so that reading too early shows.
#pragma once

#include "emulator.h"

inline void __pipeline_memcpy_async(void* to, const void* from, std::size_t bytes) {
  emulated::copy_later(to, from, bytes);
}
inline void __pipeline_commit() { emulated::commit_copies(); }
inline void __pipeline_wait_prior(unsigned groups) { emulated::finish_copies(groups); }
