// Runs CUDA kernels on the host, for tests on machines without a device.
//
// A kernel is compiled as plain C++ against the stand-ins for CUDA's headers in this folder. Clusters of blocks, mostly
// of one, run one after another, from the first on or from the last. Each thread is a fiber, with a stack of its own,
// that runs until it waits: for its cluster (meet_cluster), for its block (meet), for the lanes of its warp (exchange)
// or for something that was sent (wait_until). When all that it waits for has come, it goes on. In which order they
// run, and when what was sent arrives, is drawn anew each time, so that a missing barrier shows sooner or later.
//
// Slower than a device by far, and stricter:
// - threads that wait for their block at different places, lanes at different exchanges, or some that wait while others
//   have ended, are errors; so is to send to a block that has ended, or to wait for what nobody will send;
// - shared memory is garbage when a block begins, of exactly the size asked for, and a write past its end is an error;
// - so is one past the end of device memory.
// Not seen: static shared memory is what the block before left, and one for all blocks of a cluster; reads past an end,
// but by AddressSanitizer; and how fast or how precise the device's own exp and log are.
#include "emulator.h"

#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <array>
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

constexpr std::size_t kGuard = 4096, kStack = 256 << 10;
constexpr unsigned kLanes = 32, kAllLanes = 0xffffffffu, kMostThreads = 1024;
constexpr char kGuardByte = 0x3c;

}  // namespace

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

enum class State { ready, meeting, gathering, awaiting, exchanging, done };

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
  const std::function<bool()>* awaited = nullptr;
  std::vector<Copy> copies;
  unsigned groups = 0;  // of copies, committed
};

// A block of the cluster that runs: its fibers are the threads from `first` on.
struct Block {
  uint3 index;
  unsigned first, threads;
  char* shared;
  bool done;
  int met;
};

struct Message {
  Block* to;
  std::function<void()> act;
};

std::vector<Fiber> fibers;
std::vector<Block> blocks;  // of the cluster that runs
std::vector<Message> messages;
Fiber* current = nullptr;
Block* current_block = nullptr;
Stack scheduler;
const std::function<void()>* body = nullptr;
std::vector<std::array<Brought, kLanes>> exchanged;  // by warp of the cluster

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

// To the scheduler, until it resumes this fiber, which may lie elsewhere in memory by then.
void wait_as(State state) {
  current->state = state;
  leaving(current->stack, scheduler);
  switch_position(current->stack.position, scheduler.position);
  arrived(current->stack);
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
  threadIdx = {static_cast<unsigned>(&fiber - fibers.data()) - current_block->first, 0, 0};
  leaving(scheduler, fiber.stack);
  switch_position(scheduler.position, fiber.stack.position);
  arrived(scheduler);
}

void make_fibers(std::size_t count) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t before = fibers.size();
  if (before >= count) return;
  fibers.resize(count);
  exchanged.resize(count / kLanes);
  for (std::size_t i = before; i < count; ++i) {
    void* memory =
        mmap(nullptr, page + kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::runtime_error("[emulator] no memory for stacks");
    mprotect(memory, page, PROT_NONE);  // to overflow is to crash
    fibers[i].stack = {static_cast<char*>(memory) + page, kStack};
  }
}

// Fibers that an error left in the middle of a kernel, and those that never ran, begin anew.
void ready_fibers(unsigned threads) {
  make_fibers(threads);
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
  const std::string name = "thread " + std::to_string(&fiber - fibers.data() - current_block->first);
  if (fiber.state == State::done) return name + " has ended";
  const char* what = fiber.state == State::meeting     ? "its block"
                     : fiber.state == State::gathering ? "its cluster"
                     : fiber.state == State::awaiting  ? "what is sent to it"
                                                       : "its warp";
  return name + " waits for " + what + " at " + described(fiber.place);
}

bool same(const Fiber& x, const Fiber& y) {
  if (x.state != y.state) return false;
  if (x.state == State::done) return true;
  if (x.place.line != y.place.line || std::strcmp(x.place.file, y.place.file) != 0) return false;
  return x.state != State::exchanging || (x.kind == y.kind && x.lanes == y.lanes);
}

void must_agree(unsigned first, unsigned count) {
  for (unsigned i = first + 1; i < first + count; ++i) {
    if (!same(fibers[first], fibers[i])) fail(where(fibers[first]) + ", and otherwise " + where(fibers[i]));
  }
}

