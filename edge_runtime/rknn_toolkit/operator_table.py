"""The compiler's per-operator table, which rknn-toolkit2 prints into its log while it builds."""

from __future__ import annotations

import re
from dataclasses import dataclass

_TABLE, _NEXT = "Network Layer Information Table", "Feature Tensor Information Table"
# Number, operator, data type, target, inputs, output, cycles (DDR/NPU/total), kilobytes, name.
_ROW = re.compile(
    r"\]\s+\d+\s+(?P<op>\S+)\s+\S+\s+(?P<target>\S+)\s+.*?\s+\S+"
    r"\s+-?\d+/-?\d+/(?P<cycles>-?\d+)\s+\d+\s*(?P<name>\S*)\s*$"
)
_MEMORY = re.compile(r"Total (Internal|Weight) Memory Size: ([\d.]+)KB")
_PORTS = ("InputOperator", "OutputOperator")


@dataclass(frozen=True)
class Operator:
    """One row.

    Attributes:
        op: Kind, such as ``Conv``.
        target: ``NPU`` or ``CPU``.
        cycles: The compiler's estimate.
        name: ``KIND:VALUE`` with the value's name in the graph.
    """

    op: str
    target: str
    cycles: int
    name: str


@dataclass(frozen=True)
class OperatorTable:
    """What the compiler made of a graph.

    Attributes:
        operators: All rows but those of inputs and outputs.
        internal_bytes: Memory for what lies between operators.
        weight_bytes: Memory for the weights.
    """

    operators: tuple[Operator, ...]
    internal_bytes: int
    weight_bytes: int

    @staticmethod
    def parse(log: str) -> OperatorTable:
        """Read the last table of a log; empty where there is none."""
        rows: list[Operator] = []
        inside = False
        for line in log.replace("\r", "\n").split("\n"):
            if _TABLE in line:
                inside, rows = True, []
            elif _NEXT in line:
                inside = False
            elif inside and (found := _ROW.search(line)) and found["op"] not in _PORTS:
                rows.append(
                    Operator(found["op"], found["target"], int(found["cycles"]), found["name"])
                )
        sizes: dict[str, int] = {}
        for kind, size in _MEMORY.findall(log):
            # Printed twice: by number of cores. The first is that of one.
            sizes.setdefault(kind, int(float(size) * 1024))
        return OperatorTable(tuple(rows), sizes.get("Internal", 0), sizes.get("Weight", 0))

    @property
    def on_cpu(self) -> tuple[Operator, ...]:
        """Operators that the NPU does not compute."""
        return tuple(row for row in self.operators if row.target != "NPU")

    @property
    def cycles(self) -> int:
        """Cycles of one evaluation, as estimated."""
        return sum(row.cycles for row in self.operators)
