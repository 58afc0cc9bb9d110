"""What papers say in one formula, written down from them and not from the planner.

Names of variables are the papers': L layers, h hidden, a heads, s sequence, V words, b samples of a micro-batch,
t tensor-parallel GPUs, p stages, v chunks of a stage, m micro-batches, d replicas, n GPUs of a group, psi parameters.
"""

from statistics import NormalDist

# ruff: noqa: N803
PUBLISHED = {  # billions of parameters, and of those that a token meets where there are experts
    # Radford et al. 2019, as corrected in github.com/openai/gpt-2; Brown et al. 2020, table 2.1
    "gpt2-small": (0.124, None), "gpt2-medium": (0.355, None), "gpt2-large": (0.774, None), "gpt2-xl": (1.558, None),
    "gpt3-1.3b": (1.3, None), "gpt3-6.7b": (6.7, None), "gpt3-13b": (13.0, None), "gpt3-175b": (175.0, None),
    # Narayanan et al. 2021, table 1
    "megatron-1.7b": (1.7, None), "megatron-3.6b": (3.6, None), "megatron-7.5b": (7.5, None),
    "megatron-18b": (18.4, None), "megatron-39b": (39.1, None), "megatron-76b": (76.1, None),
    "megatron-145b": (145.6, None), "megatron-310b": (310.1, None), "megatron-530b": (529.6, None),
    "megatron-1t": (1008.0, None),
    # files of weights: llama2-7b has 6,738,415,616
    "llama2-7b": (6.738, None), "llama2-13b": (13.016, None), "llama2-70b": (68.977, None),
    "llama3-8b": (8.030, None), "llama3-70b": (70.554, None), "llama3-405b": (405.853, None),
    # Meta's model card: 109B, 17B active, with its part for images; arXiv:2401.04088: 47B, 13B active; arXiv:2505.09388
    "llama4-scout": (107.8, 17.2), "llama4-maverick": (400.7, 17.2), "mixtral-8x7b": (46.70, 12.88),
    "mixtral-8x22b": (140.6, 39.15), "qwen3-235b": (235.1, 22.2),
}  # fmt: skip


def gpt_parameters(L: int, h: int, V: int, s: int) -> float:
    """Narayanan et al. 2021, arXiv:2104.04473, equation 2; without the last norm, which is 2 h."""
    return 12 * L * h**2 * (1 + 13 / (12 * h) + (V + s) / (12 * L * h))


def gpt_flops(L: int, h: int, V: int, s: int, B: int, recomputed: bool) -> float:
    """Of a step of B samples; the same paper, equation 3 counts the forward pass of the layers twice."""
    if recomputed:
        return 96 * B * s * L * h**2 * (1 + s / (6 * h) + V / (16 * L * h))
    return 72 * B * s * L * h**2 * (1 + s / (6 * h) + V / (12 * L * h))


def zero_bytes(stage: int, psi: float, d: int, K: int = 12) -> float:
    """Of weights, gradients and Adam's states; Rajbhandari et al. 2020, arXiv:1910.02054, figure 1."""
    return (16 * psi, 4 * psi + K * psi / d, 2 * psi + (2 + K) * psi / d, (4 + K) * psi / d)[stage]


def layer_activations(s: int, b: int, h: int, a: int, t: int, kind: str) -> float:
    sbh, scores = s * b * h, 5 * a * s / h
    return {
        "tensor": sbh * (10 + 24 / t + scores / t),
        "sequence": sbh * (34 + scores) / t,
        "tensor, selective": sbh * (10 + 24 / t),
        "sequence, selective": sbh * 34 / t,
        "full": 2.0 * sbh,
        "sequence, full": 2.0 * sbh / t,  # each GPU keeps its part of the input
    }[kind]


def layers_in_flight(L: int, p: int, v: int) -> float:
    return L * (1 + (p - 1) / (p * v)) if v > 1 else float(L)


def end_activations(s: int, b: int, h: int, V: int, t: int) -> float:
    """Of norm, output and loss, and of dropout behind the embedding, on one stage; equation 5 and text below."""
    return s * b * h / t + 4 * s * b * h / t * (1 + V / h)


def bus_factor(collective: str, n: int) -> float:
    if n == 1:
        return 0.0
    return {"allreduce": 2 * (n - 1) / n, "sendrecv": 1.0}.get(collective, (n - 1) / n)


def bubble_share(p: int, v: int, m: int) -> float:
    """Of the step that a stage waits; Narayanan et al. 2021, section 2.2: over ideal time it is (p-1)/(v m)."""
    return (p - 1) / (v * m + p - 1)


def zero_bubble(p: int, forward: float, backward: float, weights: float) -> float:
    return (p - 1) * (forward + backward - weights)


def slowest_of(n: int, deviation: float) -> float:
    """By how much the largest of n draws lies above the mean; Blom 1958: alpha = 3/8."""
    return deviation * NormalDist().inv_cdf((n - 3 / 8) / (n + 1 / 4)) if n > 1 else 0.0
