"""Known models, a record each, with the paper or configuration that they are from."""

from typing import Any

from collbench.planner.models import Model


def _gpt(
    name: str, layers: int, hidden: int, heads: int, sequence: int = 2048, vocabulary: int = 51200, trained: float = 0.0
) -> Model:
    return Model(name, layers, hidden, heads, sequence=sequence, vocabulary=vocabulary, trained=trained)


def _llama(
    name: str, layers: int, hidden: int, heads: int, kv: int, ffn: int, sequence: int, words: int, **more: Any
) -> Model:
    return Model(name, layers, hidden, heads, kv, ffn, sequence, words, gated=True, **more)


_PRESETS = (
    # Radford et al., 2019, table 2; 50,257 words are padded to 50,304.
    _gpt("gpt2-small", 12, 768, 12, 1024, 50304),
    _gpt("gpt2-medium", 24, 1024, 16, 1024, 50304),
    _gpt("gpt2-large", 36, 1280, 20, 1024, 50304),
    _gpt("gpt2-xl", 48, 1600, 25, 1024, 50304),
    # Brown et al., 2020, table 2.1: 300 billion tokens.
    _gpt("gpt3-1.3b", 24, 2048, 16, trained=300e9),
    _gpt("gpt3-6.7b", 32, 4096, 32, trained=300e9),
    _gpt("gpt3-13b", 40, 5120, 40, trained=300e9),
    _gpt("gpt3-175b", 96, 12288, 96, trained=300e9),
    # Narayanan et al., 2021 (arXiv:2104.04473), table 1; section 5.1 trains the last one on 450 billion tokens.
    _gpt("megatron-1.7b", 24, 2304, 24),
    _gpt("megatron-3.6b", 30, 3072, 32),
    _gpt("megatron-7.5b", 36, 4096, 32),
    _gpt("megatron-18b", 40, 6144, 48),
    _gpt("megatron-39b", 48, 8192, 64),
    _gpt("megatron-76b", 60, 10240, 80),
    _gpt("megatron-145b", 80, 12288, 96),
    _gpt("megatron-310b", 96, 16384, 128),
    _gpt("megatron-530b", 105, 20480, 128),
    _gpt("megatron-1t", 128, 25600, 160, trained=450e9),
    # Touvron et al., 2023 (arXiv:2307.09288), and the published configurations.
    _llama("llama2-7b", 32, 4096, 32, 32, 11008, 4096, 32000, trained=2e12),
    _llama("llama2-13b", 40, 5120, 40, 40, 13824, 4096, 32000, trained=2e12),
    _llama("llama2-70b", 80, 8192, 64, 8, 28672, 4096, 32000, trained=2e12),
    # Grattafiori et al., 2024 (arXiv:2407.21783), table 3.
    _llama("llama3-8b", 32, 4096, 32, 8, 14336, 8192, 128256, trained=15e12),
    _llama("llama3-70b", 80, 8192, 64, 8, 28672, 8192, 128256, trained=15e12),
    _llama("llama3-405b", 126, 16384, 128, 8, 53248, 8192, 128256, trained=15.6e12),
    # The published configurations of Llama 4 (2025): one shared expert, one of the routed ones.
    _llama("llama4-scout", 48, 5120, 40, 8, 8192, 8192, 202048, experts=16, shared=1),
    _llama("llama4-maverick", 48, 5120, 40, 8, 8192, 8192, 202048, experts=128, shared=1, moe_every=2, dense_ffn=16384),
    # The published configurations of Mixtral (arXiv:2401.04088).
    _llama("mixtral-8x7b", 32, 4096, 32, 8, 14336, 4096, 32000, experts=8, top_k=2),
    _llama("mixtral-8x22b", 56, 6144, 48, 8, 16384, 4096, 32768, experts=8, top_k=2),
    # The published configuration of Qwen3-235B-A22B (arXiv:2505.09388).
    _llama("qwen3-235b", 94, 4096, 64, 4, 1536, 4096, 151936, experts=128, top_k=8, head=128, trained=36e12),
)
MODELS = {model.name: model for model in _PRESETS}
ALIASES = {"gpt3": "gpt3-175b", "1t": "megatron-1t", "530b": "megatron-530b", "gpt2": "gpt2-small"}
