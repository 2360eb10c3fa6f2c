"""MioCodec checkpoint to bundle."""

from __future__ import annotations

from contextlib import closing
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from device_profiles.weight_formats import PlanName
from edge_runtime.bundle import Bundle, Manifest
from edge_runtime.golden.golden_file import GOLDEN
from edge_runtime.miocodec.spec import GraphName, MioCodecSpec, SpectrumSpec
from export.bundle_writer import BundleWriter, bundle_writer
from export.checkpoint.folder import open_model
from export.golden.golden_writer import compute_golden
from export.graph.parameters import Parameters
from export.miocodec.config import CONFIG, MioCodecConfig, load_config
from export.miocodec.content import build_content, build_voice
from export.miocodec.golden_runs import golden_runs
from export.miocodec.stacks import stack_spec
from export.miocodec.wave import (
    build_wave_decoder,
    build_wave_head,
    build_wave_post,
    build_wave_prenet,
    build_wave_prior,
)
from export.progress import ExportProgress, OnProgress
from export.synthetic.maker import SYNTHETIC_KEY
from export.weights.plan import WeightPlan

FAMILY = "miocodec"
# WavLM's feature extractor: samples at 16 kHz per row, and of the first row.
_SSL_RATE, _SSL_HOP, _SSL_WINDOW = 16000, 320, 400


def export_miocodec(
    checkpoint: Path,
    out: Path,
    *,
    weights: PlanName | WeightPlan = "int8",
    profile: str | None = None,
    name: str | None = None,
    replace: bool = False,
    progress: OnProgress | None = None,
) -> Manifest:
    """Export an official checkpoint folder to a bundle.

    Args:
        checkpoint: Folder with ``config.yaml`` and ``model.safetensors``.
        out: Bundle folder to write; appears only when it is complete.
        weights: Weight plan, or the name of one.
        profile: Device profile it is meant for; recorded.
        name: What the codec is called; by default the checkpoint folder's name.
        replace: Replace an existing bundle.
        progress: Told the file being written, and checkpoint values converted and in all.

    Raises:
        CheckpointError: Missing, torn or wrong checkpoint.
        UnsupportedError: A feature that is refused by name.
        OutputError: The bundle cannot be written.
    """
    config = load_config(checkpoint)
    plan = weights if isinstance(weights, WeightPlan) else WeightPlan.named(weights)
    tracker = ExportProgress(progress)
    with (
        closing(open_model(checkpoint)) as model,
        bundle_writer(out, plan, replace=replace, progress=tracker) as writer,
    ):
        spec = _write(writer, Parameters(tracker.watch(model)), config)
        manifest = writer.manifest(
            family=FAMILY,
            name=name or checkpoint.resolve().name.encode("utf-8", "replace").decode("utf-8"),
            made_by=f"boardvoice {_version()}",
            model=spec.model_dump(mode="json"),
            profile=profile,
            synthetic=SYNTHETIC_KEY in (checkpoint / CONFIG).read_text(encoding="utf-8"),
        )
        tracker.file(GOLDEN)
        so_far = Bundle(writer.folder, writer.with_files(manifest))
        writer.add_bytes(GOLDEN, compute_golden(so_far, golden_runs(spec)).text().encode())
        return writer.finish(manifest)


def _write(writer: BundleWriter, model: Parameters, config: MioCodecConfig) -> MioCodecSpec:
    graphs: dict[GraphName, str] = {}
    for name, build in (
        ("content", build_content),
        ("voice", build_voice),
        ("wave_prenet", build_wave_prenet),
        ("wave_prior", build_wave_prior),
        ("wave_decoder", build_wave_decoder),
        ("wave_post", build_wave_post),
        ("wave_head", build_wave_head),
    ):
        with writer.graph(name) as (graph, save):
            graphs[name] = save(build(graph, model, config))  # type: ignore[index]
    codec = config.config
    return MioCodecSpec(
        sample_rate=codec.sample_rate,
        levels=config.local_quantizer.init_args.levels,
        voice_width=config.global_encoder.init_args.output_channels,
        ssl_rate=_SSL_RATE,
        ssl_hop=_SSL_HOP,
        ssl_window=_SSL_WINDOW,
        local_layers=codec.local_ssl_layers,
        global_layers=codec.global_ssl_layers,
        downsampling=codec.downsample_factor,
        token_frames=codec.wave_upsample_factor,
        upsampling=codec.upsampling,
        post_width=codec.wave_decoder_dim >> len(codec.wave_upsampler_factors),
        content=stack_spec(config.local_encoder.init_args),
        prenet=stack_spec(config.wave_prenet.init_args),
        decoder=stack_spec(config.wave_decoder.init_args),
        spectrum=SpectrumSpec(n_fft=codec.n_fft, hop=codec.hop_length),
        graphs=graphs,
    )


def _version() -> str:
    try:
        return version("boardvoice")
    except PackageNotFoundError:  # run from a source tree that is not installed
        return "unknown"
