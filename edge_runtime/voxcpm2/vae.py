"""AudioVAE at run time: encoder and decoder that carry their state from chunk to chunk."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from edge_runtime.backends.protocol import Binding, Graph
from edge_runtime.cancel import CancelToken
from edge_runtime.noise import Noise
from edge_runtime.voxcpm2.spec import VoxCpm2Spec

FloatArray = npt.NDArray[np.float32]

# Patches encoded per call: bounds the encoder's activations whatever the clip's length, and is
# fastest at 4 or fewer, since they stay in the CPU's caches. Other sizes differ in the last bits.
ENCODE_PATCHES = 4


class _EncoderStream:
    """The encoder with its states.

    All outputs are bound to arrays of ours: one inside ONNX Runtime's arena would keep the whole
    piece that it lies in from being given back.
    """

    def __init__(self, graph: Graph, spec: VoxCpm2Spec) -> None:
        self._graph = graph
        self._spec = spec
        self._states = [np.zeros(shape, np.float32) for shape in spec.vae_encoder.states]

    def run(self, audio: FloatArray) -> FloatArray:
        """Encode samples [1, 1, n] to a latent [1, D, frames], and keep the states it leaves."""
        frames = audio.shape[2] // self._spec.vae_encoder.hop
        latent = np.empty((1, self._spec.latent_dim, frames), np.float32)
        following = [np.empty_like(state) for state in self._states]
        binding = self._graph.bind()
        binding.input("audio", audio)
        binding.output("latent", latent)
        for index, (state, left) in enumerate(zip(self._states, following, strict=True)):
            binding.input(f"state_{index}", state)
            binding.output(f"next_state_{index}", left)
        binding.run(give_back=True)
        self._states = following
        return latent


def encode_audio(
    graph: Graph,
    spec: VoxCpm2Spec,
    audio: FloatArray,
    cancel: CancelToken | None = None,
    look: Callable[[int], None] | None = None,
) -> FloatArray | None:
    """Encode audio to latent patches.

    Args:
        graph: ``vae_encoder.onnx``.
        spec: Sizes.
        audio: Mono samples at the encoder's rate, a whole number of patches.
        cancel: Checked before every chunk.
        look: Told the patches of every chunk before it is encoded; may raise.

    Returns:
        Patches [N, P, D], or None when cancelled.
    """
    stream = _EncoderStream(graph, spec)
    chunk = ENCODE_PATCHES * spec.patch_size * spec.vae_encoder.hop
    frames = []
    for start in range(0, len(audio), chunk):
        if cancel is not None and cancel.cancelled:
            return None
        piece = np.ascontiguousarray(audio[None, None, start : start + chunk], np.float32)
        if look is not None:
            look(ENCODE_PATCHES * piece.shape[2] // chunk)
        frames.append(stream.run(piece)[0].T)
    latent = np.concatenate(frames)
    return np.ascontiguousarray(latent.reshape(-1, spec.patch_size, spec.latent_dim))


class VaeDecoder:
    """Decodes one utterance patch by patch; streamed and whole audio are the same samples.

    Args:
        graph: ``vae_decoder.onnx``.
        spec: Sizes.
        noise: Source of the noise blocks' input, for checkpoints that have them.
    """

    def __init__(self, graph: Graph, spec: VoxCpm2Spec, noise: Noise) -> None:
        self._graph = graph
        self._spec = spec
        self._noise = noise
        shapes = spec.vae_decoder.states
        # Read from the first, written to the second; they change places after every run.
        self._states = [[np.zeros(shape, np.float32) for shape in shapes] for _ in range(2)]
        self._bindings: list[Binding] = []
        self._latent = np.empty((1, spec.latent_dim, 0), np.float32)

    def decode(self, patch: FloatArray) -> FloatArray:
        """Decode one patch [P, D] to its samples [P * hop], within ±1."""
        if len(patch) != self._latent.shape[2]:
            self._bind(len(patch))
        self._latent[0] = patch.T
        for noise in self._noises:
            noise[...] = self._noise.decoder(noise.shape)
        self._bindings[0].run()
        self._bindings.reverse()
        self._states.reverse()
        samples: FloatArray = self._audio[0, 0].copy()
        return samples

    def _bind(self, frames: int) -> None:
        self._latent = np.empty((1, self._spec.latent_dim, frames), np.float32)
        self._audio = np.empty((1, 1, frames * self._spec.vae_decoder.hop), np.float32)
        self._noises = [np.empty((1, 1, frames * hop), np.float32) for hop in self._spec.noise_hops]
        self._bindings = [self._one_way(*self._states), self._one_way(*self._states[::-1])]

    def _one_way(self, states: list[FloatArray], following: list[FloatArray]) -> Binding:
        binding = self._graph.bind(fixed=True)
        binding.input("latent", self._latent)
        for index, noise in enumerate(self._noises):
            binding.input(f"noise_{index}", noise)
        for index, (state, left) in enumerate(zip(states, following, strict=True)):
            binding.input(f"state_{index}", state)
            binding.output(f"next_state_{index}", left)
        binding.output("audio", self._audio)
        return binding
