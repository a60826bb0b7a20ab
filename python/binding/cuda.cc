// Inference on a device: addresses of device memory and a stream come from the Python side, which keeps the tensors
// alive and makes their device the current one. Nothing waits, except where a constraint goes to the device.
// regccrf/_torch_cuda.py is the user.
#include "regccrf/cuda.h"

#include <algorithm>
#include <cstdint>

#include "bind.h"

namespace py = pybind11;

namespace regccrf::python {
namespace {

using Address = std::uintptr_t;  // 0: not there
using Unlocked = py::call_guard<py::gil_scoped_release>;

template <class T = void>
T* at(Address address) {
  return reinterpret_cast<T*>(address);
}

cuda::Samples samples(std::int32_t count, std::uint64_t seed, double temperature, Address ids, Address labels,
                      Address status) {
  return {count, seed, temperature, at<const std::uint64_t>(ids), at<std::int32_t>(labels), at<cuda::Status>(status)};
}

// Losses of batches of one shape: the batch without addresses, and how what a loss leaves for its gradients lies in one
// piece of memory, as _torch_cuda.py says.
struct Losses {
  cuda::Batch batch;
  std::int32_t labels;
  std::size_t status_at, value_at, counts_at, bigrams_at;  // scale is at 0; of counts and bigrams 0: not wanted

