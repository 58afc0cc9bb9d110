"""What is trained: a transformer's dimensions, and what follows from them."""

from dataclasses import dataclass, replace
from math import isqrt
from typing import Any

from collbench.errors import UsageError

MOST = 2**32  # of any dimension
MOST_COUNTED = 2**16  # layers, heads and experts, which are dealt out one by one


@dataclass(frozen=True)
class Model:
    """A decoder-only transformer.

    `gated` models are of LLaMA's kind: three matrices in the feed-forward part, no biases, rotary positions, an output
    matrix of its own; the others of GPT's: two, biases, learned positions, the output shares the embedding's matrix.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int = 0  # 0: as many as heads
    ffn: int = 0  # of the feed-forward part, of an expert where there are several; 0: 4 times hidden
    sequence: int = 2048
    vocabulary: int = 51200
    gated: bool = False
    experts: int = 0  # that a token is routed among; 0: dense
    top_k: int = 1  # of them that it goes to
    shared: int = 0  # experts that every token goes to
    moe_every: int = 1  # layers from one with experts to the next
    dense_ffn: int = 0  # of layers without experts between those with; 0: as ffn
    head: int = 0  # elements of a head; 0: hidden over heads
    tied: bool | None = None  # whether the output shares the embedding's matrix; None: as its kind does
    stated: float = 0.0  # parameters that its file claims; 0: those that follow from its dimensions
    trained: float = 0.0  # tokens of its published training; 0: none is known

    @property
    def queries(self) -> int:
        """Elements of all heads together."""
        return self.heads * self.head_size

    @property
    def head_size(self) -> int:
        """Elements of a head."""
        return self.head or self.hidden // self.heads

    @property
    def keys(self) -> int:
        """Elements of all heads of keys; of values there are as many."""
        return (self.kv_heads or self.heads) * self.head_size

    @property
    def width(self) -> int:
        """Of the feed-forward part, or of an expert."""
        return self.ffn or 4 * self.hidden

    @property
    def matrices(self) -> int:
        """Of the feed-forward part."""
        return 3 if self.gated else 2

    @property
    def shares_embedding(self) -> bool:
        """Whether the output shares the embedding's matrix."""
        return not self.gated if self.tied is None else self.tied

    @property
    def moe_layers(self) -> int:
        """Layers with experts."""
        return self.layers // self.moe_every if self.experts else 0

    @property
    def attention_weights(self) -> int:
        """Of a layer: queries, keys, values and the projection."""
        return 2 * self.hidden * (self.queries + self.keys)

    @property
    def dense_weights(self) -> int:
        """Of the feed-forward part of a layer without experts."""
        width = (self.dense_ffn or self.width) if self.experts else self.width
        return self.matrices * self.hidden * width

    @property
    def expert_weights(self) -> int:
        """Of one expert."""
        return self.matrices * self.hidden * self.width if self.experts else 0

    @property
    def layer_extras(self) -> int:
        """Norms and biases of a layer: GPT's have 13 times hidden where the feed-forward part is 4 times as wide."""
        if self.gated:
            return 2 * self.hidden
        return 4 * self.hidden + self.queries + 2 * self.keys + self.hidden + self.width + self.hidden

    @property
    def embedding(self) -> int:
        """Of the words, and of learned positions."""
        return self.vocabulary * self.hidden + (0 if self.gated else self.sequence * self.hidden)

    @property
    def output(self) -> int:
        """Of the matrix before the words' probabilities, if it is one of its own, and the last norm."""
        own = 0 if self.shares_embedding else self.vocabulary * self.hidden
        return own + (1 if self.gated else 2) * self.hidden

    @property
    def layer_parameters(self) -> float:
        """Of a layer without its routed experts, the mean over the layers."""
        moe = self.moe_layers / self.layers
        router = self.hidden * self.experts
        own = self.attention_weights + self.layer_extras
        return own + (1 - moe) * self.dense_weights + moe * (router + self.shared * self.expert_weights)

    @property
    def routed_parameters(self) -> float:
        """Of the routed experts of a layer, the mean over the layers."""
        return self.moe_layers / self.layers * self.experts * self.expert_weights

    @property
    def parameters(self) -> float:
        """All of them."""
        return self.layers * (self.layer_parameters + self.routed_parameters) + self.embedding + self.output

    @property
    def active(self) -> float:
        """Those that a token meets."""
        spared = self.moe_layers * (self.experts - self.top_k) * self.expert_weights if self.experts else 0.0
        return self.parameters - spared

    @property
    def routed(self) -> float:
        """Routed experts that a token meets in a layer, the mean over the layers."""
        return self.moe_layers / self.layers * self.top_k

    @property
    def worked(self) -> float:
        """Weights that a token is multiplied by in a layer, the mean over the layers."""
        moe = self.moe_layers / self.layers
        everywhere = self.attention_weights + (1 - moe) * self.dense_weights + moe * self.hidden * self.experts
        return everywhere + (self.routed + moe * self.shared) * self.expert_weights

    def flops(self, sequence: int) -> float:
        """Of a token, forward and backward, as utilisation is counted: the whole attention, nothing twice.

        6 a weight, 12 a layer, element of the heads and earlier token (Chowdhery et al., PaLM, 2022, appendix B).
        """
        return self.layers * (6 * self.worked + 12 * self.queries * sequence) + 6 * self.hidden * self.vocabulary

    def checked(self) -> "Model":
        """Itself; UsageError for what no transformer is."""
        least = dict.fromkeys(("layers", "hidden", "heads", "sequence", "vocabulary", "moe_every", "top_k"), 1)
        for name in (*least, "kv_heads", "ffn", "experts", "shared", "dense_ffn", "head"):
            value, low = getattr(self, name), least.get(name, 0)
            most = MOST_COUNTED if name in ("layers", "heads", "kv_heads", "experts", "shared") else MOST
            if not low <= value <= most:
                raise UsageError(f"{self.name}: {name} = {value} is impossible; give {low} to {most}")
        self._heads()
        if self.experts and self.top_k > self.experts:
            fix = f"give {self.experts} or fewer"
            raise UsageError(f"{self.name}: top_k {self.top_k} is more than its {self.experts} experts; {fix}")
        if self.experts and self.moe_every > self.layers:
            fix = "give 1 for all of them"
            raise UsageError(f"{self.name}: moe_every {self.moe_every} is more than its {self.layers} layers; {fix}")
        if self.stated and not 0.8 < self.parameters / self.stated < 1.25:
            raise UsageError(
                f"{self.name}: its dimensions come to {self.parameters:.3g} parameters, not to {self.stated:.3g}; "
                "leave parameters out, or mend layers, hidden, ffn or vocabulary"
            )
        return self

    def _heads(self) -> None:
        if not self.head and self.hidden % self.heads:
            near = self.heads * max(1, round(self.hidden / self.heads))
            raise UsageError(
                f"{self.name}: hidden {self.hidden} is not divisible by {self.heads} heads; "
                f"give hidden {near}, {_divisor(self.hidden, self.heads)} heads, or head for the size of one"
            )
        if self.kv_heads and self.heads % self.kv_heads:
            fix = f"give {_divisor(self.heads, self.kv_heads)}"
            raise UsageError(f"{self.name}: {self.heads} heads are not divisible by {self.kv_heads} kv_heads; {fix}")


