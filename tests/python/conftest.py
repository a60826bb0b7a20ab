import os
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")  # tests are small; threads that wait for each other only slow them down
sys.path.insert(0, os.path.dirname(__file__))
