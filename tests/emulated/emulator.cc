// Runs CUDA kernels on the host, for tests on machines without a device.
//
// A kernel is compiled as plain C++ against the stand-ins for CUDA's headers in this folder. Blocks run one after
// another, from the first on or from the last. Each thread of a block is a fiber, with a stack of its own, that runs
// until it waits: for its block (meet) or for the lanes of its warp (exchange). When all that it waits for have come,
// they go on. In which order they run is drawn anew each time, so that a missing barrier shows sooner or later.
//
// Slower than a device by far, and stricter:
// - threads that wait for their block at different places, lanes at different exchanges, or some that wait while others
//   have ended, are errors;
// - shared memory is garbage when a block begins, of exactly the size asked for, and a write past its end is an error;
// - so is one past the end of device memory.
// Not seen: static shared memory is what the block before left; reads past an end, but by AddressSanitizer; and how
// fast or how precise the device's own exp and log are.
#include "emulator.h"

#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__ 1  // as g++ says it
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace {

constexpr std::size_t kMostShared = 256 << 10, kGuard = 4096, kStack = 256 << 10;
constexpr unsigned kLanes = 32, kAllLanes = 0xffffffffu, kMostThreads = 1024;
constexpr char kGuardByte = 0x3c;

}  // namespace

namespace regccrf::cuda {
alignas(16) thread_local char shared[kMostShared + kGuard];  // shared_memory() of device_cuda.h
}

// --- stacks

// A position is where on a stack one left off. switch_position(from, to) leaves here, to come back when somebody
// switches to `from`; after set_position(…), to switch there is to call `begin`.
#if defined(__x86_64__)

// What a called function must leave as it was lies on the stack, and the position is its top.
using Position = void*;
extern "C" void switch_position(Position& from, const Position& to);
asm(R"(
  .text
  .globl switch_position
switch_position:
  push %rbp
  push %rbx
  push %r12
  push %r13
  push %r14
  push %r15
  mov %rsp, (%rdi)
  mov (%rsi), %rsp
  pop %r15
  pop %r14
  pop %r13
  pop %r12
  pop %rbx
  pop %rbp
  ret
)");

namespace {

void set_position(Position& position, char* bottom, std::size_t size, void (*begin)()) {
  void** top = reinterpret_cast<void**>(bottom + size);
  *--top = nullptr;  // nobody called it
  *--top = reinterpret_cast<void*>(begin);
  for (int saved = 0; saved < 6; ++saved) *--top = nullptr;
  position = top;
}

}  // namespace

#else

using Position = ucontext_t;

namespace {

void switch_position(Position& from, const Position& to) { swapcontext(&from, &to); }

void set_position(Position& position, char* bottom, std::size_t size, void (*begin)()) {
  getcontext(&position);
  position.uc_stack.ss_sp = bottom;
  position.uc_stack.ss_size = size;
  position.uc_link = nullptr;
  makecontext(&position, begin, 0);
}

}  // namespace

#endif

