"""What quantisation cost, layer by layer: quantization_report.json, .md and .svg."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tools.quantize.folding import Fold
from tools.quantize.layers import LayerError

STEM = "quantization_report"
_NUMBER = re.compile(r"\d+")


def _kinds(modules: Iterable[str]) -> str:
    counts = Counter(module.rpartition(".")[2] for module in modules)
    return ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))


@dataclass(frozen=True, slots=True)
class Report:
    model: str
    scheme: str
    library: str  # what wrote the format
    rounding: str
    group_size: int | None
    calibration: str | None  # the text's file
    samples: int
    length: int  # tokens of a sample
    folds: list[Fold]  # in the model's order
    uneven: list[str]  # layers that stay since the scheme's blocks don't fit them
    source_bytes: int
    bytes: int
    layers: list[LayerError]  # in the model's order

    def worst_first(self) -> list[LayerError]:
        """By the output's signal to noise where it is known, else by the weights' error."""
        return sorted(self.layers, key=lambda e: (e.output_snr_db if e.output_snr_db is not None else math.inf, -e.weight_error))

    def about(self) -> str:
        parts = [f"{self.scheme} by {self.library}", f"rounding {self.rounding}"]
        if self.group_size:
            parts.append(f"groups of {self.group_size}")
        if self.folds:
            parts.append(f"folded {_kinds(fold.producer for fold in self.folds)}")
        if self.uneven:
            parts.append(f"{_kinds(self.uneven)} left as they are (blocks would span what engines join)")
        if self.calibration:
            parts.append(f"{self.samples} samples of {self.length} tokens from {self.calibration}")
        return ", ".join(parts)

    def table(self, rows: int | None = None) -> str:
        worst = self.worst_first()[:rows]
        width = max(len("layer"), *(len(error.name) for error in worst))
        lines = [f"{'layer':<{width}} | {'rows x columns':>14} | weight error | output SNR"]
        lines.append(f"{'-' * width} | {'-' * 13}: | {'-' * 11}: | {'-' * 9}:")
        for e in worst:
            snr = "" if e.output_snr_db is None else f"{e.output_snr_db:.1f} dB"
            lines.append(f"{e.name:<{width}} | {f'{e.rows} x {e.columns}':>14} | {e.weight_error:>12.4%} | {snr:>10}")
        return "\n".join(lines)

    def write(self, folder: Path) -> None:
        values = dataclasses.asdict(self)
        for layer in values["layers"]:
            if layer["output_snr_db"] is not None and math.isinf(layer["output_snr_db"]):
                layer["output_snr_db"] = None  # JSON has no infinity
        (folder / f"{STEM}.json").write_text(json.dumps(values, indent=1) + "\n")
        (folder / f"{STEM}.md").write_text(
            f"# {self.model}: {self.about()}\n\n"
            f"{self.source_bytes / 2**20:.1f} MiB of weights became {self.bytes / 2**20:.1f} MiB.\n\n"
            f"![error by layer]({STEM}.svg)\n\n"
            "Weight error: |W - W'| / |W|, Frobenius. Output SNR: 10 log10(|X W^T|^2 / |X W^T - X' W'^T|^2) over calibration's inputs X, "
            "each as the quantised layers before give it. Worst first.\n\n"
            f"{self.table()}\n"
        )
        self._plot(folder / f"{STEM}.svg")

    def _plot(self, path: Path) -> None:
        """Two panels over the depth: the weights' error and the output's SNR, a line for each kind of layer."""
        import matplotlib

        matplotlib.use("Agg")
        matplotlib.rcParams["svg.hashsalt"] = "jumar"  # the same picture for the same figures
        from matplotlib import pyplot

        kinds: dict[str, list[tuple[int, LayerError]]] = {}
        for error in self.layers:
            number = _NUMBER.search(error.name)
            kinds.setdefault(error.name.rpartition(".")[2], []).append((int(number[0]) if number else -1, error))
        figure, (weights, outputs) = pyplot.subplots(2, 1, figsize=(9, 6), sharex=True, layout="constrained")
        for kind, points in kinds.items():
            # Experts share a depth: they are points, not a line.
            style = "." if len({depth for depth, _ in points}) < len(points) else ".-"
            weights.plot([d for d, _ in points], [100 * e.weight_error for _, e in points], style, label=kind, linewidth=1)
            known = [(d, e.output_snr_db) for d, e in points if e.output_snr_db is not None and math.isfinite(e.output_snr_db)]
            outputs.plot([d for d, _ in known], [snr for _, snr in known], style, label=kind, linewidth=1)
        weights.set_ylabel("weight error, %")
        weights.set_ylim(bottom=0)
        outputs.set_ylabel("output SNR, dB")
        outputs.set_xlabel("decoder layer")
        weights.legend(fontsize=8, ncols=4)
        weights.set_title(f"{self.model}: {self.about()}", fontsize=9)
        for axes in (weights, outputs):
            axes.grid(alpha=0.3)
            axes.spines[["top", "right"]].set_visible(False)
        figure.savefig(path, metadata={"Date": None})
        pyplot.close(figure)
