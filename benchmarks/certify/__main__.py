"""``python -m benchmarks.certify --growth PICTURE``."""

import argparse
import os

from .others import growth

parser = argparse.ArgumentParser(prog="python -m benchmarks.certify")
parser.add_argument("--growth", metavar="PICTURE", required=True)
os.environ.setdefault("OMP_NUM_THREADS", "1")
growth(parser.parse_args().growth)