def of_size(name: str, parameters: float, **known: Any) -> Model:
    """A model of GPT-3's shape with about as many parameters: hidden 128 times the layers, heads of 128."""
    if not 1e5 <= parameters <= 1e15:
        raise UsageError(f"{name}: parameters = {parameters:g} is impossible; give 1e5 to 1e15, such as 13e9")
    words = known.get("vocabulary", Model.vocabulary) + known.get("sequence", Model.sequence)
    hidden = known.get("hidden") or _hidden(parameters, words)
    layers = known.get("layers") or max(1, round((parameters - words * hidden) / (12 * hidden**2)))
    heads = _divisor(min(max(1, hidden), MOST), hidden // 128)
    shape: dict[str, Any] = {"layers": layers, "hidden": hidden, "heads": heads} | known
    return Model(name, **shape).checked()


def _hidden(parameters: float, words: int) -> int:
    """What makes so many parameters with one layer for every 128 of it: even heads of 128 where it is large."""
    exact = 1.0
    for _ in range(200):  # of 12 exact^3 / 128 + words exact = parameters, by Newton
        exact = (24 * exact**3 / 128 + parameters) / (36 * exact**2 / 128 + words)
    step = next((step for step in (1024, 128, 8) if exact >= 4 * step), 1)
    return step * max(1, round(exact / step))


def _divisor(number: int, near: int) -> int:
    """The divisor of a number that is nearest to another one."""
    small = [one for one in range(1, isqrt(number) + 1) if number % one == 0]
    return min((*small, *(number // one for one in small)), key=lambda one: abs(one - near))


def with_sequence(model: Model, sequence: int) -> Model:
    """The same with another length of its samples."""
    return replace(model, sequence=sequence).checked()
