"""How time is taken on a device, and what is said about many times."""

import math
import statistics
import time

import torch


class Clock:
    """How time is taken on a device, and how much of it is left."""

    def __init__(self, device, seconds):
        self.cuda, self.end = device == "cuda", time.perf_counter() + seconds

    def late(self):
        return time.perf_counter() > self.end

    def wait(self):
        if self.cuda:
            torch.cuda.synchronize()

    def once(self, call):
        """Microseconds of a call, the device's work included."""
        self.wait()
        begin = time.perf_counter()
        call()
        self.wait()
        return 1e6 * (time.perf_counter() - begin)

    def sample(self, call, seconds=0.25, most=300):
        """Microseconds of a call, as often as fits. The first counts where it is a slow one."""
        first = self.once(call)
        if first > 2e6 * seconds:
            return [first]
        return [self.once(call) for _ in range(max(3, min(most, int(1e6 * seconds / first))))]

    def rounds(self, calls, count=12, each=25, seconds=0.02):
        """Microseconds of many calls, {key: call}, in rounds: a host that is slow for a while is so for all of them. In a round each is
        called a few times that do not count, as a sleeping thread lets its processor sleep too, then `each` times or as often as fits.
        In the place of a call's times may stand why there are none."""
        times = {key: [] for key in calls}

        def some(call):
            first = min(self.once(call) for _ in range(3))
            return [self.once(call) for _ in range(max(1, min(each, int(1e6 * seconds / first))))]
        for round in range(count):
            if self.late() and round:
                break
            for key, call in calls.items():
                if isinstance(times[key], list):
                    found = attempt(lambda: some(call))
                    times[key] = times[key] + found if isinstance(found, list) else found
        return times

    def device(self, call, inside=5, repeats=15):
        """Median microseconds of device time: replays of a graph that holds several calls."""
        if not self.cuda:
            return None
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            call()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(inside):
                call()
        graph.replay()
        times = []
        for _ in range(repeats):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            times.append(1e3 * begin.elapsed_time(end) / inside)
        return statistics.median(times)


def attempt(call):
    """The call's answer, or why there is none."""
    try:
        return call()
    except torch.cuda.OutOfMemoryError:
        torch.cuda.empty_cache()
        return "out of memory"
    except Exception as error:  # another library's limits
        return f"{type(error).__name__}: {str(error).splitlines()[0][:100] if str(error) else ''}"


def middle(name, values):
    """The median, and beside it the quartiles; or why there are none."""
    if isinstance(values, str):
        return {name: values}
    values = sorted(values)
    return {name: statistics.median(values), f"{name}_quartiles": [values[len(values) // 4], values[-1 - len(values) // 4]]} if values else {}


def interval(values):
    """95 % for the median of whatever the values are drawn from: two of them, by their ranks."""
    values, n = sorted(values), len(values)
    low = max(0, int((n - 1.96 * math.sqrt(n)) / 2) - 1)
    return [values[low], values[n - 1 - low]]