namespace emulated {

namespace {

std::mt19937 random_numbers([] {
  const char* seed = std::getenv("REGCCRF_EMULATED_SEED");
  return seed ? static_cast<unsigned>(std::atoi(seed)) : 1u;
}());

std::string described(const Place& place) {
  const std::string file = place.file;
  return file.substr(file.rfind('/') + 1) + ":" + std::to_string(place.line);
}

// --- fibers

enum class State { ready, meeting, exchanging, done };

struct Copy {
  void* to;
  const void* from;
  std::size_t bytes;
  unsigned group;
};

// A stack, and where on it one left off.
struct Stack {
  char* bottom = nullptr;
  std::size_t size = 0;
  Position position{};
  void* sanitizers = nullptr;  // AddressSanitizer's own, while one is away
};

struct Fiber {
  Stack stack;
  bool begun = false;
  State state = State::done;
  Place place{};
  int kind = 0;        // of an exchange …
  unsigned lanes = 0;  // … and between which lanes
  Brought brought{};
  std::vector<Copy> copies;
  unsigned groups = 0;  // of copies, committed
};

std::vector<Fiber> fibers;
Fiber* current = nullptr;
Stack scheduler;
const std::function<void()>* body = nullptr;
Brought exchanged[kMostThreads / kLanes][kLanes];
int met = 0;

// AddressSanitizer wants to know of stacks, and can be told of bytes that nobody may touch.
#if defined(__SANITIZE_ADDRESS__)
void leaving(Stack& from, const Stack& to) { __sanitizer_start_switch_fiber(&from.sanitizers, to.bottom, to.size); }
void arrived(Stack& at) { __sanitizer_finish_switch_fiber(at.sanitizers, nullptr, nullptr); }
void arrived_first(Stack& from) {
  const void* bottom;
  __sanitizer_finish_switch_fiber(nullptr, &bottom, &from.size);
  from.bottom = static_cast<char*>(const_cast<void*>(bottom));
}
void forbid(char* from, std::size_t bytes) { __asan_poison_memory_region(from, bytes); }
void allow(char* from, std::size_t bytes) { __asan_unpoison_memory_region(from, bytes); }
#else
void leaving(Stack&, const Stack&) {}
void arrived(Stack&) {}
void arrived_first(Stack&) {}
void forbid(char*, std::size_t) {}
void allow(char*, std::size_t) {}
#endif

// From one stack to another, until somebody switches back.
void switch_stack(Stack& from, const Stack& to) {
  leaving(from, to);
  switch_position(from.position, to.position);
  arrived(from);
}

void wait_as(State state) {
  current->state = state;
  switch_stack(current->stack, scheduler);
}

// A fiber outlives its block: it begins the next one where it ended the last.
void fiber_main() {
  arrived_first(scheduler);
  for (;;) {
    (*body)();
    wait_as(State::done);
  }
}

void resume(Fiber& fiber) {
  current = &fiber;
  threadIdx = {static_cast<unsigned>(&fiber - fibers.data()), 0, 0};
  switch_stack(scheduler, fiber.stack);
}

void make_fibers() {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  fibers.resize(kMostThreads);
  for (Fiber& fiber : fibers) {
    void* memory = mmap(nullptr, page + kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::runtime_error("[emulator] no memory for stacks");
    mprotect(memory, page, PROT_NONE);  // to overflow is to crash
    fiber.stack = {static_cast<char*>(memory) + page, kStack};
  }
}

// Fibers that an error left in the middle of a kernel, and those that never ran, begin anew.
void ready_fibers(unsigned threads) {
  if (fibers.empty()) make_fibers();
  for (unsigned i = 0; i < threads; ++i) {
    Fiber& fiber = fibers[i];
    if (fiber.state != State::done) fiber.begun = false;
    if (!fiber.begun) {
      set_position(fiber.stack.position, fiber.stack.bottom, fiber.stack.size, fiber_main);
      fiber.begun = true;
    }
    fiber.state = State::ready;
    fiber.copies.clear();
    fiber.groups = 0;
  }
}

// --- who goes on

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error("[emulator] block (" + std::to_string(blockIdx.x) + ", " + std::to_string(blockIdx.y) +
                           ", " + std::to_string(blockIdx.z) + ") of " + std::to_string(blockDim.x) +
                           " threads: " + what);
}

std::string where(const Fiber& fiber) {
  const std::string name = "thread " + std::to_string(&fiber - fibers.data());
  if (fiber.state == State::done) return name + " has ended";
  return name + (fiber.state == State::meeting ? " waits for its block at " : " waits for its warp at ") +
         described(fiber.place);
}

bool same(const Fiber& x, const Fiber& y) {
  if (x.state != y.state) return false;
  if (x.state == State::done) return true;
  if (x.place.line != y.place.line || std::strcmp(x.place.file, y.place.file) != 0) return false;
  return x.state == State::meeting || (x.kind == y.kind && x.lanes == y.lanes);
}

void must_agree(unsigned first, unsigned count) {
  for (unsigned i = first + 1; i < first + count; ++i) {
    if (!same(fibers[first], fibers[i])) fail(where(fibers[first]) + ", and otherwise " + where(fibers[i]));
  }
}

// Runs a warp until its lanes wait for one another or for more than the warp; whether it can go on at once.
bool run_warp(unsigned warp) {
  const unsigned stride = 2 * (random_numbers() % 16) + 1, offset = random_numbers() % kLanes;  // odd: meets each lane
  Fiber* lanes = fibers.data() + warp * kLanes;
  for (unsigned i = 0; i < kLanes; ++i) resume(lanes[(i * stride + offset) % kLanes]);
  if (lanes[0].state == State::exchanging) {
    must_agree(warp * kLanes, kLanes);
    if (lanes[0].lanes != kAllLanes) fail(where(lanes[0]) + " with some lanes alone, which is not emulated");
    for (unsigned i = 0; i < kLanes; ++i) {
      exchanged[warp][i] = lanes[i].brought;
      lanes[i].state = State::ready;
    }
    return true;
  }
  for (unsigned i = 0; i < kLanes; ++i) {
    if (lanes[i].state == State::exchanging) fail(where(lanes[0]) + ", and " + where(lanes[i]));
  }
  return false;
}

// All warps, until every thread waits for the block or has ended; whether they have ended.
bool run_to_meeting(unsigned threads) {
  std::vector<unsigned> ready(threads / kLanes);
  for (unsigned warp = 0; warp < ready.size(); ++warp) ready[warp] = warp;
  while (!ready.empty()) {
    const std::size_t at = random_numbers() % ready.size();
    bool more = true;
    while (more && random_numbers() % 8 != 0) more = run_warp(ready[at]);
    if (more) continue;
    ready[at] = ready.back();
    ready.pop_back();
  }
  must_agree(0, threads);
  if (fibers[0].state == State::done) return true;
  met = 0;
  for (unsigned i = 0; i < threads; ++i) {
    met += fibers[i].brought.words[0] != 0;
    fibers[i].state = State::ready;
  }
  return false;
}

// --- memory

std::map<void*, std::size_t> allocations;

// Bytes that nobody may touch: AddressSanitizer stops whoever does, and without it intact() finds who wrote.
void guard(char* from) {
  std::memset(from, kGuardByte, kGuard);
  forbid(from, kGuard);
}
__attribute__((no_sanitize("address"))) bool intact(const char* guard) {
  for (std::size_t i = 0; i < kGuard; ++i) {
    if (guard[i] != kGuardByte) return false;
  }
  return true;
}

int garbage() { return random_numbers() % 2 ? 0xff : 0x5a; }  // NaN and -1, or large numbers

void check_allocations() {
  for (const auto& [memory, bytes] : allocations) {
    if (intact(static_cast<char*>(memory) + bytes)) continue;
    throw std::runtime_error("[emulator] a kernel wrote past the end of " + std::to_string(bytes) +
                             " bytes of device memory");
  }
}

std::size_t last_shared = 0;

void run_block(unsigned threads, std::size_t bytes) {
  char* shared = regccrf::cuda::shared;
  allow(shared + last_shared, kGuard);
  last_shared = bytes;
  std::memset(shared, garbage(), bytes);
  guard(shared + bytes);
  ready_fibers(threads);
  while (!run_to_meeting(threads)) {
  }
  if (!intact(shared + bytes))
    fail("something was written past its " + std::to_string(bytes) + " bytes of shared memory");
}

}  // namespace

void run(dim3 grid, unsigned threads, std::size_t bytes, const std::function<void()>& kernel) {
  if (threads == 0 || threads > kMostThreads || threads % kLanes != 0)
    throw std::runtime_error("[emulator] a block of " + std::to_string(threads) + " threads");
  body = &kernel;
  gridDim = grid;
  blockDim = threads;
  const bool backwards = random_numbers() % 2 == 0;
  const unsigned blocks = grid.x * grid.y * grid.z;
  for (unsigned i = 0; i < blocks; ++i) {
    const unsigned block = backwards ? blocks - 1 - i : i;
    blockIdx = {block % grid.x, block / grid.x % grid.y, block / grid.x / grid.y};
    run_block(threads, bytes);
  }
  check_allocations();
}

int meet(bool mine, const Place& place) {
  current->place = place;
  current->brought = {mine, 0};
  wait_as(State::meeting);
  return met;
}

const Brought* exchange(unsigned lanes, const Brought& mine, int kind, const Place& place) {
  current->place = place;
  current->kind = kind;
  current->lanes = lanes;
  current->brought = mine;
  const unsigned warp = threadIdx.x / kLanes;
  wait_as(State::exchanging);
  return exchanged[warp];
}

void copy_later(void* to, const void* from, std::size_t bytes) {
  current->copies.push_back({to, from, bytes, current->groups});
}

void commit_copies() { ++current->groups; }

void finish_copies(unsigned groups) {
  std::vector<Copy> left;
  for (const Copy& copy : current->copies) {
    if (copy.group + groups < current->groups) {
      std::memcpy(copy.to, copy.from, copy.bytes);
    } else {
      left.push_back(copy);
    }
  }
  current->copies = std::move(left);
}

void* allocate(std::size_t bytes) {
  void* memory = std::aligned_alloc(256, (bytes + kGuard + 255) / 256 * 256);
  if (!memory) throw std::bad_alloc();
  std::memset(memory, garbage(), bytes);
  guard(static_cast<char*>(memory) + bytes);
  allocations[memory] = bytes;
  return memory;
}

void release(void* memory) {
  if (!memory) return;
  allow(static_cast<char*>(memory) + allocations.at(memory), kGuard);
  allocations.erase(memory);
  std::free(memory);
}

// --- devices

namespace {

// From a large one to one so small that almost nothing finds room on chip.
constexpr Device devices[] = {{0, 232448, 132}, {1, 20480, 2}, {2, 101376, 28}, {3, 20480, 84}, {4, 49152, 6}};
std::size_t turn = 0;

}  // namespace

Device device() {
  static const char* only = std::getenv("REGCCRF_EMULATED_DEVICE");
  return devices[(only ? static_cast<std::size_t>(std::atoi(only)) : turn) % std::size(devices)];
}

void take_next_device() { ++turn; }

}  // namespace emulated
