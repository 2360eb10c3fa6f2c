"""What a MioCodec bundle says of itself (`manifest.json`, key `model`)."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

GraphName = Literal[
    "content", "voice", "wave_prenet", "wave_prior", "wave_decoder", "wave_post", "wave_head"
]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class StackSpec(_Frozen):
    """A stack of windowed attention.

    Attributes:
        hidden: Width of a row that goes in.
        outputs: Width of a row that comes out.
        head_size: Dimensions per head, all of them rotated.
        theta: Base of the rotation's frequencies.
        block: Rows come in multiples of it.
        reach: Rows on either side that a row depends on.
    """

    hidden: int = Field(gt=0)
    outputs: int = Field(gt=0)
    head_size: int = Field(gt=0)
    theta: float = Field(gt=0)
    block: int = Field(gt=0)
    reach: int = Field(ge=0)


class SpectrumSpec(_Frozen):
    """The inverse short-time Fourier transform ("same" padding, Hann window)."""

    n_fft: int = Field(gt=0)
    hop: int = Field(gt=0)

    @property
    def bins(self) -> int:
        """Frequencies of a frame."""
        return self.n_fft // 2 + 1


class MioCodecSpec(_Frozen):
    """Sizes and files that the runtime needs.

    Attributes:
        sample_rate: Of the audio that goes in and comes out, in Hz.
        levels: Values per dimension of the quantizer.
        voice_width: Numbers of a global embedding.
        ssl_rate: Rate that features are made at, in Hz.
        ssl_hop: Samples at that rate per feature row.
        ssl_window: Samples at that rate that the first feature row takes.
        local_layers: WavLM's layers, from 1, whose mean the tokens are made of.
        global_layers: Those whose mean the voice is made of.
        downsampling: Feature rows per token.
        token_frames: Decoder frames that the prenet makes of a token.
        upsampling: Spectrum frames per decoder frame.
        post_width: Width of a frame that goes into the head.
        content: Stack before the quantizer.
        prenet: Stack before the upsampling.
        decoder: Stack that the voice modulates.
        spectrum: From spectra to samples.
        graphs: File of each graph by its name.
    """

    sample_rate: int = Field(gt=0)
    levels: tuple[int, ...] = Field(min_length=1)
    voice_width: int = Field(gt=0)
    ssl_rate: int = Field(gt=0)
    ssl_hop: int = Field(gt=0)
    ssl_window: int = Field(gt=0)
    local_layers: tuple[int, ...] = Field(min_length=1)
    global_layers: tuple[int, ...] = Field(min_length=1)
    downsampling: int = Field(gt=0)
    token_frames: int = Field(gt=0)
    upsampling: int = Field(gt=0)
    post_width: int = Field(gt=0)
    content: StackSpec
    prenet: StackSpec
    decoder: StackSpec
    spectrum: SpectrumSpec
    graphs: dict[GraphName, str]

    @property
    def vocabulary(self) -> int:
        """Number of different tokens."""
        return math.prod(self.levels)

    @property
    def tokens_per_second(self) -> float:
        """Token rate."""
        return self.ssl_rate / (self.ssl_hop * self.downsampling)

    @property
    def frame_samples(self) -> int:
        """Samples per decoder frame."""
        return self.upsampling * self.spectrum.hop

    def default_samples(self, tokens: int) -> int:
        """Samples that so many tokens stand for where nobody said how many there were."""
        rows = tokens * self.downsampling
        needed = (rows - 1) * self.ssl_hop + self.ssl_window
        return math.ceil(needed / self.ssl_rate * self.sample_rate)

    def frames(self, samples: int) -> int:
        """Decoder frames of a clip of so many samples."""
        return samples // self.spectrum.hop // self.upsampling