void set_state(unsigned first, unsigned count, State state) {
  for (unsigned i = first; i < first + count; ++i) fibers[i].state = state;
}

// Runs a warp (of the cluster) until its lanes wait for one another or for more than the warp; whether it can go on at
// once.
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
    if (lanes[i].state == State::awaiting || lanes[0].state == State::awaiting) must_agree(warp * kLanes, kLanes);
  }
  return false;
}

// Whether what a warp's lanes await has happened to all of them; then they are ready.
bool has_come(unsigned warp) {
  const Fiber* lanes = fibers.data() + warp * kLanes;
  if (lanes[0].state != State::awaiting) return false;
  for (unsigned i = 0; i < kLanes; ++i) {
    if (!(*lanes[i].awaited)()) return false;
  }
  set_state(warp * kLanes, kLanes, State::ready);
  return true;
}

// A warp of a cluster that does not run as long as anything else can happen.
unsigned sleeper = 0;

// The warps of a block, until every thread waits for more than its warp or has ended; whether any could run. Threads
// that wait for the block are ready again if all do.
bool run_block(Block& block, bool wake = false) {
  current_block = &block;
  blockIdx = block.index;
  std::vector<unsigned> ready;
  for (unsigned warp = block.first / kLanes; warp < (block.first + block.threads) / kLanes; ++warp) {
    const bool sleeps = blocks.size() > 1 && warp == sleeper && !wake;
    if (!sleeps && (fibers[warp * kLanes].state == State::ready || has_come(warp))) ready.push_back(warp);
  }
  if (ready.empty()) return false;
  while (!ready.empty()) {
    const std::size_t at = random_numbers() % ready.size();
    bool more = true;
    while (more && random_numbers() % 8 != 0) more = run_warp(ready[at]);
    if (more) continue;
    ready[at] = ready.back();
    ready.pop_back();
  }
  for (unsigned i = 0; i < block.threads; ++i) {
    const State state = fibers[block.first + i].state;
    if (state == State::awaiting || state == State::ready) return true;  // not all have come
  }
  must_agree(block.first, block.threads);
  block.done = fibers[block.first].state == State::done;
  if (fibers[block.first].state != State::meeting) return true;
  block.met = 0;
  for (unsigned i = 0; i < block.threads; ++i) block.met += fibers[block.first + i].brought.words[0] != 0;
  set_state(block.first, block.threads, State::ready);
  return true;
}

// Some of what was sent arrives, in any order: all of it if `all`. Whether there was anything.
bool deliver(bool all) {
  bool any = false;
  for (std::size_t i = 0; i < messages.size();) {
    std::swap(messages[i], messages[i + random_numbers() % (messages.size() - i)]);
    if (!all && random_numbers() % 2) {
      ++i;
      continue;
    }
    const Message message = std::move(messages[i]);
    messages[i] = std::move(messages.back());
    messages.pop_back();
    if (message.to->done) {
      blockIdx = message.to->index;
      fail("something was sent to it, and it has ended");
    }
    message.act();
    any = true;
  }
  return any;
}

// The blocks of a cluster, in any order, until all have ended.
void run_blocks() {
  const auto all_are = [](const auto& is) { return std::all_of(blocks.begin(), blocks.end(), is); };
  const auto at_barrier = [](const Block& block) {
    return std::all_of(fibers.begin() + block.first, fibers.begin() + block.first + block.threads,
                       [](const Fiber& fiber) { return fiber.state == State::gathering; });
  };
  while (!all_are([](const Block& block) { return block.done; })) {
    bool progress = false;
    const std::size_t first = random_numbers() % blocks.size();
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      Block& block = blocks[(first + i) % blocks.size()];
      if (!block.done && random_numbers() % 4 != 0) progress |= run_block(block);
    }
    progress |= deliver(false);
    if (progress) continue;
    for (Block& block : blocks) progress |= !block.done && run_block(block);
    if (progress || deliver(true)) continue;
    for (Block& block : blocks) progress |= !block.done && run_block(block, true);
    sleeper = random_numbers() % static_cast<unsigned>(blocks.size() * blocks[0].threads / kLanes);
    if (progress) continue;
    const unsigned threads = static_cast<unsigned>(blocks.size()) * blocks[0].threads;
    if (all_are(at_barrier)) {
      must_agree(0, threads);
      set_state(0, threads, State::ready);
      continue;
    }
    for (Block& block : blocks) {
      current_block = &block;
      blockIdx = block.index;
      if (!block.done) fail(where(fibers[block.first]) + ", for ever");
    }
  }
  if (!messages.empty()) fail("something was sent, and all have ended");
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