  cuda::Expectation expectation(Address kept, Address gold) const {
    return {at<double>(kept + value_at), at(counts_at ? kept + counts_at : 0), at(bigrams_at ? kept + bigrams_at : 0),
            at<cuda::Status>(kept + status_at), at<const std::int64_t>(gold)};
  }
  cuda::Entropy entropy(Address kept) const {
    const cuda::Expectation e = expectation(kept, 0);
    return {e.value, e.emissions, e.transitions, e.status};
  }
  cuda::Curvature curvature(Address kept, Address gold, const cuda::Direction& direction) const {
    const cuda::Expectation e = expectation(kept, gold);
    return {direction, e.status, e.gold, e.value, e.emissions, e.transitions};
  }
  cuda::Batch with(Address emissions, Address transitions, Address start, Address end, Address mask) const {
    cuda::Batch whole = batch;
    whole.emissions = at(emissions ? emissions : transitions);  // without positions, something that is never read
    whole.transitions = at(transitions);
    whole.start = at(start), whole.end = at(end), whole.mask = at<const std::uint8_t>(mask);
    return whole;
  }
};

constexpr Address kSomewhere = 256;

std::size_t loss_bytes(const Losses& losses, const cuda::DeviceConstraint& constraint, bool entropy, bool gold) {
  if (losses.batch.size == 0) return 0;
  return entropy
             ? cuda::entropy_bytes(constraint, losses.batch, losses.entropy(kSomewhere))
             : cuda::expectation_bytes(constraint, losses.batch, losses.expectation(kSomewhere, gold ? kSomewhere : 0));
}

void compute(const Losses& losses, const cuda::DeviceConstraint& constraint, Address emissions, Address transitions,
             Address start, Address end, Address mask, Address gold, bool entropy, double sign, int reduction,
             int left_out, int type, int errors, std::int32_t operation, Address failure, Address numbers, Address out,
             Address kept, Address memory, std::size_t bytes, Address stream) {
  const cuda::Batch batch = losses.with(emissions, transitions, start, end, mask);
  const cuda::Loss loss{at<const double>(kept + losses.value_at),
                        at<const cuda::Status>(kept + losses.status_at),
                        sign,
                        static_cast<cuda::Reduction>(reduction),
                        static_cast<cuda::LeftOut>(left_out),
                        static_cast<cuda::Type>(type),
                        at(out),
                        at<double>(kept),
                        static_cast<cuda::Errors>(errors),
                        operation,
                        at<cuda::Failure>(failure),
                        at<const std::int64_t>(numbers)};
  const cuda::Memory there{at(memory), bytes};
  if (!entropy) return cuda::expectation(constraint, batch, losses.expectation(kept, gold), there, at(stream), &loss);
  cuda::entropy(constraint, batch, losses.entropy(kept), there, at(stream));
  cuda::reduce(batch.size, loss, at(stream));
}

std::size_t curvature_bytes(const Losses& losses, const cuda::DeviceConstraint& constraint) {
  if (losses.batch.size == 0) return 0;
  return cuda::curvature_bytes(constraint, losses.batch, losses.curvature(kSomewhere, 0, {}));
}

// `kept` holds scale and status already.
void curvature(const Losses& losses, const cuda::DeviceConstraint& constraint, Address emissions, Address transitions,
               Address start, Address end, Address mask, Address gold, Address along_emissions,
               Address along_transitions, Address along_start, Address along_end, Address kept, Address memory,
               std::size_t bytes, Address stream) {
  const cuda::Batch batch = losses.with(emissions, transitions, start, end, mask);
  const cuda::Direction direction{at(along_emissions), at(along_transitions), at(along_start), at(along_end)};
  cuda::curvature(constraint, batch, losses.curvature(kept, gold, direction), {at(memory), bytes}, at(stream));
}

void weigh(const Losses& losses, Address weights, std::int64_t stride, int weights_type, Address kept, Address mask,
           Address emissions, Address transitions, Address start, Address end, Address stream) {
  cuda::Batch batch = losses.batch;
  batch.mask = at<const std::uint8_t>(mask);
  const cuda::Expectation found = losses.expectation(kept, 0);
  const cuda::Weighing weighing{at(weights),
                                stride,
                                static_cast<cuda::Type>(weights_type),
                                at<const double>(kept),
                                found.status,
                                found.emissions,
                                found.transitions,
                                at(emissions),
                                at(transitions),
                                at(start),
                                at(end)};
  cuda::weigh(batch, losses.labels, weighing, at(stream));
}

// Host memory [rows, width] as lists; a row ends at its first negative number.
py::list label_lists(Address address, std::int64_t rows, std::int64_t width) {
  py::list lists(static_cast<std::size_t>(rows));
  for (std::int64_t i = 0; i < rows; ++i) {
    const auto* row = at<const std::int32_t>(address) + i * width;
    const auto length = std::find_if(row, row + width, [](std::int32_t label) { return label < 0; }) - row;
    py::list labels(static_cast<std::size_t>(length));
    for (std::int64_t t = 0; t < length; ++t) PyList_SET_ITEM(labels.ptr(), t, PyLong_FromLong(row[t]));
    PyList_SET_ITEM(lists.ptr(), i, labels.release().ptr());
  }
  return lists;
}

// The first of `size` statuses in host memory that is not fine; -1: all are.
std::int64_t first_not_fine(Address address, std::int64_t size) {
  const auto* status = at<const cuda::Status>(address);
  const auto* found = std::find_if(status, status + size, [](const cuda::Status& s) { return s.outcome != 0; });
  return found == status + size ? -1 : found - status;
}

void bind_batch(py::module_& module) {
  py::class_<cuda::Batch>(module, "CudaBatch")
      .def(py::init([](std::int64_t size, std::int64_t length, std::int64_t batch_stride, std::int64_t time_stride,
                       int emissions_type, int type, Address emissions, Address transitions, Address start, Address end,
                       Address mask) {
        return cuda::Batch{size,
                           length,
                           batch_stride,
                           time_stride,
                           static_cast<cuda::Type>(emissions_type),
                           static_cast<cuda::Type>(type),
                           at(emissions),
                           at(transitions),
                           at(start),
                           at(end),
                           at<const std::uint8_t>(mask)};
      }));
  py::class_<cuda::DeviceConstraint>(module, "DeviceConstraint").def(py::init<const Constraint&>(), Unlocked());
}

void bind_losses(py::module_& module) {
  py::class_<Losses>(module, "CudaLosses")
      .def(py::init([](std::int64_t size, std::int64_t length, std::int64_t batch_stride, std::int64_t time_stride,
                       std::int32_t labels, int emissions_type, int type, std::size_t status, std::size_t value,
                       std::size_t counts, std::size_t bigrams) {
        cuda::Batch batch{size, length, batch_stride, time_stride};
        batch.emissions_type = static_cast<cuda::Type>(emissions_type), batch.type = static_cast<cuda::Type>(type);
        return Losses{batch, labels, status, value, counts, bigrams};
      }))
      .def("bytes", &loss_bytes)
      .def("compute", &compute, Unlocked())
      .def("curvature_bytes", &curvature_bytes)
      .def("curvature", &curvature, Unlocked())
      .def("weigh", &weigh);
}

}  // namespace

void bind_cuda(py::module_& module) {
  using cuda::Batch, cuda::DeviceConstraint, cuda::Memory;
  bind_batch(module);
  bind_losses(module);
  module.def("cuda_built", &cuda::built);
  module.def("cuda_available", &cuda::available);
  module.def("cuda_viterbi_bytes", &cuda::viterbi_bytes);
  module.def(
      "cuda_viterbi",
      [](const DeviceConstraint& constraint, const Batch& batch, Address labels, Address score, Address status,
         Address memory, std::size_t bytes, Address stream) {
        cuda::viterbi(constraint, batch, {at<std::int32_t>(labels), at<double>(score), at<cuda::Status>(status)},
                      Memory{at(memory), bytes}, at(stream));
      },
      Unlocked());
  module.def("cuda_k_best_bytes", [](const DeviceConstraint& constraint, const Batch& batch, std::int32_t k) {
    return cuda::k_best_bytes(constraint, batch, {k, nullptr, nullptr, nullptr});
  });
  module.def(
      "cuda_k_best",
      [](const DeviceConstraint& constraint, const Batch& batch, std::int32_t k, Address labels, Address score,
         Address status, Address memory, std::size_t bytes, Address stream) {
        cuda::k_best(constraint, batch, {k, at<std::int32_t>(labels), at<double>(score), at<cuda::Status>(status)},
                     Memory{at(memory), bytes}, at(stream));
      },
      Unlocked());
  module.def("cuda_sample_bytes", [](const DeviceConstraint& constraint, const Batch& batch, std::int32_t count) {
    return cuda::sample_bytes(constraint, batch, samples(count, 0, 1, 0, 0, 0));
  });
  module.def(
      "cuda_sample",
      [](const DeviceConstraint& constraint, const Batch& batch, std::int32_t count, std::uint64_t seed,
         double temperature, Address ids, Address labels, Address status, Address memory, std::size_t bytes,
         Address stream) {
        cuda::sample(constraint, batch, samples(count, seed, temperature, ids, labels, status),
                     Memory{at(memory), bytes}, at(stream));
      },
      Unlocked());
  module.def("status_message",
             [](const char* operation, const Constraint& constraint, std::int64_t sequence, std::int32_t outcome,
                std::int32_t position, std::int32_t label, std::int32_t length) {
               return cuda::status_message(operation, constraint, sequence, {outcome, position, label, length});
             });
  module.def("label_lists", &label_lists);
  module.def("first_not_fine", &first_not_fine);
}

}  // namespace regccrf::python
