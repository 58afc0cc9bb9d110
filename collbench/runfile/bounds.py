"""What a result of a run file may claim: a size that memory can have, a time that can pass; all else is set aside."""

import math
from collections.abc import Iterable

from collbench.host.sanitize import text
from collbench.measurement import Explanation, Measurement, Prediction, Reported, Result
from collbench.planned import Pipeline, PlannedStep
from collbench.step_times import StepPrediction, StepTimes
from collbench.tracks import PARTS
from collbench.trained import Trained

LARGEST = 2**62  # bytes of a message
MOST = 2**30  # ranks
FASTEST, SLOWEST = 1e-15, 1e9  # seconds; whatever an operation takes lies between
STAGES, MICRO_BATCHES = 2**20, 2**30  # of a pipeline; as many chunks as stages
BEST = 10.0  # of a GPU's data sheet that a plan may claim to use: no more than another precision's rate
DEAREST, LONGEST = 1e9, 1e30  # money for an hour of a GPU; tokens of a run


def oddity(result: Result) -> str:
    """Why nothing can be reckoned with this result; empty if all is well, and for those that claim no number."""
    if isinstance(result, Measurement | StepTimes) and not result.seconds and not result.wrong:
        return "it was checked, and not timed"
    if isinstance(result, Reported) and not any(result.times):
        return "a time that is none: zero"
    return impossible(result)


def impossible(result: Result) -> str:
    """What no case can have and no operation take, in words; empty where every number could be true."""
    case = result.case
    if not (0 <= case.nbytes <= LARGEST and 1 <= case.ranks <= MOST):
        sizes = f"{shown(case.nbytes)} bytes, {shown(case.ranks)} ranks"
        return f"no size and number of ranks: {sizes}; at most 2**62 bytes and from 1 to 2**30 ranks are possible"
    if not 0 <= case.root < case.ranks:
        return f"no rank to be the root: {shown(case.root)}; choose from 0 to {case.ranks - 1}"
    if not all(FASTEST < duration < SLOWEST for duration in _times(result)):
        return "a time that is none: zero, negative, not finite or beyond all bounds (1e-15 to 1e9 s)"
    if isinstance(result, PlannedStep):
        return _unplanned(result)
    return _unexplained(result) if isinstance(result, Explanation) else ""


def shown(number: int) -> str:
    """A whole number of any length, cut."""
    return text(str(number), 24) if abs(number) < 10**300 else f"about 2**{number.bit_length()}"


def _times(result: Result) -> Iterable[float]:
    """Those that the result claims."""
    if isinstance(result, Measurement):
        return (*result.seconds, *([] if result.estimate is None else [result.estimate]))
    if isinstance(result, StepTimes):
        return result.times
    if isinstance(result, PlannedStep):
        return result.typical, result.high
    if isinstance(result, StepPrediction):
        return (result.low, result.typical, result.high)
    if isinstance(result, Reported):
        return result.times if any(result.times) else ()
    if isinstance(result, Trained):
        return (result.seconds,) if result.points else ()
    if isinstance(result, Prediction):
        return result.low, result.seconds, result.high
    return (result.seconds, result.traced) if isinstance(result, Explanation) else ()


def _unexplained(result: Explanation) -> str:
    spent = [seconds for track in result.tracks for seconds in (track.seconds, *track.spent.values())]
    right = all(math.isfinite(duration) and 0 <= duration < SLOWEST for duration in spent)
    if result.tracks and right and not sum(map(result.spent, PARTS)) > 0:
        return "its log holds no time at all"
    return "" if right else "its log holds a time that is none"


def _unplanned(result: PlannedStep) -> str:
    if not all(0 <= seconds < SLOWEST for seconds in (result.low, *result.parts.values())):
        return "a part of the step that is no time"
    if not 0 < result.capacity <= LARGEST or not all(0 <= part <= LARGEST for part in result.memory.values()):
        return "a part of the memory that is no size, or a capacity that is none"
    if not (0 < result.tokens <= LONGEST and 0 <= result.total <= LONGEST and 0 <= result.price <= DEAREST):
        return "a number of tokens, or a price, that is none"
    if not 0 <= result.utilisation <= BEST:
        return "a utilisation that is none"
    return _unpiped(result.pipeline)


def _unpiped(pipeline: Pipeline) -> str:
    counts = (pipeline.stages, STAGES), (pipeline.chunks, STAGES), (pipeline.micro_batches, MICRO_BATCHES)
    if not all(1 <= count <= most for count, most in counts):
        return "a pipeline with a number of stages, chunks or micro-batches that cannot be"
    seconds = pipeline.forward, pipeline.backward, pipeline.weights
    if not all(0 <= one < SLOWEST for one in seconds) or pipeline.weights > pipeline.backward:
        return "a pipeline with a time that is none"
    return ""
