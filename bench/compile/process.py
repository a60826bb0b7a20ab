"""One run of `regccrf compile` in a process of its own, and what the system says that it took."""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MOST_SECONDS = 6  # of the processor; a run that takes longer is stopped, and counts as one that ends in an error
# A parent's own memory counts as its child's until that starts its program, so a small process starts it.
STARTER = """
import os, resource, sys, time
resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
resource.setrlimit(resource.RLIMIT_CPU, (%d, %d))
start = time.monotonic()
child = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ)
_, status, usage = os.wait4(child, 0)
elapsed = time.monotonic() - start
print("\\n{} {} {} {}".format(os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime, elapsed, usage.ru_maxrss))
""" % (MOST_SECONDS, MOST_SECONDS)


def compiled(program, path, *options):
    """Of one run: states (None where it ends in an error), seconds of the processor and by the clock, megabytes, the answer."""
    command = [sys.executable, "-I", "-S", "-c", STARTER, str(program), "compile", "--json", str(path), *options]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    answer, _, usage = run.stdout.rstrip("\n").rpartition("\n")
    code, seconds, elapsed, kilobytes = usage.split()
    facts = json.loads(answer) if code == "0" else {}
    return {"states": facts.get("states"), "arcs": facts.get("arcs"), "rules": facts.get("rules", 0), "seconds": float(seconds),
            "elapsed": float(elapsed), "megabytes": int(kilobytes) * 1024 / 1e6, "error": run.stderr.strip()}


def with_file(pattern, work):
    if pattern.endswith(".lang"):
        return work(ROOT / pattern)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pattern.lang"
        path.write_text(pattern if "language =" in pattern else f"language = {pattern}\n")
        return work(path)
