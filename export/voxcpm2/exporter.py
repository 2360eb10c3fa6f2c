"""VoxCPM2 checkpoint to bundle, tensor by tensor."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
import numpy.typing as npt

from device_profiles.weight_formats import LayerKind, PlanName, WeightFormat
from edge_runtime.bundle import Bundle, Manifest
from edge_runtime.errors import BundleError, CheckpointError
from edge_runtime.golden.golden_file import GOLDEN
from edge_runtime.rknn_toolkit.environment import ToolkitEnvironment
from edge_runtime.tokenizer import Tokenizer
from edge_runtime.voxcpm2.spec import (
    ControlTokens,
    EmbeddingSpec,
    FlowSpec,
    KVSpec,
    StreamSpec,
    VoxCpm2Spec,
)
from export.bundle_writer import BundleWriter, bundle_writer
from export.checkpoint.folder import open_audio_vae, open_model
from export.golden.golden_writer import compute_golden
from export.graph.f16_cache import with_f16_cache
from export.graph.heads import HeadLayout
from export.graph.parameters import Parameters
from export.graph.portable import with_standard_operators
from export.progress import ExportProgress, OnProgress
from export.synthetic.maker import SYNTHETIC_KEY
from export.voxcpm2.audio_vae import build_vae_decoder, build_vae_encoder
from export.voxcpm2.config import AudioVaeConfig, VoxCpm2Config, load_config
from export.voxcpm2.flow import build_flow, build_flow_condition, build_flow_time
from export.voxcpm2.golden_runs import golden_runs
from export.voxcpm2.int8_kv import add_int8_cache
from export.voxcpm2.lm import build_lm
from export.voxcpm2.npu_export import NpuExport, add_npu_flow
from export.voxcpm2.patch_encoder import build_patch_encoder
from export.weights.plan import WeightPlan
from export.weights.quantize import half

FAMILY = "voxcpm2"
_TOKENIZER = "tokenizer.json"
_EMBEDDING_ROWS = 1024


def export_voxcpm2(
    checkpoint: Path,
    out: Path,
    *,
    weights: PlanName | WeightPlan = "int8",
    profile: str | None = None,
    name: str | None = None,
    replace: bool = False,
    int8_kv: bool = False,
    npu: NpuExport | None = None,
    progress: OnProgress | None = None,
) -> Manifest:
    """Export an official checkpoint folder to a bundle.

    Args:
        checkpoint: Folder with ``config.json``, the model, the AudioVAE and ``tokenizer.json``.
        out: Bundle folder to write; appears only when it is complete.
        weights: Weight plan, or the name of one.
        profile: Device profile it is meant for; recorded.
        name: What the voice is called; by default the checkpoint folder's name.
        replace: Replace an existing bundle.
        int8_kv: Add the LM over an int8 KV cache. Its ranges are measured by running the LM.
        npu: Add the estimator for an NPU, which takes rknn-toolkit2.
        progress: Told the file being written, and checkpoint values converted and in all.

    Raises:
        CheckpointError: Missing, torn or wrong checkpoint.
        UnsupportedError: A feature that is refused by name.
        OutputError: The bundle cannot be written.
        ToolkitError: The estimator is wanted for an NPU, and rknn-toolkit2 is missing or fails.
    """
    if npu is not None:
        # Asked for before minutes of work.
        ToolkitEnvironment.find()
    config = load_config(checkpoint)
    tokenizer = _check_tokenizer(checkpoint, config)
    plan = weights if isinstance(weights, WeightPlan) else WeightPlan.named(weights)
    tracker = ExportProgress(progress)
    with (
        closing(open_model(checkpoint)) as model,
        closing(open_audio_vae(checkpoint)) as vae,
        bundle_writer(out, plan, replace=replace, progress=tracker) as writer,
    ):
        model_parameters, vae_parameters = (
            Parameters(tracker.watch(source)) for source in (model, vae)
        )
        spec = _write(writer, model_parameters, vae_parameters, config, tokenizer)
        manifest = writer.manifest(
            family=FAMILY,
            name=name or _printable(checkpoint.resolve().name),
            made_by=f"boardvoice {_version()}",
            model=spec.model_dump(mode="json"),
            profile=profile,
            synthetic=_is_synthetic(checkpoint),
        )
        if int8_kv:
            tracker.file(spec.graphs["lm"])
            add_int8_cache(writer, Bundle(writer.folder, manifest), spec)
        if npu is not None:
            so_far = Bundle(writer.folder, writer.with_files(manifest))
            add_npu_flow(writer, so_far, spec, model_parameters, config, npu, tracker)
        tracker.file(GOLDEN)
        so_far = Bundle(writer.folder, writer.with_files(manifest))
        golden = compute_golden(so_far, golden_runs(so_far, spec))
        writer.add_bytes(GOLDEN, golden.text().encode())
        return writer.finish(manifest)


def _write(
    writer: BundleWriter,
    model: Parameters,
    vae: Parameters,
    config: VoxCpm2Config,
    tokenizer: Path,
) -> VoxCpm2Spec:
    graphs = {}
    for name, build in (
        ("lm", build_lm),
        ("patch_encoder", build_patch_encoder),
        ("flow", build_flow),
        ("flow_time", build_flow_time),
        ("flow_condition", build_flow_condition),
    ):
        with writer.graph(name) as (graph, save):
            proto = build(graph, model, config)
            graphs[name] = save(proto)
            if name == "lm":
                # Costs a graph file, no weights; the profile chooses (kv.dtype).
                save(with_f16_cache(proto), "kv_f16")
            if name == "flow" and (portable := with_standard_operators(proto)) is not None:
                # For TensorRT (flow.place); again no weights.
                save(portable, "portable")
    states = {}
    for name, build_half in (
        ("vae_encoder", build_vae_encoder),
        ("vae_decoder", build_vae_decoder),
    ):
        with writer.graph(name) as (graph, save):
            proto, states[name] = build_half(graph, vae, config.audio_vae_config)
            graphs[name] = save(proto)
    embedding = _write_embedding(writer, model, config)
    audio = config.audio_vae_config
    return VoxCpm2Spec(
        hidden=config.base_lm.hidden,
        patch_size=config.patch_size,
        latent_dim=config.feat_dim,
        kv=KVSpec(
            layers=config.base_lm.num_layers + config.residual_lm.num_layers,
            num_kv_heads=config.base_lm.num_kv_heads,
            head_size=HeadLayout.of(config.base_lm.head_size).padded,
            max_rows=config.max_rows,
        ),
        flow=FlowSpec(hidden=config.flow.hidden, mean_mode=config.dit_config.dit_mean_mode),
        embedding=embedding,
        vae_encoder=StreamSpec(
            sample_rate=audio.sample_rate,
            hop=audio.encoder_hop,
            states=tuple(states["vae_encoder"]),
        ),
        vae_decoder=StreamSpec(
            sample_rate=audio.out_sample_rate,
            hop=audio.decoder_hop,
            states=tuple(states["vae_decoder"]),
        ),
        noise_hops=_noise_hops(audio),
        tokenizer=writer.add_copy(_TOKENIZER, tokenizer),
        graphs=graphs,
    )


def _write_embedding(
    writer: BundleWriter, model: Parameters, config: VoxCpm2Config
) -> EmbeddingSpec:
    lm = config.lm_config
    table = model.linear("base_lm.embed_tokens", lm.vocab_size, lm.hidden_size)
    full = writer.plan[LayerKind.EMBEDDING] is WeightFormat.F32
    dtype = np.dtype("<f4") if full else np.dtype("<f2")

    def pieces() -> Iterator[npt.NDArray[np.generic]]:
        for start in range(0, lm.vocab_size, _EMBEDDING_ROWS):
            rows = table.rows(start, min(start + _EMBEDDING_ROWS, lm.vocab_size))
            yield rows if full else half(rows, "base_lm.embed_tokens.weight")

    return EmbeddingSpec(
        file=writer.add_array("embedding.bin", dtype, pieces()),
        vocab=lm.vocab_size,
        dtype="f32" if full else "f16",
        scale=lm.scale_emb if lm.use_mup else 1.0,
    )


def _noise_hops(audio: AudioVaeConfig) -> tuple[int, ...]:
    if not audio.use_noise_block:
        return ()
    return tuple(int(hop) for hop in np.cumprod(audio.decoder_rates))


def _check_tokenizer(checkpoint: Path, config: VoxCpm2Config) -> Path:
    path = checkpoint / _TOKENIZER
    if not path.is_file():
        raise CheckpointError(f"{path} does not exist.", remedy="Download the checkpoint again.")
    try:
        tokenizer = Tokenizer.load(path, ControlTokens().ids)
    except BundleError as error:
        # Read as part of a bundle later, but here it is the checkpoint's file.
        raise CheckpointError(error.message, remedy="Download the checkpoint again.") from error
    if tokenizer.vocab_size > config.lm_config.vocab_size:
        raise CheckpointError(
            f"{path} has {tokenizer.vocab_size} tokens, lm_config.vocab_size is "
            f"{config.lm_config.vocab_size}.",
            remedy="Use the tokenizer.json that belongs to this checkpoint.",
        )
    highest = max(ControlTokens().ids)
    if config.lm_config.vocab_size <= highest:
        raise CheckpointError(
            f"{checkpoint / 'config.json'}: lm_config.vocab_size is "
            f"{config.lm_config.vocab_size}, but {highest} is a control token.",
            remedy="Correct the named key or use the published file.",
        )
    return path


def _printable(name: str) -> str:
    """A file name as text: bytes of it that are not UTF-8 cannot stand in a manifest."""
    return name.encode("utf-8", "replace").decode("utf-8")


def _version() -> str:
    try:
        return version("boardvoice")
    except PackageNotFoundError:  # run from a source tree that is not installed
        return "unknown"


def _is_synthetic(checkpoint: Path) -> bool:
    return f'"{SYNTHETIC_KEY}"' in (checkpoint / "config.json").read_text(encoding="utf-8")
