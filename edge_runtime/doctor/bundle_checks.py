"""A bundle: its files, how it will run here, and whether it computes the right numbers."""

from __future__ import annotations

from dataclasses import dataclass

from edge_runtime.backends.int8_cache import supported_kv
from edge_runtime.backends.ort import OrtBackend
from edge_runtime.bundle import MANIFEST, Bundle
from edge_runtime.doctor.finding import Finding
from edge_runtime.doctor.footprint import Footprint
from edge_runtime.doctor.scene import Scene
from edge_runtime.errors import BoardvoiceError
from edge_runtime.golden.golden_file import GOLDEN
from edge_runtime.golden.selftest import SelfTest, selftest
from edge_runtime.loader import LoadOptions, family_module, open_device
from edge_runtime.npu.record import NpuRecord

_SHOWN = 3


@dataclass(frozen=True)
class Examined:
    """What came of a bundle.

    Attributes:
        bundle: The bundle, if it can be run.
        findings: What was found.
    """

    bundle: Bundle | None
    findings: tuple[Finding, ...]


@dataclass(frozen=True)
class Tried:
    """What came of the golden vectors.

    Attributes:
        findings: What was found.
        selftest: The outcome, if they were run.
        npu: What became of the estimator on the NPU, if it was meant to be there.
    """

    findings: tuple[Finding, ...]
    selftest: SelfTest | None = None
    npu: NpuRecord | None = None


def check_files(scene: Scene) -> Examined:
    """Every byte of a bundle against its manifest."""
    if scene.bundle is None:
        return Examined(None, (Finding("bundle", "skipped", "none was named"),))
    try:
        # Sizes and hashes are told file by file below.
        bundle = Bundle.read(scene.bundle)
        family_module(bundle)
        bundle.graphs(_kv(scene))
    except BoardvoiceError as error:
        return Examined(
            None, (Finding("bundle", "fail", error.message, str(scene.bundle), error.remedy),)
        )
    damaged = bundle.damaged()
    if damaged:
        more = f"; and {len(damaged) - _SHOWN} more" if len(damaged) > _SHOWN else ""
        words = " ".join(damaged[:_SHOWN]) + more
        remedy = "Copy or export the bundle again; if it happens again, mistrust this disk."
        return Examined(
            None, (Finding("bundle", "fail", words, str(scene.bundle / MANIFEST), remedy),)
        )
    files, size = bundle.manifest.files, sum(one.size for one in bundle.manifest.files.values())
    note = (
        "; its weights are noise: it makes sound, not speech" if bundle.manifest.synthetic else ""
    )
    words = f"{len(files)} files, {size / 1e6:.0f} MB, all as they were exported{note}"
    return Examined(bundle, (Finding("bundle", "ok", words, str(scene.bundle / MANIFEST)),))


def check_preparation(scene: Scene, bundle: Bundle) -> list[Finding]:
    """Prepared files, and what of the profile is replaced by something else."""
    profile, reason = supported_kv(scene.profile, OrtBackend(threads=1, spinning=False))
    findings = []
    if reason:
        findings.append(
            Finding("KV cache", "warn", reason, f"profile {profile.name}", "Update ONNX Runtime.")
        )
    need = Footprint.of(bundle, profile, scene.state)
    if need.prepared is not None:
        damaged = need.prepared.damaged()
        place = str(need.prepared.folder)
        if damaged:
            findings.append(
                Finding(
                    "prepared files", "fail", f"changed since they were made: {', '.join(damaged)}",
                    place, f"boardvoice prepare --force {bundle.folder}",
                )
            )  # fmt: skip
        else:
            findings.append(Finding("prepared files", "ok", "as they were made", place))
    elif need.packing:
        findings.append(
            Finding(
                "prepared files", "ok", "there are none yet; the first load makes them",
                str(scene.state), f"boardvoice prepare {bundle.folder}",
            )
        )  # fmt: skip
    else:
        small = profile.memory.prepare != "never"
        words = "not needed for so few weights" if small else "the profile does not want them"
        findings.append(Finding("prepared files", "ok", words, f"profile {profile.name}"))
    return findings


