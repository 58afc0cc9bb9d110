"""What helps against what CuPy, NVRTC or the driver refuse: by their own words, in one line."""

import re

_NVRTC = "nvidia-cuda-nvrtc-cu12 (for CUDA 13: nvidia-cuda-nvrtc)"
_HEADERS = "nvidia-cuda-runtime-cu12 (for CUDA 13: nvidia-cuda-runtime)"
_CUBLAS = "nvidia-cublas-cu12 (for CUDA 13: nvidia-cublas)"
CACHE = "set CUPY_CACHE_DIR (and TMPDIR) to folders that can be written"
_MISMATCH = f"update the driver, or pip install --upgrade {_NVRTC}"
_CURES = {  # by words of CuPy, NVRTC or the driver
    "--gpu-architecture": f"it does not know this GPU (sm_70: CUDA 12's does): pip install --upgrade {_NVRTC}",
    "libnvrtc": f"it compiles the kernels: pip install {_NVRTC}",
    "libcublas": f"matrix products need it: pip install {_CUBLAS}",
    "CUDA root directory": f"CuPy looks for CUDA's headers: pip install {_HEADERS}",
    "open source file": f"CUDA's headers are missing: pip install {_HEADERS}",
    "cudaErrorInsufficientDriver": "update the driver (`nvidia-smi` shows up to which CUDA it goes)",
    "CUDA_ERROR_NO_BINARY_FOR_GPU": _MISMATCH,
    "CUDA_ERROR_UNSUPPORTED_PTX_VERSION": _MISMATCH,
    "CUDA_ERROR_INVALID_PTX": _MISMATCH,
    "CUDA_ERROR_JIT_COMPILER_NOT_FOUND": _MISMATCH,
    "CUDA_ERROR_INVALID_IMAGE": _MISMATCH,
}

_COMPLAINT = re.compile(r"\b(error|fatal)\s*:")  # of NVRTC, among warnings and lines of the source


def cure(reason: str) -> str:
    """What helps; "" where nobody knows."""
    return next((fix for words, fix in _CURES.items() if words in reason), "")


def why(error: Exception) -> str:
    """What CuPy, NVRTC or the driver said, in one line, and what helps."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    plain = isinstance(error, RuntimeError | OSError)  # CuPy's and CUDA's own errors begin with what is wrong
    reason = next((line for line in lines if not plain and _COMPLAINT.search(line)), lines[0]).strip()
    fix = cure(reason) or (CACHE if isinstance(error, OSError) else "")
    return f"{reason}: {fix}" if fix else reason
