"""What a VoxCPM2 bundle says of itself (`manifest.json`, key `model`)."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from device_profiles.schema import KvSection
from edge_runtime.kv_cache import KVShape

GraphName = Literal[
    "lm", "patch_encoder", "flow", "flow_time", "flow_condition", "vae_encoder", "vae_decoder"
]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class KVSpec(_Frozen):
    """KV cache of base and residual LM together."""

    layers: int = Field(gt=0)
    num_kv_heads: int = Field(gt=0)
    head_size: int = Field(gt=0)
    max_rows: int = Field(gt=0)


class FlowSpec(_Frozen):
    """Flow estimator."""

    hidden: int = Field(gt=0)
    mean_mode: bool


class EmbeddingSpec(_Frozen):
    """Token embedding table, raw [vocab, hidden] in one file."""

    file: str
    vocab: int = Field(gt=0)
    dtype: Literal["f32", "f16"]
    scale: float


class StreamSpec(_Frozen):
    """One streaming half of the AudioVAE.

    Attributes:
        sample_rate: Samples per second on the audio side.
        hop: Samples per latent frame.
        states: Shape of each state; all start as zeros.
    """

    sample_rate: int = Field(gt=0)
    hop: int = Field(gt=0)
    states: tuple[tuple[int, int, int], ...]


class ControlTokens(_Frozen):
    """Ids that frame audio in the token sequence."""

    audio_start: int = 101
    audio_end: int = 102
    ref_audio_start: int = 103
    ref_audio_end: int = 104

    @property
    def ids(self) -> frozenset[int]:
        """All of them."""
        return frozenset(
            (self.audio_start, self.audio_end, self.ref_audio_start, self.ref_audio_end)
        )


class VoxCpm2Spec(_Frozen):
    """Sizes, ports and files that the runtime needs.

    Attributes:
        hidden: Width of an LM row.
        patch_size: Latent frames per patch.
        latent_dim: Channels of a latent frame.
        noise_hops: Samples per latent frame at each noise input of the VAE decoder.
        graphs: File of each graph by its name.
    """

    hidden: int = Field(gt=0)
    patch_size: int = Field(gt=0)
    latent_dim: int = Field(gt=0)
    kv: KVSpec
    flow: FlowSpec
    embedding: EmbeddingSpec
    control: ControlTokens = ControlTokens()
    vae_encoder: StreamSpec
    vae_decoder: StreamSpec
    noise_hops: tuple[int, ...] = ()
    tokenizer: str
    graphs: dict[GraphName, str]

    @property
    def patch_samples(self) -> int:
        """Output samples per patch."""
        return self.patch_size * self.vae_decoder.hop

    @property
    def patch_seconds(self) -> float:
        """Audio per patch in seconds."""
        return self.patch_samples / self.vae_decoder.sample_rate


def kv_shape(spec: VoxCpm2Spec, kv: KvSection) -> KVShape:
    """The KV cache's shape on a board."""
    return KVShape(
        layers=spec.kv.layers,
        num_kv_heads=spec.kv.num_kv_heads,
        head_size=spec.kv.head_size,
        max_rows=min(spec.kv.max_rows, kv.max_rows),
        bucket_rows=kv.bucket_rows,
        dtype=kv.dtype,
    )
