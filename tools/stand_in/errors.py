"""Errors of the simulated CUDA, with the names, words and types of CuPy's own.

Held against CuPy 14.2 (cupy_backends/cuda/api/runtime.pyx and driver.pyx, cupy/cuda/compiler.py).
CuPy's driver and NVRTC errors are RuntimeErrors; a source that NVRTC refuses is a plain Exception.
"""

RUNTIME = {
    1: ("cudaErrorInvalidValue", "invalid argument"),
    2: ("cudaErrorMemoryAllocation", "out of memory"),
    100: ("cudaErrorNoDevice", "no CUDA-capable device is detected"),
    101: ("cudaErrorInvalidDevice", "invalid device ordinal"),
    217: ("cudaErrorPeerAccessUnsupported", "peer access is not supported between these two devices"),
    400: ("cudaErrorInvalidResourceHandle", "invalid resource handle"),
    401: ("cudaErrorIllegalState", "the operation cannot be performed in the present state"),
    600: ("cudaErrorNotReady", "device not ready"),
    700: ("cudaErrorIllegalAddress", "an illegal memory access was encountered"),
    704: ("cudaErrorPeerAccessAlreadyEnabled", "peer access is already enabled"),
    711: ("cudaErrorTooManyPeers", "peer mapping resources exhausted"),
    801: ("cudaErrorNotSupported", "operation not supported"),
    900: ("cudaErrorStreamCaptureUnsupported", "operation not permitted when stream is capturing"),
    902: ("cudaErrorStreamCaptureMerge", "operation would result in a merge of separate capture sequences"),
    903: ("cudaErrorStreamCaptureUnmatched", "capture was not ended in the same stream as it began"),
    904: ("cudaErrorStreamCaptureUnjoined", "capturing stream has unjoined work"),
    905: ("cudaErrorStreamCaptureIsolation", "dependency created on uncaptured work in another stream"),
    907: ("cudaErrorCapturedEvent", "operation not permitted on an event last recorded in a capturing stream"),
}
DRIVER = {
    1: ("CUDA_ERROR_INVALID_VALUE", "invalid argument"),
    209: ("CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"),
    222: ("CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "the provided PTX was compiled with an unsupported toolchain."),
    400: ("CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"),
    500: ("CUDA_ERROR_NOT_FOUND", "named symbol not found"),
}
INVALID, OUT_OF_MEMORY, NO_DEVICE, NOT_A_DEVICE, NO_PEER, BAD_HANDLE = 1, 2, 100, 101, 217, 400
ILLEGAL_STATE, NOT_READY, ILLEGAL_ADDRESS, ALREADY_ENABLED, TOO_MANY_PEERS, NOT_SUPPORTED = 401, 600, 700, 704, 711, 801
CAPTURING, MERGE, UNMATCHED, UNJOINED, ISOLATION, CAPTURED_EVENT = 900, 902, 903, 904, 905, 907
NO_BINARY, OLD_DRIVER, NOT_FOUND = 209, 222, 500  # the driver's


class CUDARuntimeError(RuntimeError):
    def __init__(self, status: int) -> None:
        self.status = status
        super().__init__(": ".join(RUNTIME[status]))


class CUDADriverError(RuntimeError):
    def __init__(self, status: int) -> None:
        self.status = status
        super().__init__(": ".join(DRIVER[status]))


class CompileException(Exception):
    """Its text is the compiler's log, of many lines."""

    def __init__(self, msg: str, source: str, name: str, options: tuple[str, ...], backend: str = "nvrtc") -> None:
        super().__init__()
        self._msg, self.source, self.name, self.options, self.backend = msg, source, name, options, backend

    def __str__(self) -> str:
        return self._msg