// A block's memory on chip lies between others', and is guarded.
class Shared {
 public:
  Shared(std::size_t blocks, std::size_t bytes) : bytes_(bytes), memory_(blocks * stride() + 16) {
    for (std::size_t i = 0; i < blocks; ++i) {
      std::memset(of(i), garbage(), bytes);
      guard(of(i) + bytes);
    }
  }
  ~Shared() { allow(memory_.data(), memory_.size()); }
  std::size_t stride() const { return (bytes_ + kGuard + 15) / 16 * 16; }
  char* of(std::size_t block) {
    char* aligned = memory_.data() + (16 - reinterpret_cast<std::uintptr_t>(memory_.data()) % 16) % 16;
    return aligned + block * stride();
  }

 private:
  std::size_t bytes_;
  std::vector<char> memory_;
};

void run_cluster(uint3 index, unsigned together, unsigned threads, std::size_t bytes) {
  Shared shared(together, bytes);
  blocks.clear();
  messages.clear();
  for (unsigned i = 0; i < together; ++i)
    blocks.push_back({{index.x + i, index.y, index.z}, i * threads, threads, shared.of(i), false, 0});
  ready_fibers(together * threads);
  run_blocks();
  for (const Block& block : blocks) {
    blockIdx = block.index;
    if (!intact(block.shared + bytes))
      fail("something was written past its " + std::to_string(bytes) + " bytes of shared memory");
  }
}

}  // namespace

void run(dim3 grid, unsigned threads, std::size_t bytes, unsigned together, const std::function<void()>& kernel) {
  if (threads == 0 || threads > kMostThreads || threads % kLanes != 0)
    throw std::runtime_error("[emulator] a block of " + std::to_string(threads) + " threads");
  body = &kernel;
  gridDim = grid;
  blockDim = threads;
  const bool backwards = random_numbers() % 2 == 0;
  const unsigned clusters = grid.x / together * grid.y * grid.z;
  for (unsigned i = 0; i < clusters; ++i) {
    const unsigned first = (backwards ? clusters - 1 - i : i) * together;
    run_cluster({first % grid.x, first / grid.x % grid.y, first / grid.x / grid.y}, together, threads, bytes);
  }
  check_allocations();
}

int meet(bool mine, const Place& place) {
  current->place = place;
  current->brought = {mine, 0};
  wait_as(State::meeting);
  return current_block->met;
}

void meet_cluster(const Place& place) {
  current->place = place;
  wait_as(State::gathering);
}

char* shared_memory() { return current_block->shared; }

void* shared_of(void* at, unsigned rank) {
  if (rank >= blocks.size()) fail("there is no block " + std::to_string(rank) + " in its cluster");
  return blocks[rank].shared + (static_cast<char*>(at) - current_block->shared);
}

void later(unsigned rank, std::function<void()> act) { messages.push_back({&blocks.at(rank), std::move(act)}); }

void wait_until(const std::function<bool()>& done, const Place& place) {
  current->place = place;
  current->awaited = &done;
  wait_as(State::awaiting);
}

const Brought* exchange(unsigned lanes, const Brought& mine, int kind, const Place& place) {
  current->place = place;
  current->kind = kind;
  current->lanes = lanes;
  current->brought = mine;
  const unsigned warp = (current_block->first + threadIdx.x) / kLanes;
  wait_as(State::exchanging);
  return exchanged[warp].data();
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

// From a large one to one so small that almost nothing finds room on chip; some without clusters.
constexpr Device devices[] = {
    {0, 232448, 132, 16}, {1, 20480, 2, 1}, {2, 101376, 28, 8}, {3, 20480, 84, 16}, {4, 49152, 6, 2}};
std::size_t turn = 0;

}  // namespace

Device device() {
  static const char* only = std::getenv("REGCCRF_EMULATED_DEVICE");
  return devices[(only ? static_cast<std::size_t>(std::atoi(only)) : turn) % std::size(devices)];
}

void take_next_device() { ++turn; }

}  // namespace emulated
