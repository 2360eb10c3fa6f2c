"""Content tokens and a voice to samples.

The group norms of the residual blocks average over a whole clip, so a clip is decoded as one; the
stacks and the head run in pieces of bounded size. What grows with the clip is a few activations
of the residual blocks, about 1.5 MB per second at 44.1 kHz.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import numpy.typing as npt

from edge_runtime.backends.protocol import Graph
from edge_runtime.cancel import CancelToken
from edge_runtime.errors import CancelledError, CapacityError, UsageError
from edge_runtime.miocodec.bound_run import bound_run
from edge_runtime.miocodec.fsq import Quantizer
from edge_runtime.miocodec.overlap_add import OverlapAdd
from edge_runtime.miocodec.spec import GraphName, MioCodecSpec
from edge_runtime.miocodec.stack_run import StackPorts, run_stack

FloatArray = npt.NDArray[np.float32]
# Told a graph and the rows of a run before it; may raise.
LookAt = Callable[[GraphName, int], None]

# Spectrum frames per run of the head.
HEAD_FRAMES = 1024
# Beyond it a clip is cut by whoever made its tokens.
MAX_SECONDS = 600


class WaveDecoder:
    """Decodes clips.

    Args:
        graphs: The graphs.
        spec: Sizes.
        look: Told every run.
    """

    def __init__(self, graphs: Mapping[GraphName, Graph], spec: MioCodecSpec, look: LookAt) -> None:
        self._graphs = graphs
        self._spec = spec
        self._look = look
        self._quantizer = Quantizer(spec.levels)

    def pieces(
        self,
        tokens: npt.NDArray[np.integer],
        voice: FloatArray,
        *,
        samples: int | None = None,
        cancel: CancelToken | None = None,
    ) -> Iterator[FloatArray]:
        """Decode a clip and hand out its samples as the last graph makes them.

        Args:
            tokens: Integers [N].
            voice: Global embedding f32 [width].
            samples: Length of the clip; by default what the tokens stand for. It is rounded down
                to whole decoder frames.
            cancel: Looked at between runs.

        Raises:
            UsageError: Tokens, voice or length that are none.
            CapacityError: A clip beyond `MAX_SECONDS`.
            CancelledError: Cancelled.
        """
        voice = self._checked(tokens, voice)
        length = self._spec.default_samples(len(tokens)) if samples is None else samples
        frames = self._spec.frames(length)
        self._check_length(len(tokens), length, frames)

        def run_on(name: GraphName) -> Callable[[int], None]:
            def look(rows: int) -> None:
                if cancel is not None and cancel.cancelled:
                    raise CancelledError("Cancelled while decoding.")
                self._look(name, rows)

            return look

        value = self._prenet(tokens, run_on("wave_prenet"))
        value = resized(value, frames)
        value = self._whole("wave_prior", "prior", value, run_on)
        value = self._decoder(value, voice, run_on("wave_decoder"))
        value = self._whole("wave_post", "post", value, run_on)
        yield from self._head(value, run_on("wave_head"))

    def _checked(self, tokens: npt.NDArray[np.integer], voice: FloatArray) -> FloatArray:
        if tokens.ndim != 1 or tokens.dtype.kind not in "iu" or not len(tokens):
            raise UsageError(
                f"Tokens have shape {list(tokens.shape)} and type {tokens.dtype}.",
                remedy="Give one row of integers, at least one.",
            )
        low, high, most = int(tokens.min()), int(tokens.max()), self._spec.vocabulary
        if low < 0 or high >= most:
            wrong = low if low < 0 else high
            raise UsageError(
                f"Token {wrong} does not exist.", remedy=f"Tokens are 0 to {most - 1}."
            )
        width = self._spec.voice_width
        if voice.shape != (width,) or not np.isfinite(voice).all():
            raise UsageError(
                f"A voice of shape {list(voice.shape)} cannot be used here.",
                remedy=f"Give {width} finite numbers, as 'codec embed' writes them.",
            )
        return np.ascontiguousarray(voice, np.float32).reshape(1, width)

    def _check_length(self, tokens: int, samples: int, frames: int) -> None:
        rate = self._spec.sample_rate
        if frames < 1:
            raise UsageError(
                f"A clip of {samples} samples is too short.",
                remedy=f"{self._spec.frame_samples} samples are the least.",
            )
        if max(samples / rate, tokens / self._spec.tokens_per_second) > MAX_SECONDS:
            raise CapacityError(
                f"{tokens} tokens to {samples / rate:.0f} s are more than one clip can be.",
                remedy=f"Cut it: {MAX_SECONDS} s are the most.",
            )

    def _prenet(self, tokens: npt.NDArray[np.integer], look: Callable[[int], None]) -> FloatArray:
        ports = StackPorts(
            "codes", "frames", self._spec.decoder.hidden, more=self._spec.token_frames
        )
        codes = self._quantizer.codes(tokens)
        return run_stack(self._graphs["wave_prenet"], self._spec.prenet, codes, ports, look=look)

    def _decoder(
        self, frames: FloatArray, voice: FloatArray, look: Callable[[int], None]
    ) -> FloatArray:
        ports = StackPorts("frames", "decoded", self._spec.decoder.outputs)
        return run_stack(
            self._graphs["wave_decoder"], self._spec.decoder, frames, ports, {"voice": voice}, look
        )

    def _whole(
        self,
        name: GraphName,
        output: str,
        frames: FloatArray,
        run_on: Callable[[GraphName], Callable[[int], None]],
    ) -> FloatArray:
        run_on(name)(len(frames))
        post = name == "wave_post"
        rows = len(frames) * (self._spec.upsampling if post else 1)
        width = self._spec.post_width if post else frames.shape[1]
        return bound_run(self._graphs[name], {"frames": frames}, {output: (rows, width)})[output]

    def _head(self, frames: FloatArray, look: Callable[[int], None]) -> Iterator[FloatArray]:
        adder = OverlapAdd(self._spec.spectrum)
        for start in range(0, len(frames), HEAD_FRAMES):
            part = frames[start : start + HEAD_FRAMES]
            look(len(part))
            shape = (len(part), self._spec.spectrum.bins)
            found = bound_run(
                self._graphs["wave_head"], {"frames": part}, {"real": shape, "imaginary": shape}
            )
            yield adder.push(found["real"], found["imaginary"])
        yield adder.finish()


def resized(frames: FloatArray, count: int) -> FloatArray:
    """Frames [N, width] stretched to [count, width] by linear interpolation.

    Source: `torch.nn.functional.interpolate(mode="linear")`, whose frames are spans, not points.
    """
    total = len(frames)
    if total == count:
        return frames
    # The reference rounds once, after a fused multiply and add; far out it shows.
    scale = np.float64(np.float32(total) / np.float32(count))
    places = np.maximum(scale * (np.arange(count) + 0.5) - 0.5, 0).astype(np.float32)
    before = np.minimum(places.astype(np.int64), total - 1)
    share = (places - before.astype(np.float32))[:, None]
    after = np.minimum(before + 1, total - 1)
    mixed: FloatArray = frames[before] * (1 - share) + frames[after] * share
    return mixed
