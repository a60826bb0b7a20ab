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

cuda::Expectation wanted(Address value, Address emissions, Address transitions, Address status, Address gold) {
  return {at<double>(value), at(emissions), at(transitions), at<cuda::Status>(status), at<const std::int64_t>(gold)};
}

cuda::Samples samples(std::int32_t count, std::uint64_t seed, double temperature, Address ids, Address labels,
                      Address status) {
  return {count, seed, temperature, at<const std::uint64_t>(ids), at<std::int32_t>(labels), at<cuda::Status>(status)};
}

cuda::Entropy entropies(Address value, Address emissions, Address transitions, Address status) {
  return {at<double>(value), at(emissions), at(transitions), at<cuda::Status>(status)};
}

cuda::Loss loss_of(Address value, Address status, double sign, int reduction, int left_out, int type, Address out,
                   Address scale, int errors, std::int32_t operation, Address failure, Address numbers) {
  return {at<const double>(value),
          at<const cuda::Status>(status),
          sign,
          static_cast<cuda::Reduction>(reduction),
          static_cast<cuda::LeftOut>(left_out),
          static_cast<cuda::Type>(type),
          at(out),
          at<double>(scale),
          static_cast<cuda::Errors>(errors),
          operation,
          at<cuda::Failure>(failure),
          at<const std::int64_t>(numbers)};
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

void bind_loss(py::module_& module) {
  module.def("cuda_reduce", [](std::int64_t size, Address value, Address status, double sign, int reduction,
                               int left_out, int type, Address out, Address scale, int errors, std::int32_t operation,
                               Address failure, Address numbers, Address stream) {
    cuda::reduce(
        size, loss_of(value, status, sign, reduction, left_out, type, out, scale, errors, operation, failure, numbers),
        at(stream));
  });
  module.def("cuda_weigh",
             [](const cuda::Batch& batch, std::int32_t labels, Address weights, std::int64_t stride, int weights_type,
                Address scale, Address status, Address emissions_counts, Address transitions_counts, Address emissions,
                Address transitions, Address start, Address end, Address stream) {
               const cuda::Weighing weighing{at(weights),
                                             stride,
                                             static_cast<cuda::Type>(weights_type),
                                             at<const double>(scale),
                                             at<const cuda::Status>(status),
                                             at(emissions_counts),
                                             at(transitions_counts),
                                             at(emissions),
                                             at(transitions),
                                             at(start),
                                             at(end)};
               cuda::weigh(batch, labels, weighing, at(stream));
             });
}

}  // namespace

void bind_cuda(py::module_& module) {
  using cuda::Batch, cuda::DeviceConstraint, cuda::Memory;
  bind_batch(module);
  bind_loss(module);
  module.def("cuda_built", &cuda::built);
  module.def("cuda_available", &cuda::available);
  module.def("cuda_expectation_bytes", [](const DeviceConstraint& constraint, const Batch& batch, Address value,
                                          Address emissions, Address transitions, Address status, Address gold) {
    return cuda::expectation_bytes(constraint, batch, wanted(value, emissions, transitions, status, gold));
  });
  module.def(
      "cuda_expectation",
      [](const DeviceConstraint& constraint, const Batch& batch, Address value, Address emissions, Address transitions,
         Address status, Address gold, Address memory, std::size_t bytes, double sign, int reduction, int left_out,
         int type, Address out, Address scale, int errors, std::int32_t operation, Address failure, Address numbers,
         Address stream) {
        const cuda::Loss loss =
            loss_of(value, status, sign, reduction, left_out, type, out, scale, errors, operation, failure, numbers);
        cuda::expectation(constraint, batch, wanted(value, emissions, transitions, status, gold),
                          Memory{at(memory), bytes}, at(stream), &loss);
      },
      Unlocked());
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
  module.def("cuda_entropy_bytes", [](const DeviceConstraint& constraint, const Batch& batch, Address value,
                                      Address emissions, Address transitions, Address status) {
    return cuda::entropy_bytes(constraint, batch, entropies(value, emissions, transitions, status));
  });
  module.def(
      "cuda_entropy",
      [](const DeviceConstraint& constraint, const Batch& batch, Address value, Address emissions, Address transitions,
         Address status, Address memory, std::size_t bytes, Address stream) {
        cuda::entropy(constraint, batch, entropies(value, emissions, transitions, status), Memory{at(memory), bytes},
                      at(stream));
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