def check_golden(scene: Scene, bundle: Bundle) -> Tried:
    """Run the golden vectors as the bundle would be loaded, but prepare nothing."""
    again = f"boardvoice selftest {bundle.folder}"
    if GOLDEN not in bundle.manifest.files:
        finding = Finding(
            "golden self-test", "skipped",
            "the bundle was exported before there were golden vectors",
            str(bundle.folder / MANIFEST), "Export it again to be able to test it.",
        )  # fmt: skip
        return Tried((finding,))
    profile = supported_kv(scene.profile, OrtBackend(threads=1, spinning=False))[0]
    need = Footprint.of(bundle, profile, scene.state)
    prepare = "never" if need.packing else None
    try:
        options = LoadOptions(profile=scene.profile, verify=False, prepare=prepare)
        opened, resources = open_device(bundle.folder, options)
        found = selftest(opened, resources)
    except BoardvoiceError as error:
        finding = Finding("golden self-test", "fail", error.message, again, error.remedy)
        return Tried((finding,))
    notes = [
        Finding("profile's wishes", "warn", note, f"profile {profile.name}")
        for note in dict.fromkeys(
            (*resources.notes, *resources.placement.notes, *resources.unfit.values())
        )
    ]
    npu = resources.placement.npu
    findings = (*notes, *_npu(npu), _golden(found, again, unprepared=bool(need.packing)))
    return Tried(findings, found, npu)


def _npu(record: NpuRecord | None) -> list[Finding]:
    """The trial at load; where it did not come to that, the profile's wishes say why."""
    if record is None or record.snr_db is None:
        return []
    words = f"flow: {record.snr_db:.1f} dB from the CPU's values"
    if record.npu_ms is not None and record.cpu_ms is not None:
        words += (
            f", {record.npu_ms:.1f} ms an evaluation, {record.cpu_ms:.1f} ms on the CPU"
        )
    versions = ", ".join(f"{name} {one}" for name, one in record.versions.items() if one)
    if record.in_use:
        return [Finding("NPU trial", "ok", words, versions)]
    return [Finding("NPU trial", "warn", f"{words}; not used: {record.reason}", versions,
                    record.detail)]  # fmt: skip


def _golden(found: SelfTest, again: str, *, unprepared: bool) -> Finding:
    providers = ", ".join(sorted({one.provider for one in found.results if one.provider}))
    if found.passed:
        errors = {one.component: one.deviation for one in found.results if one.deviation}
        exact = sum(error.exact for error in errors.values())
        words = f"{len(errors)} components passed on {providers}, {exact} of them exactly"
        if exact < len(errors):
            worst = min(errors, key=lambda component: errors[component].snr_db)
            words += f"; furthest off is {worst} with {errors[worst].snr_db:.1f} dB"
        if found.untested:
            return Finding("golden self-test", "warn", words, " ".join(found.untested.values()))
        return Finding("golden self-test", "ok", words, f"{again}; by {found.computed_by}")
    memory = [one for one in found.failed if one.short_of_memory]
    if unprepared and len(memory) == len(found.failed):
        names = ", ".join(one.component for one in memory)
        return Finding(
            "golden self-test", "skipped",
            f"not enough memory to test {names} before the bundle is prepared", again,
            "Run 'boardvoice prepare', then doctor again.",
        )  # fmt: skip
    names = "; ".join(f"{one.component}: {one.words}" for one in found.failed)
    return Finding(
        "golden self-test", "fail", f"not what the exporter computed: {names}", again,
        "Install another version of ONNX Runtime, or copy the bundle again.",
    )  # fmt: skip


def _kv(scene: Scene) -> str:
    return supported_kv(scene.profile, OrtBackend(threads=1, spinning=False))[0].kv.dtype
