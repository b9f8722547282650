"""`python -m tests.peers`: compare the engines on one thread and write the record."""

import os

# Libraries read these when they are loaded. The OpenBLAS settings would give NumPy other kernels than a reader has.
for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"
for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
    os.environ.pop(name, None)

from tests.peers.compare import main  # noqa: E402

main()
